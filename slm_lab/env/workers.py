"""Environments in processes of their own, with observations in shared memory."""

import functools
import multiprocessing
import queue
from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, StateDict
from slm_lab.env.state import has_exact_state, load_env_state, save_env_state
from slm_lab.env.sync import step_failure_note

START_METHOD = "forkserver"
"""fork would copy the locks of whatever threads the parent has; spawn imports everything anew"""

ERROR_TIMEOUT = 10.0
"""seconds to wait for the exception of a worker that has reported a failure"""

DEATH_TIMEOUT = 0.5
"""seconds until a worker whose pipe broke has an exit code"""


class Stateful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets the parent ask a worker for the state of its environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index

    def lab_has_exact_state(self) -> bool:
        """See `state.has_exact_state`."""
        return has_exact_state(self.env)

    def lab_save_state(self) -> StateDict:
        """See `state.save_env_state`."""
        return save_env_state(self.env)

    def lab_load_state(self, states: list[StateDict]) -> None:
        """Takes its own one of the states of all environments."""
        load_env_state(self.env, states[self._index])


class Workers(AsyncVectorEnv):
    """Gymnasium's AsyncVectorEnv, whose exceptions say which environment failed and how."""

    def __init__(
        self,
        make_one: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        autoreset_mode: AutoresetMode,
    ) -> None:
        multiprocessing.get_context(START_METHOD).set_forkserver_preload([__name__])
        self._action: Array | None = None
        super().__init__(
            [functools.partial(_make_stateful, make_one, index) for index in range(num_envs)],
            copy=False,
            context=START_METHOD,
            autoreset_mode=autoreset_mode,
        )

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See AsyncVectorEnv; remembers the actions for the message of a failure."""
        self._action = actions
        try:
            return super().step(actions)
        except (EOFError, ConnectionError) as error:
            raise LabError(self._death_notice()) from error

    def _death_notice(self) -> str:
        """Ends the other workers and says which one died and how."""
        for process in self.processes:
            process.join(DEATH_TIMEOUT / len(self.processes))
        dead = [(i, p.exitcode) for i, p in enumerate(self.processes) if p.exitcode is not None]
        self._state = AsyncState.DEFAULT
        self.close(terminate=True)
        return "; ".join(
            f"the worker process of environment {index} died with exit code {code}"
            for index, code in dead
        )

    def has_exact_state(self) -> bool:
        """Whether every worker can save its environment exactly."""
        return all(self.call("lab_has_exact_state"))

    def save_states(self) -> list[StateDict]:
        """One state per environment."""
        return list(self.call("lab_save_state"))

    def load_states(self, states: list[StateDict]) -> None:
        """Restores `save_states`."""
        self.call("lab_load_state", states)

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Replaces Gymnasium's version, which loses the index and the worker's traceback."""
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed:
            return
        try:
            index, error_type, error, trace = self.error_queue.get(timeout=ERROR_TIMEOUT)
        except queue.Empty:
            raise LabError(f"environment {failed[0]} failed without saying why") from None
        self._state = AsyncState.DEFAULT  # nothing to wait for any more
        self.close(terminate=True)
        if not isinstance(error, Exception):
            error = error_type(error)
        if self._action is not None:
            error.add_note(step_failure_note("in a worker process", index, self._action))
        error.add_note(f"the worker's own traceback:\n{trace}")
        raise error


def _make_stateful(
    make_one: Callable[[], gymnasium.Env[Any, Any]], index: int
) -> gymnasium.Env[Any, Any]:
    return Stateful(make_one(), index)
