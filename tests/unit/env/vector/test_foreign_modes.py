"""Vector environments of other packages, in each autoreset mode, against the same
single environments stepped one by one."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.testing import assert_array_equal

from slm_lab.core.errors import LabError
from slm_lab.env.device_env import make_device_env
from slm_lab.env.make import make_env
from slm_lab.testing.play import same

SPACE = gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float32)
ACTIONS = gymnasium.spaces.Discrete(3)
LIMIT = 6
GOAL = 5


class Walk(gymnasium.Env):
    """Observes the number of its episode, the steps in it, and the sum of the actions.
    A sum of `GOAL` terminates, `LIMIT` steps truncate."""

    observation_space = SPACE
    action_space = ACTIONS

    def __init__(self):
        self.state = np.zeros(3, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.array([self.state[0] + 1, 0, 0], np.float32)
        return self.state.copy(), {}

    def step(self, action):
        self.state += np.array([0, 1, action], np.float32)
        over = bool(self.state[2] >= GOAL), bool(self.state[1] >= LIMIT)
        return self.state.copy(), float(action + self.state[1]), *over, {}


class Walks(VectorEnv):
    """N walks, not by Gymnasium's classes. The mode is that of the class."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}
    key = "final_obs"

    def __init__(self, num_envs):
        self.num_envs = num_envs
        self.single_observation_space = SPACE
        self.single_action_space = ACTIONS
        self.observation_space = batch_space(SPACE, num_envs)
        self.action_space = batch_space(ACTIONS, num_envs)
        self.state = np.zeros((num_envs, 3), np.float32)
        self.done = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        self.begin((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        self.done[:] = False
        return self.given(self.state), {}

    def begin(self, rows):
        self.state[rows, 0] += 1
        self.state[rows, 1:] = 0

    def advance(self, action, rows):
        self.state[rows, 1] += 1
        self.state[rows, 2] += action[rows]
        reward = np.where(rows, action + self.state[:, 1], 0.0)
        terminated = rows & (self.state[:, 2] >= GOAL)
        return reward, terminated, rows & (self.state[:, 1] >= LIMIT)

    def given(self, values):
        """Values as it returns them."""
        return values.copy()

    def returned(self, reward, terminated, truncated, info):
        rest = map(self.given, (reward, terminated, truncated))
        return self.given(self.state), *rest, info

    def step(self, action):
        everywhere = np.ones(self.num_envs, bool)
        reward, terminated, truncated = self.advance(action, everywhere)
        done = terminated | truncated
        info = {self.key: self.given(self.state)} if done.any() else {}
        self.begin(done)
        return self.returned(reward, terminated, truncated, info)


class OldWords(Walks):
    key = "final_observation"


class Tensors(Walks):
    """Returns tensors of torch."""

    def given(self, values):
        return torch.tensor(values)


class Masked(Walks):
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.DISABLED}

    def step(self, action):
        assert not self.done.any(), "the ended ones were not reset"
        everywhere = np.ones(self.num_envs, bool)
        reward, terminated, truncated = self.advance(action, everywhere)
        self.done = terminated | truncated
        return self.returned(reward, terminated, truncated, {})


class MaskedTensors(Masked):
    given = Tensors.given


class NextStep(Walks):
    metadata: ClassVar = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def step(self, action):
        late = self.done
        reward, terminated, truncated = self.advance(action, ~late)
        self.begin(late)
        self.done = terminated | truncated
        return self.returned(reward, terminated, truncated, {})


class Unsaid(NextStep):
    """Gymnasium takes a vector environment that names no mode for NEXT_STEP."""

    metadata: ClassVar = {}


class UnsaidOld(OldWords):
    """Resets in the same step and names no mode, as before Gymnasium 1.0."""

    metadata: ClassVar = {}


class AnyButSameStep:
    """A function that takes the mode, and refuses SAME_STEP."""

    @staticmethod
    def make(num_envs, autoreset_mode):
        if autoreset_mode is AutoresetMode.SAME_STEP:
            raise ValueError("this mode is not supported")
        return Masked(num_envs)


MODES = {
    "same_step": (Walks, "SameStepEnvs"),
    "older_words": (OldWords, "SameStepEnvs"),
    "tensors": (Tensors, "SameStepEnvs"),
    "disabled": (Masked, "MaskedResetEnvs"),
    "disabled_tensors": (MaskedTensors, "MaskedResetEnvs"),
    "chosen": (AnyButSameStep.make, "MaskedResetEnvs"),
    "next_step": (NextStep, "SyncEnvs"),
    "unsaid": (Unsaid, "SyncEnvs"),
    "unsaid_old": (UnsaidOld, "SyncEnvs"),
}


def steps_of(env, count=60):
    rng = np.random.default_rng(0)
    steps = [env.reset()]
    for _ in range(count):
        steps.append(env.step(rng.integers(0, 3, env.num_envs)))
    return steps


@pytest.mark.parametrize("has_single", [True, False])
@pytest.mark.parametrize(("creator", "kind"), MODES.values(), ids=MODES)
def test_every_mode_equals_single_environments_row_for_row(
    build, registered, creator, kind, has_single
):
    single = registered("Single-v0", entry_point=Walk)
    vector = registered(
        "Foreign-v0",
        entry_point=Walk if has_single else None,
        vector_entry_point=creator,
    )
    env = build(vector)
    assert type(env.raw).__name__ == kind
    expected = steps_of(build(single, vectorization_mode="sync"))
    steps = steps_of(env)
    assert_array_equal(steps[0], expected[0], strict=True)
    for ours, theirs in zip(steps[1:], expected[1:], strict=True):
        assert same(ours._asdict(), theirs._asdict())
    ends = [step for step in steps[1:] if step.finished is not None]
    assert any(step.terminated.any() for step in ends)
    assert any(step.truncated.any() for step in ends)


@pytest.mark.parametrize(
    ("mode", "creator"),
    [("async", Walks), *(("sync", creator) for creator, _ in MODES.values())],
)
def test_one_copy_of_a_vector_environment_is_a_single_one(
    build, registered, mode, creator
):
    single = registered("Single-v0", entry_point=Walk)
    registered("Foreign-v0", entry_point=None, vector_entry_point=creator)
    env = build("Foreign-v0", vectorization_mode=mode, num_envs=2)
    expected = build(single, vectorization_mode="sync", num_envs=2)
    for ours, theirs in zip(steps_of(env)[1:], steps_of(expected)[1:], strict=True):
        assert same(ours._asdict(), theirs._asdict())


class Boxed(Tensors):
    """Takes tensors, too."""

    def step(self, action):
        assert isinstance(action, torch.Tensor)
        return super().step(action.numpy())


class Listed(Boxed):
    """Last observations as Gymnasium's own classes give them."""

    def step(self, action):
        *rest, info = super().step(action)
        if info:
            info = {self.key: np.array([*self.state, None], object)[:-1]}
        return *rest, info


def test_tensors_of_a_vector_environment_stay_tensors(registered, env_spec):
    single = registered("Single-v0", entry_point=Walk)
    registered("Foreign-v0", entry_point=None, vector_entry_point=Boxed)
    env = make_device_env(env_spec("Foreign-v0"), 0, "cpu")
    expected = make_env(env_spec(single, vectorization_mode="sync"), 0)
    assert torch.equal(env.reset(), torch.from_numpy(expected.reset()))
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.integers(0, 3, env.num_envs)
        ours, theirs = env.step(torch.from_numpy(action)), expected.step(action)
        for value, array in zip(ours[:5], theirs[:5], strict=True):
            assert torch.equal(value, torch.from_numpy(array))


def test_tensors_of_a_vector_environment_resume_with_new_episodes(registered, env_spec):
    registered("Foreign-v0", entry_point=None, vector_entry_point=Boxed)
    env = make_device_env(env_spec("Foreign-v0"), 0, "cpu")
    env.reset()
    env.step(torch.ones(3, dtype=torch.int64))
    other = make_device_env(env_spec("Foreign-v0"), 1, "cpu")
    assert not other.load_state_dict(env.state_dict())
    assert other.obs[:, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("creator", [Masked, NextStep], ids=["disabled", "next_step"])
def test_other_modes_have_their_steps_on_the_host(registered, env_spec, creator):
    registered("Foreign-v0", entry_point=None, vector_entry_point=creator)
    assert make_device_env(env_spec("Foreign-v0"), 0, "cpu") is None


def test_last_observations_on_the_host_are_refused_for_tensors(registered, env_spec):
    registered("Foreign-v0", entry_point=None, vector_entry_point=Listed)
    env = make_device_env(env_spec("Foreign-v0"), 0, "cpu")
    env.reset()
    action = torch.ones(3, dtype=torch.int64)
    for _ in range(GOAL - 1):
        env.step(action)
    with pytest.raises(LabError, match="final_obs in an info of Listed are no array"):
        env.step(action)


@pytest.mark.parametrize("mode", [None, "sync"])
def test_copies_have_a_step_limit_that_their_vector_environment_cannot_have(
    build, registered, mode
):
    registered("Foreign-v0", entry_point=None, vector_entry_point=Walks)
    env = build("Foreign-v0", max_t=4, vectorization_mode=mode)
    steps = steps_of(env)[1:]
    lengths = [s.finished.episode_length.max() for s in steps if s.finished]
    assert max(lengths) == 4


class Forgetful(Walks):
    def step(self, action):
        return *super().step(action)[:4], {}


class Deaf(Masked):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


@pytest.mark.parametrize(
    ("creator", "message"),
    [
        (Forgetful, "Forgetful ended an episode without final_obs in its info"),
        (Deaf, "Deaf is in autoreset mode DISABLED, and its reset with options"),
    ],
)
def test_a_promise_that_is_not_kept_is_one_line(build, registered, creator, message):
    name = registered("Foreign-v0", entry_point=Walk, vector_entry_point=creator)
    env = build(name)
    with pytest.raises(LabError, match=message):
        steps_of(env)


class FourResults(Walks):
    def step(self, action):
        return super().step(action)[:4]


class NoInfos(Walks):
    def step(self, action):
        return *super().step(action)[:4], None


class OneReward(Walks):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, reward[:1], *rest


class ScalarReward(Walks):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs, 1.0, *rest


class NoEnds(Walks):
    def step(self, action):
        obs, reward, _, *rest = super().step(action)
        return obs, reward, None, *rest


class FewLastObservations(Walks):
    def step(self, action):
        *results, info = super().step(action)
        return *results, {key: rows[:0] for key, rows in info.items()}


MALFORMED = [
    (FourResults, "returned 4 results; it must return observations, rewards, "),
    (NoInfos, "returned infos of the type NoneType; return a dict"),
    (OneReward, r"returned rewards of the shape \(1,\); it must return an array of "),
    (ScalarReward, "returned 1.0 as rewards; it must return an array of the shape "),
    (NoEnds, "returned None as terminations; it must return an array of the shape "),
    (FewLastObservations, "the final_obs in an info of FewLastObs.* has too few rows"),
]


@pytest.mark.parametrize(("creator", "message"), MALFORMED)
def test_results_of_another_form_are_one_line(build, registered, creator, message):
    name = registered("Foreign-v0", entry_point=Walk, vector_entry_point=creator)
    env = build(name, num_envs=2)
    with pytest.raises(LabError, match=message):
        steps_of(env)


@pytest.mark.parametrize(("creator", "message"), MALFORMED[:1] + MALFORMED[3:])
def test_they_are_of_one_copy_too(registered, env_spec, creator, message):
    name = registered("Foreign-v0", entry_point=None, vector_entry_point=creator)
    with pytest.raises(LabError, match=message):
        steps_of(make_env(env_spec(name, vectorization_mode="sync"), 1))


class OneRewardTensor(Boxed):
    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, reward[:1], *rest


def test_they_are_of_tensors_too(registered, env_spec):
    registered("Foreign-v0", entry_point=None, vector_entry_point=OneRewardTensor)
    env = make_device_env(env_spec("Foreign-v0"), 0, "cpu")
    env.reset()
    with pytest.raises(LabError, match=r"returned rewards of the shape \(1,\)"):
        env.step(torch.zeros(3, dtype=torch.int64))


class Columns(Walks):
    """Rewards and ends as columns of numbers, as some simulators return them."""

    def step(self, action):
        obs, *columns, info = super().step(action)
        return obs, *(np.float32(column)[:, None] for column in columns), info


def test_columns_of_numbers_are_rewards_and_ends(build, registered):
    steps = []
    for number, creator in enumerate((Walks, Columns)):
        name = registered(
            f"Foreign-v{number}", entry_point=Walk, vector_entry_point=creator
        )
        steps.append(steps_of(build(name)))
    assert same(*steps)


def test_an_unknown_argument_of_a_vector_environment_is_refused(
    assert_refused, registered
):
    registered("Foreign-v0", entry_point=None, vector_entry_point=Walks)
    assert_refused("Foreign-v0", "env.wind = 3: …", wind=3)
