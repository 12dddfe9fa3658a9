"""What happens when an environment breaks, and native vector environments of other
packages."""

import warnings
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from slm_lab.core.errors import LabError
from slm_lab.core.text import error_text
from slm_lab.env.failure import EnvironmentFailedError
from slm_lab.env.lookup import find_env
from slm_lab.env.vector.autoreset import one_by_one_reason
from slm_lab.env.vector.in_process import SyncEnvs

SPACE = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


class Fragile(gymnasium.Env):
    """Breaks on action 1."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if action == 1:
            raise ZeroDivisionError("the pole broke")
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Faulty(gymnasium.Env):
    """Returns `reset_result` and `step_result`, whatever they are."""

    observation_space = SPACE
    action_space = gymnasium.spaces.Discrete(2)
    reset_result = (np.zeros(2, np.float32), {})
    step_result = (np.zeros(2, np.float32), 1.0, False, False, {})

    def reset(self, *, seed=None, options=None):
        return self.reset_result

    def step(self, action):
        return self.step_result


def test_an_environment_that_fails_without_a_message_is_reported_with_the_line(
    build, registered
):
    def make():
        raise ValueError

    with pytest.raises(
        LabError, match=r"cannot be made: ValueError.*failure\.py, line \d+"
    ):
        build(registered("Silent-v0", entry_point=make))


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_exception_says_which_environment_and_action_caused_it(
    build, registered, mode
):
    env = build(registered("Fragile-v0", entry_point=Fragile), vectorization_mode=mode)
    env.reset()
    env.step(np.array([0, 0, 0]))
    kind = ZeroDivisionError
    if mode == "async":
        kind = EnvironmentFailedError
    with pytest.raises(kind, match="the pole broke") as caught:
        env.step(np.array([0, 0, 1]))
    lines = error_text(caught.value).splitlines()
    assert lines[-2:] == [
        "ZeroDivisionError: the pole broke",
        "in step() of environment 2 of 3 (<Fragile<Fragile-v0>>), with action 1",
    ]
    assert '    raise ZeroDivisionError("the pole broke")' in lines


TWO = np.zeros(2, np.float32)
STEP = r"step\(\) must return \(observation, reward, terminated, truncated, info\)"


FAULTS = [
    (
        "reset",
        (np.zeros(3), {}),
        r"reset\(\) returned an observation of the shape \(3,\), .*\(2,\)",
    ),
    (
        "reset",
        ([0.0, [1.0, 2.0]], {}),
        r"the observation of reset\(\) must be an array, .* \[",
    ),
    (
        "reset",
        (0.0, {}),
        r"reset\(\) returned an observation of the shape \(\), .* \(2,\)",
    ),
    (
        "reset",
        (None, {}),
        r"the observation of reset\(\) must be an array, and was None",
    ),
    (
        "step",
        (None, 1.0, False, False, {}),
        r"the observation of step\(\) must be an array, .* None",
    ),
    (
        "step",
        ({"x": 1}, 1.0, False, False, {}),
        r"the observation of step\(\) must be an array, .*x",
    ),
    (
        "reset",
        TWO,
        r"reset\(\) must return \(observation, info\), and .* an array .* \(2,\)",
    ),
    (
        "reset",
        np.zeros(3),
        r"reset\(\) must return \(observation, info\), and returned an array",
    ),
    ("reset", (TWO, 1.0), r"info of reset\(\) must be a dict, and was 1.0"),
    (
        "step",
        (TWO, 1.0, False, {}),
        f"{STEP}, and returned a tuple of 4: done was split",
    ),
    ("step", None, f"{STEP}, and returned None"),
    (
        "step",
        (np.zeros(1), 1.0, False, False, {}),
        r"step\(\) returned an observation of the shape",
    ),
    (
        "step",
        (TWO, TWO, False, False, {}),
        r"reward of step\(\) must be one number, and was an ar",
    ),
    (
        "step",
        (TWO, np.ones(1), False, False, {}),
        r"reward .* one number, .* the shape \(1,\)",
    ),
    (
        "step",
        (TWO, 1.0, np.ones(1), False, {}),
        r"terminated .* true or false, .* shape \(1,\)",
    ),
    (
        "step",
        (TWO, None, False, False, {}),
        r"reward of step\(\) must be one number, and was None",
    ),
    (
        "step",
        (TWO, 1.0, [True] * 3, False, {}),
        r"terminated of step\(\) must be true or false",
    ),
    (
        "step",
        (TWO, 1.0, "False", False, {}),
        r"terminated of step\(\) must be true or false, and was 'False'",
    ),
    (
        "step",
        (TWO, "1", False, False, {}),
        r"reward of step\(\) must be one number, and was '1'",
    ),
]


@pytest.mark.parametrize("max_t", [None, 5])
@pytest.mark.parametrize(("method", "result", "message"), FAULTS)
def test_an_invalid_result_is_one_clear_error(
    build, registered, max_t, method, result, message
):
    faulty = type("Faulty", (Faulty,), {f"{method}_result": result})
    env = build(registered("Faulty-v0", entry_point=faulty), max_t=max_t)
    if method == "step":
        env.reset()
    with pytest.raises(
        LabError, match=f"the environment Faulty-v0 breaks .*: {message}"
    ):
        env.reset() if method == "reset" else env.step(np.zeros(3, np.int64))


def test_an_error_of_the_environment_itself_is_not_taken_for_what_it_returns(
    build, registered
):
    class Stumbling(Faulty):
        def step(self, action):
            raise ValueError("a joint is not finite")

    env = build(registered("Faulty-v0", entry_point=Stumbling))
    env.reset()
    with pytest.raises(ValueError, match="a joint is not finite"):
        env.step(np.zeros(3, np.int64))


@pytest.mark.medium
def test_closing_twice_is_allowed(build):
    for mode in ("sync", "async", None):
        env = build("CartPole-v1", vectorization_mode=mode)
        env.reset()
        env.close()
        env.close()


def test_a_box_that_loses_precision_gives_no_warning(build, registered):
    def make():
        env = Fragile()
        env.observation_space = gymnasium.spaces.Box(
            np.full(2, -1e9 / 3), np.full(2, 1e9 / 3), dtype=np.float32
        )
        return env

    name = registered("Imprecise-v0", entry_point=make)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(name).reset()


class DenseFinalObs(SyncVectorEnv):
    """A native vector environment that reports final observations as ALE does."""

    def __init__(self, num_envs, autoreset_mode, max_episode_steps=None, length_unit=1):
        def make():
            return gymnasium.make("Pendulum-v1", max_episode_steps=max_episode_steps)

        super().__init__([make] * num_envs, autoreset_mode=autoreset_mode)

    def step(self, actions):
        *rest, info = super().step(actions)
        if "final_obs" in info:
            dense = np.full((self.num_envs, 3), np.nan, np.float32)
            for index in np.flatnonzero(info["_final_obs"]):
                dense[index] = info["final_obs"][index]
            info = {"final_obs": dense}
        return *rest, info


class LateReset(SyncVectorEnv):
    """Resets one step late and cannot do otherwise."""

    def __init__(self, num_envs, max_episode_steps=None):
        super().__init__([lambda: gymnasium.make("Pendulum-v1")] * num_envs)


def test_a_native_environment_that_resets_in_the_same_step_is_used(
    build, registered, random_actions
):
    name = registered(
        "Native-v0",
        entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
        vector_entry_point=DenseFinalObs,
    )
    env = build(name, max_t=6)
    assert isinstance(env.raw.env, DenseFinalObs)
    assert env.raw.env.autoreset_mode is AutoresetMode.SAME_STEP
    assert not env.exact_state
    obs = env.reset()
    for count, action in enumerate(random_actions(env, 20), start=1):
        step = env.step(action)
        assert np.isfinite(step.next_obs).all()
        assert (step.finished is not None) == (count % 6 == 0)
        if step.finished is not None:
            # speed changes by at most 3/2 g dt + 3 u dt per step, but jumps at a reset
            assert np.abs(step.next_obs[:, 2] - obs[:, 2]).max() < 1.1
        obs = step.obs
    again = build(name, 5, max_t=6)
    again.load_state_dict(env.state_dict())
    assert again.step(random_actions(env, 1)[0]).finished is None


@pytest.mark.parametrize("base", [{}, {"autoreset_mode": AutoresetMode.SAME_STEP}])
def test_a_native_environment_that_resets_late_falls_back_to_sync(
    build, registered, env_spec, monkeypatch, base
):
    monkeypatch.setattr(VectorEnv, "metadata", base)  # ale-py writes into it
    name = registered(
        "Late-v0",
        entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
        vector_entry_point=LateReset,
    )
    env = build(name, max_t=6)
    assert type(env.raw).__name__ == "SyncEnvs"


class OnlySameStep(DenseFinalObs):
    """Resets in the same step and cannot do otherwise."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs, max_episode_steps=None):
        super().__init__(num_envs, AutoresetMode.SAME_STEP, max_episode_steps)


def make_late(num_envs):
    return LateReset(num_envs)


class OnlyNextStep(LateReset):
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}


@pytest.mark.parametrize("asked", [None, "native"])
def test_a_native_environment_whose_only_mode_is_the_same_step_is_used(
    build, registered, random_actions, asked
):
    name = registered(
        "Only-v0",
        entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
        vector_entry_point=OnlySameStep,
    )
    env = build(name, max_t=6, vectorization_mode=asked)
    assert isinstance(env.raw.env, OnlySameStep)
    env.reset()
    ends = [env.step(action).finished is not None for action in random_actions(env, 12)]
    assert ends == [False, False, False, False, False, True] * 2


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (OnlyNextStep, "…only resets in mode NEXT_STEP; the lab needs SAME_STEP"),
        (
            LateReset,
            "…no argument autoreset_mode, and its metadata names no AutoresetMode",
        ),
        (
            make_late,
            "…made by a function without an argument autoreset_mode, so its mode is "
            "not known",
        ),
    ],
)
def test_a_native_environment_without_the_mode_is_refused_for_the_true_reason(
    assert_refused, registered, version, reason
):
    name = registered(
        "Other-v0",
        entry_point="gymnasium.envs.classic_control.pendulum:PendulumEnv",
        vector_entry_point=version,
    )
    refused = f"env.vectorization_mode = 'native': {reason}"
    assert_refused(name, refused, vectorization_mode="native")


class WithoutLimit(DenseFinalObs):
    """Resets in the same step, and has no step limit of its own."""

    def __init__(self, num_envs, autoreset_mode):
        super().__init__(num_envs, autoreset_mode)


def test_a_native_environment_without_a_step_limit_has_none(
    build, assert_refused, registered
):
    name = registered("Endless-v0", vector_entry_point=WithoutLimit)
    refused = (
        "env.vectorization_mode = 'native': …takes no max_episode_steps, which limits "
        "an episode to 6 steps"
    )
    assert_refused(name, refused, vectorization_mode="native", max_t=6)
    assert isinstance(build(name).raw.env, WithoutLimit)
    assert isinstance(build(name, max_t=6).raw, SyncEnvs)


@pytest.mark.parametrize(
    ("version", "keys", "reason"),
    [
        (WithoutLimit, {}, None),
        (WithoutLimit, {"max_t": 6}, "takes no max_episode_steps"),
        (WithoutLimit, {"max_t": 6, "num_envs": 1}, None),
        (WithoutLimit, {"max_t": 6, "vectorization_mode": "sync"}, None),
        (OnlySameStep, {"max_t": 6}, None),
        (OnlySameStep, {"info_keys": ["a"]}, None),
        (make_late, {}, "by a function without an argument autoreset_mode"),
    ],
)
def test_copies_that_are_stepped_one_by_one_have_a_reason(
    registered, env_spec, version, keys, reason
):
    name = registered("Some-v0", vector_entry_point=version)
    spec = env_spec(name, **{"num_envs": 4, **keys})
    found = one_by_one_reason(spec, find_env(spec))
    assert (found is None) == (reason is None)
    assert reason is None or reason in found


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "ALE/Pong-v5"])
def test_copies_of_known_environments_have_no_reason(env_spec, name):
    spec = env_spec(name, num_envs=4)
    assert one_by_one_reason(spec, find_env(spec)) is None


@pytest.mark.parametrize("mode", ["sync", None])
def test_rewards_are_clipped_scaled_and_signed(build, mode):
    def rewards(**keys):
        env = build("CartPole-v1", num_envs=2, vectorization_mode=mode, **keys)
        env.reset()
        return env.step(np.array([0, 1])).reward

    assert rewards().tolist() == [1, 1]
    assert rewards(clip_reward=0.5).tolist() == [0.5, 0.5]
    assert rewards(reward_scale=3.0).tolist() == [3, 3]
    assert rewards(reward_scale=3.0, clip_reward="sign").tolist() == [1, 1]
    assert rewards(reward_scale="sign").tolist() == [1, 1]
    assert rewards(reward_scale=4.0, clip_reward=2.0).tolist() == [2, 2]
