"""Environments in processes of their own, with observations in shared memory."""

import functools
import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.process import STOP_SIGNALS, die_with_parent, unblock_stop_signals
from slm_lab.core.types import Array, StateDict
from slm_lab.env.interface import first_reset, first_step
from slm_lab.env.state import has_exact_state, load_env_state, save_env_state
from slm_lab.env.vector.in_process import step_failure_note

START_METHOD = "forkserver"
"""fork would copy the locks of whatever threads the parent has; spawn imports everything anew"""

PRELOADED = ["slm_lab.env.vector.fork_server", __name__]
"""what the fork server imports, for all workers and for itself"""

FORKED_FROM = os.getpid()
"""The process that has imported this module: as a forked worker sees it, the fork server"""


ERROR_TIMEOUT = 10.0
"""seconds to wait for the exception of a worker that has reported a failure"""

DEATH_TIMEOUT = 0.5
"""seconds until a worker whose pipe broke has an exit code"""


class Stateful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Lets the parent ask a worker for the state of its environment, and looks at what that returns
    from `reset` and from its first step."""

    def __init__(self, env: gymnasium.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index
        self._first = True

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Raises LabError where the environment returns what it must not."""
        return first_reset(self.env, seed)

    @override
    def step(self, action: Any) -> tuple[Any, ...]:
        """And `reset`."""
        if not self._first:
            return self.env.step(action)
        result = first_step(self.env, action)
        self._first = False
        return result

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
    """Gymnasium's AsyncVectorEnv, whose exceptions say which environment failed and how.

    The workers leave Ctrl-C and SIGTERM to this process, which often get the signal, too: it
    decides what is to be done. Where it breaks off in the middle of a call they are killed by
    `close`, because what they would answer next is not known any more. When it dies, the kernel
    kills the fork server and with it the workers, whatever they are doing (Linux).
    """

    def __init__(
        self,
        make_one: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        autoreset_mode: AutoresetMode,
    ) -> None:
        forkserver.set_forkserver_preload(PRELOADED)
        resource_tracker.ensure_running()  # the first start would launch it, and clear the mask
        self._action: Array | None = None
        self._in_call = True
        self.processes = []
        parent = os.getpid()
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            super().__init__(
                [
                    functools.partial(_make_stateful, make_one, index, parent)
                    for index in range(num_envs)
                ],
                copy=False,
                context=START_METHOD,
                autoreset_mode=autoreset_mode,
            )
        except BaseException:
            _kill(self.processes)
            raise
        finally:
            self._unblock_signals()
        self._in_call = False
        # Python ends its children with SIGTERM, which these do not mind, and waits for them.
        Finalize(self, _kill, args=(self.processes,), exitpriority=0)

    @override
    def _check_spaces(self) -> None:
        """Where AsyncVectorEnv.__init__ begins to wait for the workers, all of which are known."""
        self._unblock_signals()
        check_spaces: Callable[[], None] = super()._check_spaces  # Gymnasium has not typed it
        check_spaces()

    def _unblock_signals(self) -> None:
        """Ends the time in which a Ctrl-C would leave a worker that nobody knows of, and in which
        the workers are started with the same mask: they undo it when they can take it."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Around whatever the workers are asked and answer; that it broke off stays noted."""
        self._in_call = True
        yield
        self._in_call = False

    @override
    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """See AsyncVectorEnv."""
        with self._call():
            return super().reset(seed=seed, options=options)

    @override
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """See AsyncVectorEnv."""
        with self._call():
            return super().call(name, *args, **kwargs)

    @override
    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """See AsyncVectorEnv; remembers the actions for the message of a failure."""
        self._action = actions
        try:
            with self._call():
                return super().step(actions)
        except (EOFError, ConnectionError) as error:
            raise LabError(self._death_notice()) from error

    @override
    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Lets the workers close their environments; kills them where a call was broken off."""
        try:
            if not (terminate or self._in_call):
                super().close_extras(timeout)
        except (EOFError, OSError):
            pass  # one has died since: there is nothing to ask it any more
        finally:
            _kill(self.processes)
            for pipe in self.parent_pipes:
                pipe.close()

    def _death_notice(self) -> str:
        """Ends the other workers and says which one died and how."""
        for process in self.processes:
            process.join(DEATH_TIMEOUT / len(self.processes))
        dead = [(i, p.exitcode) for i, p in enumerate(self.processes) if p.exitcode is not None]
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

    @override
    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Replaces Gymnasium's version, which loses the index and the worker's traceback."""
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed:
            return
        try:
            index, error_type, error, trace = self.error_queue.get(timeout=ERROR_TIMEOUT)
        except queue.Empty:
            raise LabError(f"environment {failed[0]} failed without saying why") from None
        self.close(terminate=True)
        if not isinstance(error, Exception):
            error = error_type(error)
        if self._action is not None:
            error.add_note(step_failure_note("in a worker process", index, self._action))
        error.add_note(f"the worker's own traceback:\n{trace}")
        raise error


def _make_stateful(
    make_one: Callable[[], gymnasium.Env[Any, Any]], index: int, parent: int
) -> gymnasium.Env[Any, Any]:
    """The environment of one worker; the `parent` makes one, too, to look at its spaces."""
    if os.getpid() != parent:
        # Not just whose child it is by now: the fork server may have died before.
        die_with_parent(FORKED_FROM if os.getpid() != FORKED_FROM else os.getppid())
        for number in STOP_SIGNALS:
            # Not SIG_IGN: programs that an environment starts would inherit it.
            signal.signal(number, lambda *_: None)
        unblock_stop_signals()
    return Stateful(make_one(), index)


def _kill(processes: Sequence[BaseProcess]) -> None:
    """Ends those that still run."""
    started = [process for process in processes if process.pid is not None]
    for process in started:
        process.kill()
    for process in started:
        process.join()
