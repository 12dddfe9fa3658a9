"""Observations whose values the type of the space cannot hold, and the faults of later
steps."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

from slm_lab.core.errors import LabError
from slm_lab.env.failure import EnvironmentFailedError

MODES = ["sync", pytest.param("async", marks=pytest.mark.medium)]

LATE = 3
"""The step from which on a `Scripted` environment returns what it is scripted to."""

GOOD = np.zeros(2, np.float32)


class Scripted(gymnasium.Env):
    """Ends an episode in step `LATE`. From then on it returns `late` in place of these
    results."""

    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    good = GOOD
    late = SimpleNamespace()

    def __init__(self):
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.steps < LATE:
            return self.good, {}
        if hasattr(self.late, "error"):
            raise self.late.error
        return getattr(self.late, "first", self.good), getattr(
            self.late, "first_info", {}
        )

    def step(self, action):
        self.steps += 1
        late = self.late if self.steps >= LATE else SimpleNamespace()
        return (
            getattr(late, "obs", self.good),
            getattr(late, "reward", 1.0),
            getattr(late, "terminated", self.steps == LATE),
            False,
            getattr(late, "info", {}),
        )


def scripted(space=None, good=GOOD, **late):
    """A class of environments with this space, which goes wrong in step `LATE`."""
    space = Scripted.observation_space if space is None else space
    parts = {"observation_space": space, "good": good, "late": SimpleNamespace(**late)}
    return type("Scripted", (Scripted,), parts)


def play(env, steps=LATE):
    """`steps` steps with action 0."""
    env.reset()
    for _ in range(steps):
        step = env.step(np.zeros(env.num_envs, np.int64))
    return step


def integers(dtype, low=0, high=255):
    return gymnasium.spaces.Box(low, high, (2,), dtype)


SAYS = r"^Late-v0 breaks its own observation space: the observation"
NOT_HELD = [
    (
        integers(np.int32),
        np.array([3.0, 0.25]),
        r" is float64 with the value 0.25, which int32",
    ),
    (
        integers(np.int64),
        [1.0, 0.5],
        r" is float64 with the value 0.5, which int64 cannot hold",
    ),
    (
        integers(np.uint8),
        np.array([7, -1]),
        r" is int64 with the value -1, which uint8 cannot",
    ),
    (
        integers(np.uint8),
        np.array([300, 0]),
        r" is int64 with the value 300, which uint8 cannot",
    ),
    (
        integers(np.uint8),
        np.array([np.nan, 0.0]),
        r" is float64 with the value nan, which uint8",
    ),
    (
        None,
        np.array([0.0, 1e300]),
        r" is float64 with the value 1e\+300, which float32 cannot",
    ),
    (None, np.array(["a", "b"]), r" is \['a', 'b'\], no number"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["obs", "first"])
@pytest.mark.parametrize(("space", "late", "message"), NOT_HELD)
def test_a_value_that_the_type_of_the_space_cannot_hold_is_one_line(
    build, registered, mode, where, space, late, message
):
    good = GOOD.astype(np.float32 if space is None else space.dtype)
    name = registered("Late-v0", entry_point=scripted(space, good, **{where: late}))
    env = build(name, vectorization_mode=mode)
    with pytest.raises(LabError, match=SAYS + message) as caught:
        play(env)
    assert "of environment " in "".join(caught.value.__notes__)


@pytest.mark.parametrize("mode", MODES)
def test_the_part_whose_type_cannot_hold_a_value_is_named(build, registered, mode):
    space = gymnasium.spaces.Dict(
        {"level": integers(np.int32), "speed": integers(np.float32)}
    )
    good = {"level": np.zeros(2, np.int32), "speed": GOOD}
    env = build(
        registered(
            "Late-v0",
            entry_point=scripted(space, good, obs={**good, "level": [0.5, 0.0]}),
        ),
        vectorization_mode=mode,
    )
    message = r'"level" is float64 with the value 0.5, which int32 cannot hold'
    with pytest.raises(LabError, match=f"{SAYS} {message}"):
        play(env)


def test_float64_observations_beyond_float32_are_not_called_infinite(build, registered):
    space = gymnasium.spaces.Box(-1e300, 1e300, (2,), np.float64)
    name = registered(
        "Late-v0", entry_point=scripted(space, np.zeros(2), obs=np.array([1e300, 0.0]))
    )
    message = (
        r"Late-v0 cannot be observed: the observation is float64 with the value "
        r"1e\+300, which float32 cannot hold; scale it in a wrapper"
    )
    with pytest.raises(LabError, match=message):
        play(build(name))


HELD = [
    (integers(np.int32), [3.0, -4.0]),
    (integers(np.uint8), np.array([255, 0])),
    (integers(np.float32), np.array([0.1, np.inf])),
    (integers(np.float32), np.array([2**62, 3])),
    (gymnasium.spaces.MultiBinary(2), [True, False]),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("space", "late"), HELD)
def test_values_of_another_type_that_the_space_holds_are_kept(
    build, registered, mode, space, late
):
    good = np.zeros(2, space.dtype)
    name = registered("Late-v0", entry_point=scripted(space, good, obs=late))
    step = play(build(name, vectorization_mode=mode))
    assert step.next_obs.tolist() == [np.asarray(late, np.float32).tolist()] * 3


BREAKS = r"^the environment Late-v0 breaks Gymnasium's interface: "
LATE_FAULTS = {
    "no terminal observation": (
        {"obs": None},
        BREAKS + r"the observation of step\(\) .* None",
    ),
    "a number for the last observation": (
        {"obs": 0.0},
        BREAKS + r"step\(\) returned an obs",
    ),
    "an empty last observation": (
        {"obs": np.zeros(0, np.float32)},
        BREAKS + r"step\(\) returned",
    ),
    "a late array for the reward": (
        {"reward": np.ones(1)},
        BREAKS + r"reward of step\(\) must",
    ),
    "a late None for the reward": (
        {"reward": None},
        BREAKS + r"reward .* and was None",
    ),
    "a late array for the end": (
        {"terminated": np.ones(1)},
        BREAKS + r"terminated of step\(\)",
    ),
    "no info of a later step": (
        {"info": None},
        BREAKS + r"info of step\(\) .* and was None",
    ),
    "no info of a later reset": (
        {"first_info": None},
        BREAKS + r"info of reset\(\) .* was None",
    ),
    "another shape after a reset": (
        {"first": np.zeros(3)},
        BREAKS + r"reset\(\) returned an obs",
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", LATE_FAULTS)
def test_the_checks_of_the_first_step_hold_for_every_later_one(
    build, registered, mode, fault
):
    late, message = LATE_FAULTS[fault]
    env = build(
        registered("Late-v0", entry_point=scripted(**late)), vectorization_mode=mode
    )
    play(env, LATE - 1)
    with pytest.raises(LabError, match=message):
        env.step(np.zeros(3, np.int64))


@pytest.mark.parametrize("mode", MODES)
def test_an_error_in_a_later_reset_says_which_environment_it_is_of(
    build, registered, mode
):
    late = scripted(error=ConnectionError("no answer"))
    env = build(registered("Late-v0", entry_point=late), vectorization_mode=mode)
    play(env, LATE - 1)
    expected = EnvironmentFailedError
    if mode == "sync":
        expected = ConnectionError
    with pytest.raises(expected, match="no answer") as caught:
        env.step(np.zeros(3, np.int64))
    lines = [str(caught.value), *getattr(caught.value, "__notes__", ())]
    assert "in reset() of environment " in "\n".join(lines)
