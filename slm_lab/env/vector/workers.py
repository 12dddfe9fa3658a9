"""Environments in worker processes, with observations in shared memory."""

import functools
import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.process import STOP_SIGNALS, die_with_parent, start_resource_tracker
from slm_lab.core.types import Array, StateDict
from slm_lab.env.interface import Env, checked_reset, checked_step, first_reset, first_step
from slm_lab.env.state import has_exact_state, load_env_state, save_env_state
from slm_lab.env.vector.raw import CONTINUES, NUMBERS, reset_failure_note, step_failure_note

START_METHOD = "forkserver"
"""fork would copy locks of the parent's threads; spawn would import everything again."""

PRELOADED = ["slm_lab.core.dies_with_parent", __name__]
"""The modules that the fork server imports, for all workers and for itself."""

ERROR_TIMEOUT = 10.0
"""Seconds to wait for the exception of a worker that reported a failure."""

DEATH_TIMEOUT = 0.5
"""Seconds until a worker with a broken pipe has an exit code."""


class Stateful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the parent access to the state of a worker's environment. `reset` and `step` raise
    LabError as those of `SyncEnvs`. Infos keep only what the lab reads: Gymnasium joins them in
    arrays, and fails for values of different shapes."""

    def __init__(self, env: Env, index: int) -> None:
        super().__init__(env)
        self._index = index
        self._first = True

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        try:
            if self._first:
                obs, info = first_reset(self.env, seed)
            else:
                obs, info = checked_reset(self.env, self.env.reset(seed=seed))
        except Exception as error:
            error.add_note(reset_failure_note(str(self.env), self._index))
            raise
        return obs, {CONTINUES: info[CONTINUES]} if CONTINUES in info else {}

    @override
    def step(self, action: Any) -> tuple[Any, ...]:
        if self._first:
            *result, info = first_step(self.env, action)
        else:
            *result, info = checked_step(self.env, self.env.step(action))
        self._first = False
        return *result, {NUMBERS: info[NUMBERS]} if NUMBERS in info else {}

    def lab_has_exact_state(self) -> bool:
        """Whether the environment can be saved exactly."""
        return has_exact_state(self.env)

    def lab_save_state(self) -> StateDict:
        """The generator, and the running episode if it can be saved exactly."""
        return save_env_state(self.env)

    def lab_load_state(self, states: list[StateDict]) -> None:
        """Restores this environment from the states of all."""
        load_env_state(self.env, states[self._index])


class Workers(AsyncVectorEnv):
    """Gymnasium's AsyncVectorEnv; its exceptions name the environment that failed. The workers
    ignore Ctrl-C and SIGTERM: this process decides what to do. If a call is interrupted, `close`
    kills them, because their next replies are undefined. If this process dies, the kernel kills the
    fork server and so the workers (Linux)."""

    def __init__(self, make_one: Callable[[], Env], num_envs: int) -> None:
        forkserver.set_forkserver_preload(PRELOADED)
        start_resource_tracker()
        self._action: Array | None = None
        self._in_call = True
        self.processes = []
        parent = os.getpid()
        make = [functools.partial(_make_stateful, make_one, i, parent) for i in range(num_envs)]
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            super().__init__(
                make, copy=False, context=START_METHOD, autoreset_mode=AutoresetMode.SAME_STEP
            )
        except BaseException:
            _kill(self.processes)
            raise
        finally:
            self._unblock_signals()
        # Python would end its children with SIGTERM, which these ignore, and wait for them.
        Finalize(self, _kill, args=(self.processes,), exitpriority=0)

    @override
    def _check_spaces(self) -> None:
        # Here AsyncVectorEnv.__init__ has started all workers and begins to wait for them.
        self._unblock_signals()
        check_spaces: Callable[[], None] = super()._check_spaces  # untyped in Gymnasium
        with self._call():
            check_spaces()

    def _unblock_signals(self) -> None:
        """Restores the signal mask once all workers are registered. Before that, Ctrl-C would leave
        an unregistered worker. The workers inherit the mask and remove it when they are ready for
        signals."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """The context of a call to the workers. `_in_call` stays True if it is interrupted. Raises
        LabError if a worker has died."""
        self._in_call = True
        try:
            yield
        except (EOFError, ConnectionError) as error:
            if self.closed:  # the environment's own error, see `_raise_if_errors`
                raise
            raise LabError(self._death_notice()) from error
        self._in_call = False

    @override
    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        with self._call():
            return super().reset(seed=seed, options=options)

    @override
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        with self._call():
            return super().call(name, *args, **kwargs)

    @override
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        self._action = actions  # for the message of a failure
        with self._call():
            return super().step(actions)

    @override
    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Lets the workers close their environments; kills them if a call was interrupted."""
        try:
            if not (terminate or self._in_call):
                super().close_extras(timeout)
        except (EOFError, OSError):
            pass  # a worker has died since
        finally:
            _kill(self.processes)
            for pipe in self.parent_pipes:
                pipe.close()

    def _death_notice(self) -> str:
        """Kills the other workers; returns which ones died and how."""
        for process in self.processes:
            process.join(DEATH_TIMEOUT / len(self.processes))
        dead = [(i, p.exitcode) for i, p in enumerate(self.processes) if p.exitcode is not None]
        self.close(terminate=True)
        return "; ".join(
            f"the worker process of environment {index} died with exit code {code}"
            f"{', often because no memory is left' if code == -signal.SIGKILL else ''}"
            for index, code in dead
        )

    @override
    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Keeps the index and the worker's traceback, which Gymnasium's version loses."""
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed:
            return
        try:
            index, error_type, error, trace = self.error_queue.get(timeout=ERROR_TIMEOUT)
        except queue.Empty:
            raise LabError(f"environment {failed[0]} failed without an error message") from None
        self.close(terminate=True)
        if not isinstance(error, Exception):
            error = error_type(error)
        if self._action is not None:
            error.add_note(step_failure_note("in a worker process", index, self._action))
        error.add_note(f"the worker's own traceback:\n{trace}")
        raise error


def _make_stateful(make_one: Callable[[], Env], index: int, parent: int) -> Env:
    """The environment of one worker. The `parent` makes one too, for its spaces."""
    if os.getpid() != parent:
        die_with_parent(os.getppid())
        for number in STOP_SIGNALS:
            # Not SIG_IGN: programs of an environment would inherit it.
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    return Stateful(make_one(), index)


def _kill(processes: Sequence[BaseProcess]) -> None:
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()
