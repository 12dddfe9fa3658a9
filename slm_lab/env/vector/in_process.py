"""N Gymnasium environments stepped one after another in this process."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from slm_lab.core.types import Array, StateDict
from slm_lab.env.changing import FrameClock, follow_clock
from slm_lab.env.convert.nested import COMPOSITE, element
from slm_lab.env.failure import close_all
from slm_lab.env.interface import (
    Env,
    checked_reset,
    checked_step,
    first_reset,
    first_step,
)
from slm_lab.env.state import has_exact_state, load_env_state, save_env_state
from slm_lab.env.vector.raw import (
    CONTINUES,
    NUMBERS,
    RESETTING,
    CopyMarks,
    RawEnvs,
    RawStep,
    marks_in,
    reset_failure_note,
    seeds_after,
    step_failure_note,
)

NUMBER = frozenset({float, int, np.float64, np.float32})
TRUTH = frozenset({bool, np.bool_})
"""The usual types of rewards, and of the two endings. Others are checked."""


class SyncEnvs(RawEnvs):
    """A loop over `gymnasium.Env` objects that writes into arrays.

    Ended episodes are reset after all environments have stepped. Each environment has
    its own generator, so the order does not matter. Of infos only `CONTINUES` and
    `NUMBERS` are read.

    Every reset and step raises LabError if a result breaks Gymnasium's interface, or
    its observation is not in the space. A result that fits as it is costs nothing."""

    def __init__(
        self, envs: Sequence[Env], seeds: Sequence[int], marks: CopyMarks | None = None
    ) -> None:
        """The copies are RESETTING in `marks` while they reset."""
        self.num_envs = len(envs)
        self.observation_space = envs[0].observation_space
        self.action_space = envs[0].action_space
        self._is_nested = isinstance(self.action_space, COMPOSITE)
        self.exact_state = has_exact_state(envs[0])
        self.envs = list(envs)
        self._marks = marks_in(marks, len(envs))
        self._clock = FrameClock()
        for env in envs:
            follow_clock(env, self._clock)
        self._env_steps: list[Callable[..., Any]] = [
            partial(first_step, env) for env in envs
        ]
        self._first = True
        """Whether the next step is the first, whose results are checked."""
        self._first_seeds = list(seeds)
        self._seeds: list[int | None] | None = [*seeds]
        self._steps = 0
        self._obs_shape = (self.num_envs, *(self.observation_space.shape or ()))
        self._obs_dtype = self.observation_space.dtype

    @override
    def set_frame(self, frame: int) -> None:
        self._clock.value = frame

    @override
    def reset(self) -> Array:
        seeds = self._seeds
        if seeds is None:
            seeds = [None] * self.num_envs
        self._seeds = None
        obs = np.empty(self._obs_shape, self._obs_dtype)
        for index, (env, seed) in enumerate(zip(self.envs, seeds, strict=True)):
            obs[index], _ = self._begin(index, partial(first_reset, env, seed))
        return obs

    @override
    def step(self, action: Any) -> RawStep:
        actions = action
        if self._is_nested:
            space = self.action_space
            actions = [element(space, action, i) for i in range(self.num_envs)]
        obs = np.empty(self._obs_shape, self._obs_dtype)
        reward = np.empty(self.num_envs)
        terminated = np.empty(self.num_envs, np.bool_)
        truncated = np.empty(self.num_envs, np.bool_)
        infos: list[Any] = [None] * self.num_envs
        shape = self._obs_shape[1:]
        dtype = self._obs_dtype
        index = 0
        try:
            for env_step in self._env_steps:
                result = env_step(actions[index])
                try:
                    row, number, ended, cut, info = result
                    is_plain = (
                        row.dtype is dtype
                        and row.shape == shape
                        and number.__class__ in NUMBER
                        and ended.__class__ in TRUTH
                        and cut.__class__ in TRUTH
                        and info.__class__ is dict
                    )
                except (AttributeError, TypeError, ValueError):
                    is_plain = False
                if not is_plain:
                    result = checked_step(self.envs[index], result)
                (
                    obs[index],
                    reward[index],
                    terminated[index],
                    truncated[index],
                    infos[index],
                ) = result
                index += 1
        except BaseException as error:
            name = str(self.envs[index])
            note = step_failure_note(name, index, self.num_envs, actions[index])
            error.add_note(note)
            raise
        self._steps += 1
        if self._first:
            self._first = False
            self._env_steps = [env.step for env in self.envs]
        done = terminated | truncated
        step = RawStep(obs, reward, terminated, truncated)
        if not np.count_nonzero(done):
            return step
        done_index = done.nonzero()[0]
        final_obs = obs[done_index]
        over = np.ones(len(done_index), np.bool_)
        for k, i in enumerate(done_index):
            # a default seed of its own would repeat one episode
            obs[i], info = self._begin(int(i), partial(self.envs[i].reset, seed=None))
            over[k] = not info.get(CONTINUES, False)
        has_any = NUMBERS in infos[done_index[0]]
        numbers = None
        if has_any:
            numbers = np.stack([infos[i][NUMBERS] for i in done_index])
        return step._replace(
            done_index=done_index,
            final_obs=final_obs,
            over=over,
            info=numbers,
        )

    def _begin(self, index: int, reset: Callable[[], Any]) -> tuple[Array, Any]:
        """The checked result of a `reset` of one environment."""
        self._marks[index] = RESETTING
        try:
            result = checked_reset(self.envs[index], reset())
        except BaseException as error:
            error.add_note(reset_failure_note(str(self.envs[index]), index))
            raise
        self._marks[index] = 0
        return result

    @override
    def state_dict(self) -> StateDict:
        return {
            "envs": [save_env_state(env) for env in self.envs],
            "steps": self._steps,
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        pairs = zip(self.envs, state["envs"], strict=True)
        restored = [load_env_state(env, env_state) for env, env_state in pairs]
        self._steps = state.get("steps", 0)
        self._seeds = seeds_after(restored, [*self._first_seeds, self._steps])

    @override
    def close(self) -> None:
        close_all([env.close for env in self.envs], str(self.envs[0]))
