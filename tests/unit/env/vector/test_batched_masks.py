"""Masks of actions, and observations in parts, of environments that step together,
against the same single environments stepped one by one."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.testing import assert_array_equal

from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.masks import draw_allowed, mask_columns
from slm_lab.testing.play import same

NUMBERS = spaces.Box(-100.0, 100.0, (3,), np.float32)
LIMIT = 6
GOAL = 5


class Doors(gymnasium.Env):
    """Observes the number of its episode, the steps in it, and the sum of the actions.
    A sum of `GOAL` terminates, `LIMIT` steps truncate. One of three doors is closed, by
    the step, and all are once it has terminated. Its info has the mask."""

    observation_space: spaces.Space = NUMBERS
    action_space = spaces.Discrete(3)
    last_is_open = True

    def __init__(self):
        self.state = np.zeros(3, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.state[0] + 1, 0, 0], np.float32)
        return self.given(self.mask())

    def step(self, action):
        assert self.mask()[action], "this door is closed"
        self.state += np.array([0, 1, action], np.float32)
        terminated = bool(self.state[2] >= GOAL)
        truncated = bool(self.state[1] >= LIMIT)
        mask = self.mask()
        if terminated or (truncated and not self.last_is_open):
            mask[:] = 0
        obs, info = self.given(mask)
        return obs, float(action), terminated, truncated, info

    def mask(self):
        mask = np.ones(3, np.int8)
        mask[int(self.state[:2].sum()) % 3] = 0
        return mask

    def given(self, mask):
        return self.state.copy(), {"rules": {"doors": mask}}


class DoorsInSight(Doors):
    """`Doors` with the mask deep in the observation, beside a part without it."""

    observation_space = spaces.Dict(
        {
            "numbers": NUMBERS,
            "rules": spaces.Tuple([spaces.Discrete(7), spaces.MultiBinary(3)]),
        }
    )

    def given(self, mask):
        return {"numbers": self.state.copy(), "rules": (int(self.state[1]), mask)}, {}


class WithoutDoors(DoorsInSight):
    """`DoorsInSight` whose mask nobody asks for."""

    def mask(self):
        return np.ones(3, np.int8)


def same_step(env):
    def make(num_envs, autoreset_mode):
        return SyncVectorEnv([env] * num_envs, autoreset_mode=autoreset_mode)

    return make


def disabled(env):
    def make(num_envs, autoreset_mode):
        if autoreset_mode is AutoresetMode.SAME_STEP:
            raise ValueError("this mode is not supported")
        return SyncVectorEnv([env] * num_envs, autoreset_mode=autoreset_mode)

    return make


def next_step(env):
    class Late(SyncVectorEnv):
        metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}

        def __init__(self, num_envs):
            super().__init__([env] * num_envs)

    return Late


MODES = {
    "same_step": (same_step, "SameStepEnvs"),
    "disabled": (disabled, "MaskedResetEnvs"),
    "next_step": (next_step, "SyncEnvs"),
}
PLACES = {
    "in the info": (Doors, {"action_mask": "info.rules.doors"}),
    "in the observation": (DoorsInSight, {"action_mask": "rules.1"}),
    "nowhere": (WithoutDoors, {}),
}


def steps_of(env, count=60):
    rng = np.random.default_rng(0)
    obs = env.reset()
    steps = [obs]
    for _ in range(count):
        action = draw_allowed(env.layout, obs, rng)
        if action is None:
            action = rng.integers(0, 3, (env.num_envs, 1))
        steps.append(env.step(action[:, 0]))
        obs = steps[-1].obs
    return steps


@pytest.mark.parametrize(("class_", "keys"), PLACES.values(), ids=PLACES)
@pytest.mark.parametrize(("creator", "kind"), MODES.values(), ids=MODES)
@pytest.mark.parametrize("has_single", [True, False])
def test_masks_and_parts_of_a_batch_are_those_of_single_environments(
    build, registered, creator, kind, has_single, class_, keys
):
    single = registered("Single-v0", entry_point=class_)
    vector = registered(
        "Batch-v0",
        entry_point=class_ if has_single else None,
        vector_entry_point=creator(class_),
    )
    env = build(vector, **keys)
    assert type(env.raw).__name__ == kind
    expected = build(single, vectorization_mode="sync", **keys)
    first, *steps = steps_of(env)
    first_expected, *expected_steps = steps_of(expected)
    assert_array_equal(first, first_expected, strict=True)
    for ours, theirs in zip(steps, expected_steps, strict=True):
        assert same(ours._asdict(), theirs._asdict())
    ends = [step for step in steps if step.finished is not None]
    assert any(step.terminated.any() for step in ends)
    assert any((step.truncated & ~step.terminated).any() for step in ends)


@pytest.mark.parametrize("creator", [same_step, disabled])
def test_the_mask_of_the_last_state_is_its_own(build, registered, creator):
    name = registered("Batch-v0", vector_entry_point=creator(Doors), entry_point=Doors)
    env = build(name, action_mask="info.rules.doors")
    columns = mask_columns(env.layout)
    count = 0
    for step in steps_of(env)[1:]:
        if step.finished is None:
            continue
        for index in step.finished.env_index:
            closed = step.next_obs[index, :2].sum() % 3
            expected = [int(door != closed) for door in range(3)]
            if step.terminated[index]:
                expected = [0, 0, 0]
            assert step.next_obs[index, columns].tolist() == expected
            count += 1
    assert count > 10


class Walled(Doors):
    last_is_open = False


@pytest.mark.parametrize("creator", [same_step, disabled, next_step])
def test_a_time_limit_in_a_state_that_allows_nothing_is_an_end(
    build, registered, creator
):
    creator = creator(Walled)
    name = registered("Batch-v0", entry_point=None, vector_entry_point=creator)
    env = build(name, action_mask="info.rules.doors")
    ends = [step for step in steps_of(env)[1:] if step.truncated.any()]
    assert ends
    assert all(step.terminated[step.truncated].all() for step in ends)


class Silent(Doors):
    """Its info has no mask where an episode ends."""

    def given(self, mask):
        obs, info = super().given(mask)
        if self.state[1] and (self.state[2] >= GOAL or self.state[1] >= LIMIT):
            info = {}
        return obs, info


class Stuck(Doors):
    def mask(self):
        return np.zeros(3, np.int8) if self.state[1] == 2 else super().mask()


class Short(Doors):
    def mask(self):
        return np.array([1, 1], np.int8)


class Vague(Doors):
    def mask(self):
        return np.array([0.5, 0.5, 0.5])


class Forgetful(SyncVectorEnv):
    """Says nothing of the last info."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs):
        super().__init__([Doors] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

    def step(self, actions):
        *rest, info = super().step(actions)
        info.pop("final_info", None)
        return *rest, info


FAULTS = {
    "missing at the end": (same_step(Silent), "the info of step() of Batch-v0 has no"),
    "missing without modes": (disabled(Silent), "the info of step() of Batch-v0 has"),
    "all are closed": (same_step(Stuck), "allows no action, and the episode goes on"),
    "another length": (same_step(Short), "has the shape (3, 2)"),
    "other numbers": (disabled(Vague), "it may have 0 and 1 alone"),
    "no last info": (Forgetful, "ended an episode without a dict final_info"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mask_of_a_batch_that_is_none_is_one_line(build, registered, fault):
    creator, message = FAULTS[fault]
    env = build(
        registered("Batch-v0", entry_point=Doors, vector_entry_point=creator),
        action_mask="info.rules.doors",
    )
    with pytest.raises(LabError) as caught:
        steps_of(env)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("keys", [{}, {"vectorization_mode": "native"}])
def test_native_copies_of_the_lab_have_no_masks(build, keys):
    if not keys:
        assert type(build("CartPole-v1", action_mask="info.m").raw).__name__ == (
            "SyncEnvs"
        )
        return
    with pytest.raises(SpecError, match="native vector version has no masks of act"):
        build("CartPole-v1", action_mask="info.m", **keys)


class Board(gymnasium.Env):
    """Two numbers that choose a field of two rows and three columns, once each."""

    observation_space = spaces.Dict(free=spaces.MultiBinary((2, 3)), numbers=NUMBERS)
    action_space = spaces.MultiDiscrete([2, 3], start=[1, 4])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.free = np.ones((2, 3), np.int8)
        return self.given(), {}

    def given(self):
        return {"free": self.free.copy(), "numbers": np.zeros(3, np.float32)}

    def step(self, action):
        row, column = action - np.array([1, 4])
        assert self.free[row, column], "this field is taken"
        self.free[row, column] = 0
        return self.given(), float(3 * row + column), not self.free.any(), False, {}


@pytest.mark.parametrize("creator", [None, same_step])
def test_a_mask_of_combinations_makes_them_one_choice(build, registered, creator):
    vector = None if creator is None else creator(Board)
    name = registered("Board-v0", entry_point=Board, vector_entry_point=vector)
    env = build(name, action_mask="free")
    assert env.action_space == spaces.Discrete(6)
    rng = np.random.default_rng(0)
    obs = env.reset()
    for count in range(1, 13):
        action = draw_allowed(env.layout, obs, rng)[:, 0]
        step = env.step(action)
        assert_array_equal(step.reward, action.astype(np.float32))
        assert step.terminated.all() == (count % 6 == 0)
        obs = step.obs
