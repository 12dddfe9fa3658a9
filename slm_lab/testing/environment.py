"""The contract of an environment: what a training, a repeat and a resume ask of it."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.vector.utils import batch_space

from slm_lab.core.types import Array
from slm_lab.env.check import check_env
from slm_lab.env.make import make_env, make_one
from slm_lab.env.vector_env import Step, VectorEnv
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.testing.contract import Contract
from slm_lab.testing.play import same, saved
from slm_lab.testing.sessions import global_generators, poison_global_generators


@dataclass(frozen=True)
class EnvironmentCase:
    """An `env` block, such as `{"name": "CartPole-v1", "max_t": 45}`. Episodes must end
    within `steps`; a small `max_t` sees to that."""

    block: dict[str, Any]
    """The keys of `env`; by default three environments."""
    steps: int = 100
    """Vector steps of each test."""
    is_random: bool = True
    """Whether the seed changes the first observations."""
    exact_state: bool = False
    """Whether a restored episode continues exactly. That needs a row of
    `slm_lab.env.state.ENV_ADAPTERS`."""

    def spec(self, **keys: Any) -> EnvSpec:
        """The environments: three of them, with other `keys`."""
        defaults = {"num_envs": 3, "max_frame": 1000}
        return EnvSpec.model_validate({**defaults, **self.block, **keys})

    def make(self, seed: int, **keys: Any) -> VectorEnv:
        """The environments, seeded, not reset yet."""
        return make_env(self.spec(**keys), seed)

    def actions(self, env: VectorEnv, count: int, seed: int = 0) -> list[Array]:
        """Random actions for so many steps."""
        space = batch_space(env.action_space, env.num_envs)
        space.seed(seed)
        return [np.asarray(space.sample()) for _ in range(count)]

    def trajectory(self, seed: int, **keys: Any) -> list[Array]:
        """All that environments return, from the first reset on."""
        with closing(self.make(seed, **keys)) as env:
            arrays = [env.reset()]
            arrays += played(env, self.actions(env, self.steps))
            return arrays


def played(env: VectorEnv, actions: Sequence[Array]) -> list[Array]:
    """All that environments return to these actions."""
    arrays: list[Array] = []
    for action in actions:
        step = env.step(action)
        arrays += step[:5]
        arrays += step.finished or ()
    return arrays


class EnvironmentContract(Contract):
    """The tests that every environment passes. `cases` are `EnvironmentCase`s."""

    cases: ClassVar[dict[str, EnvironmentCase]]

    @pytest.fixture
    def env(self, case: EnvironmentCase) -> Iterator[VectorEnv]:
        """Environments of the case, closed after the test."""
        with closing(case.make(seed=1)) as env:
            yield env

    def test_its_block_is_accepted(self, case: EnvironmentCase) -> None:
        problems = "; ".join(map(str, check_env(case.spec())))
        assert not problems, f"`slm-lab spec check` refuses it: {problems}"

    def test_gymnasium_accepts_it(self, case: EnvironmentCase) -> None:
        env, _ = make_one(case.spec())
        with closing(env), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                env_checker.check_env(env.unwrapped, skip_render_check=True)
            except Exception as error:
                reason = " ".join(str(error).split())
                raise AssertionError(
                    "gymnasium.utils.env_checker refuses it; mend its interface: "
                    f"{reason}"
                ) from error

    def test_what_it_returns_has_the_shapes_and_types_of_its_space(
        self, case: EnvironmentCase, env: VectorEnv
    ) -> None:
        space = env.observation_space
        env.reset()
        for action in case.actions(env, case.steps):
            step = env.step(action)
            for obs in (step.obs, step.next_obs):
                assert obs.shape == (env.num_envs, *(space.shape or ())), (
                    f"observations have the shape {obs.shape[1:]}, the space "
                    f"{space.shape}: return what observation_space says"
                )
                assert obs.dtype == space.dtype, (
                    f"observations have the type {obs.dtype}, the space {space.dtype}"
                    ": return what observation_space says"
                )
                assert np.isfinite(obs).all(), (
                    "an observation is NaN or infinite: keep the state finite"
                )
            assert np.isfinite(step.reward).all(), (
                "a reward is NaN or infinite: return finite numbers"
            )

    def test_episodes_end_and_the_next_ones_begin_in_the_same_step(
        self, case: EnvironmentCase, env: VectorEnv
    ) -> None:
        env.reset()
        length = np.zeros(env.num_envs, np.int64)
        ended = 0
        for action in case.actions(env, case.steps):
            step = env.step(action)
            length += 1
            self.check_ends(step, length)
            if step.finished is not None:
                ended += len(step.finished.env_index)
                length[step.finished.env_index] = 0
        assert ended, (
            f"no episode ended in {case.steps} steps: give the case a smaller max_t, "
            "or more steps"
        )

    def check_ends(self, step: Step, length: Array) -> None:
        """Checks the ends of episodes whose `length` (N,) counts the steps so far."""
        finished = step.finished
        done = step.terminated | step.truncated
        if finished is None:
            return
        assert done[finished.env_index].all(), (
            "an episode was counted that neither terminated nor was truncated: return "
            "one of the two with its last step"
        )
        assert (finished.episode_length == length[finished.env_index]).all(), (
            f"episodes of {length[finished.env_index]} steps are counted as "
            f"{finished.episode_length}: a vector version must reset in the same step "
            "(AutoresetMode.SAME_STEP)"
        )

    def test_the_seed_decides_all_it_does(self, case: EnvironmentCase) -> None:
        first = case.trajectory(5)
        assert same(case.trajectory(5), first), (
            "two runs of one seed differ: draw from self.np_random only, and set all "
            "state in reset()"
        )
        if case.is_random:
            assert not same(case.trajectory(6)[:1], first[:1]), (
                "runs of two seeds begin alike: call super().reset(seed=seed) and draw "
                "from self.np_random, or say is_random=False"
            )

    def test_the_environments_of_one_seed_differ_from_each_other(
        self, case: EnvironmentCase, env: VectorEnv
    ) -> None:
        if not case.is_random:
            pytest.skip("the case says is_random=False")
        actions = case.actions(env, case.steps)
        parts = [env.reset(), *(env.step(action).obs for action in actions)]
        rows = np.stack(parts, 1).reshape(env.num_envs, -1)
        assert len(np.unique(rows, axis=0)) == env.num_envs, (
            "environments with different seeds do the same: draw from self.np_random"
        )

    def test_it_uses_no_global_generator(self, case: EnvironmentCase) -> None:
        trajectories = []
        for poison in (1, 2):
            poison_global_generators(poison)
            before = global_generators()
            trajectories.append(case.trajectory(0))
            assert global_generators() == before, (
                "it drew from a global generator of Python, NumPy or torch: draw from "
                "self.np_random"
            )
        assert same(*trajectories), (
            "what it does depends on a global generator: draw from self.np_random"
        )

    def test_in_processes_of_their_own_they_do_the_same(
        self, case: EnvironmentCase
    ) -> None:
        alone = case.trajectory(4, vectorization_mode="sync")
        assert same(case.trajectory(4, vectorization_mode="async"), alone), (
            "in a process of its own it does something else: keep no state in its "
            "module or class"
        )

    @pytest.mark.parametrize("steps_before", [0, 17, 60])
    def test_a_restored_one_continues(
        self, case: EnvironmentCase, env: VectorEnv, steps_before: int
    ) -> None:
        assert env.exact_state == case.exact_state, (
            f"its state can{'' if env.exact_state else 'not'} be saved exactly, the "
            f"case says exact_state={case.exact_state}: give it a row of "
            "slm_lab.env.state.ENV_ADAPTERS, or correct the case"
        )
        env.reset()
        played(env, case.actions(env, steps_before, seed=1))
        state = saved(env.state_dict())
        with closing(case.make(seed=2)) as first, closing(case.make(seed=3)) as second:
            goes_on = first.load_state_dict(copy.deepcopy(state))
            second.load_state_dict(copy.deepcopy(state))
            assert goes_on == case.exact_state
            actions = case.actions(env, case.steps, seed=2)
            restored = [first.obs, *played(first, actions)]
            if case.exact_state:
                expected = [env.obs, *played(env, actions)]
            else:
                expected = [second.obs, *played(second, actions)]
            assert same(restored, expected), (
                f"restored after {steps_before} steps it does something else: its "
                "adapter must save every attribute that a later step depends on, and "
                "np_random must be its only generator"
            )

    def test_saving_changes_nothing_and_the_state_does_not_change(
        self, case: EnvironmentCase, env: VectorEnv
    ) -> None:
        with closing(case.make(seed=1)) as undisturbed:
            undisturbed.reset()
            env.reset()
            actions = case.actions(env, case.steps)
            state = env.state_dict()
            kept = copy.deepcopy(state)
            expected = played(undisturbed, actions)
            assert same(played(env, actions), expected), (
                "saving its state changed what it does: only read it in the adapter"
            )
            assert same(state, kept), (
                "a saved state changed with later steps: its adapter must return copies"
            )
