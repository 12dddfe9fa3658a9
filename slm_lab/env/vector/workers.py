"""Environments in worker processes, with observations in shared memory."""

import functools
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawValue
from multiprocessing.util import Finalize
from traceback import clear_frames
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.process import (
    STOP_SIGNALS,
    claim_temporary_folder,
    die_with_parent,
    exit_reason,
    kill_descendants,
    kill_with_children,
    main_module_hidden,
    safe_path,
    seed_global_generators,
    start_resource_tracker,
)
from slm_lab.core.text import bounded, error_text, one_line
from slm_lab.core.types import Array, StateDict
from slm_lab.env.changing import FrameClock, follow_clock
from slm_lab.env.convert.nested import element
from slm_lab.env.failure import (
    EnvironmentFailedError,
    as_exception,
    raise_if_exit,
    signal_ignored,
    warn_of_close,
)
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
    STEPPING,
    CopyMarks,
    marks_in,
    reset_failure_note,
    step_failure_note,
)

START_METHOD = "forkserver"
"""fork would copy locks of the parent's threads; spawn would import everything
again."""

PRELOADED = ["slm_lab.core.dies_with_parent", __name__]
"""The modules that the fork server imports, for all workers and for itself."""

DEATH_TIMEOUT = 10.0
"""Seconds until a worker with a broken pipe has an exit code. The fork server reports
it, and may wait for a core."""

MORE_DEATHS_TIMEOUT = 0.1
"""Seconds for the exit codes of other workers that died at the same time."""


class FailureReport(NamedTuple):
    """A worker's report of an exception: its text, because some exceptions cannot be
    pickled."""

    text: str
    is_of_lab: bool
    """Whether it is a LabError, whose text is its message; else it is the traceback."""
    env: str
    """The environment in its wrappers."""
    in_reset: bool
    """Whether it was raised by `reset`."""


class Reporting:
    """Stands in a worker for Gymnasium's queue of errors. The queue's locks have names
    in the file system, which a killed process leaves there. An error travels through
    the worker's own pipe."""

    def __init__(self, pipe: Connection, env: "Stateful | None") -> None:
        self._pipe = pipe
        self._env = env

    def put(self, failure: tuple[int, type[BaseException], BaseException, str]) -> None:
        """Answers a call by its failure, then by the report, which `_raise_if_errors`
        receives."""
        _, _, error, _ = failure
        is_of_lab = isinstance(error, LabError)
        text = bounded(str(error)) if is_of_lab else error_text(error)
        name = "in its constructor"
        if self._env is not None:
            name = str(self._env.env)
        in_reset = self._env is not None and self._env.in_reset
        self._pipe.send((None, False))
        self._pipe.send(FailureReport(text, is_of_lab, bounded(name), in_reset))


def run_worker(
    marks: CopyMarks | None,
    clock: FrameClock,
    index: int,
    make: "Callable[[], Stateful]",
    pipe: Connection,
    parent_pipe: Connection,
    observations: Any,
    _queue: Any,
    autoreset_mode: AutoresetMode,
    *semaphore: None,
) -> None:
    """The target of a worker: Gymnasium's, but a failing constructor is reported, too.
    The shared `marks` show what the copy does, and its arguments follow the shared
    `clock`. It ends without a word if the process that it works for has died. In any
    case it kills at its end what the environment has started. Gymnasium passes a
    `semaphore` from 1.4 on."""
    more = {"semaphore": None} if semaphore else {}
    with suppress(BrokenPipeError, ConnectionResetError, EOFError):
        try:
            env = make()
        except BaseException as error:
            pipe.recv()  # the first call, which the report answers
            Reporting(pipe, None).put((index, type(error), as_exception(error), ""))
        else:
            env.show_in(marks)
            follow_clock(env, clock)
            _async_worker(
                index,
                env_fn=lambda: env,
                pipe=pipe,
                parent_pipe=parent_pipe,
                shared_memory=observations,
                error_queue=Reporting(pipe, env),  # type: ignore[arg-type]
                autoreset_mode=autoreset_mode,
                **more,
            )
    kill_descendants()


class Stateful(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gives the parent access to the state of a worker's environment. `reset` and
    `step` raise LabError as `SyncEnvs` does. Infos keep only what the lab reads:
    Gymnasium joins them in arrays, and fails for values of different shapes."""

    def __init__(self, env: Env, index: int) -> None:
        super().__init__(env)
        self._index = index
        self._marks = marks_in(None, index + 1)
        self._first = True
        self._is_closed = False
        self.in_reset = False
        """Whether a reset has begun and has not ended."""

    def show_in(self, marks: CopyMarks | None) -> None:
        """Lets `marks` show what this copy does."""
        self._marks = marks_in(marks, self._index + 1)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self.in_reset = True
        self._marks[self._index] = RESETTING
        try:
            if self._first:
                obs, info = first_reset(self.env, seed)
            else:
                obs, info = checked_reset(self.env, self.env.reset(seed=seed))
        except BaseException as error:
            raise_if_exit(error)
            raise
        self._marks[self._index] = 0
        self.in_reset = False
        return obs, {CONTINUES: info[CONTINUES]} if CONTINUES in info else {}

    @override
    def step(self, action: Any) -> tuple[Any, ...]:
        self._marks[self._index] = STEPPING
        try:
            if self._first:
                *result, info = first_step(self.env, action)
            else:
                *result, info = checked_step(self.env, self.env.step(action))
        except BaseException as error:
            raise_if_exit(error)
            raise
        self._marks[self._index] = 0
        self._first = False
        return *result, {NUMBERS: info[NUMBERS]} if NUMBERS in info else {}

    def lab_has_exact_state(self) -> bool:
        """Whether the environment can be saved exactly."""
        return has_exact_state(self.env)

    def lab_save_state(self) -> StateDict:
        """The generator, and the running episode if it can be saved exactly."""
        return save_env_state(self.env)

    def lab_load_state(self, states: list[StateDict]) -> bool:
        """Restores this environment from the states of all; see `load_env_state`."""
        return load_env_state(self.env, states[self._index])

    def lab_close(self) -> str | None:
        """Closes the environment, once; returns what it raised, if anything."""
        if self._is_closed:
            return None
        self._is_closed = True
        try:
            self.env.close()
        except BaseException as error:
            return one_line(error)
        return None

    @override
    def close(self) -> None:
        why = self.lab_close()
        if why is not None:
            warn_of_close(str(self.env), why)


class Workers(AsyncVectorEnv):
    """Gymnasium's AsyncVectorEnv; its exceptions name the environment that failed. The
    workers ignore Ctrl-C and SIGTERM: this process decides what to do. If a call is
    interrupted, `close` kills them, because their next replies are undefined. If this
    process dies, the kernel kills the fork server and so the workers (Linux). The
    global generators of Python, NumPy and torch are seeded in each worker, from
    `process_seed` and its index."""

    error_queue = property(lambda _: None, lambda _, queue: None)
    """Gymnasium's queue is dropped at once, and with it its named locks; see
    `Reporting`."""

    def __init__(
        self,
        makers: Sequence[Callable[[], Env]],
        process_seed: int = 0,
        marks: CopyMarks | None = None,
    ) -> None:
        forkserver.set_forkserver_preload(PRELOADED)
        claim_temporary_folder()
        start_resource_tracker()
        self.clock: Any = RawValue("q", 0)
        """The trial's clock, in memory that the workers see."""
        self._action: Any = None
        self._in_call = True
        self.processes = []
        parent = os.getpid()
        make = [
            functools.partial(
                _make_stateful,
                make_one,
                index,
                parent=parent,
                process_seed=process_seed,
            )
            for index, make_one in enumerate(makers)
        ]
        # Gymnasium's has fewer arguments
        worker: Any = functools.partial(run_worker, marks, self.clock)
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            with safe_path(), main_module_hidden():
                super().__init__(
                    make,
                    copy=False,
                    context=START_METHOD,
                    worker=worker,
                    autoreset_mode=AutoresetMode.SAME_STEP,
                )
        except BaseException:
            _kill(self.processes)
            raise
        finally:
            self._unblock_signals()
        # Python would end its children with SIGTERM, which these ignore, and wait for
        # them.
        Finalize(self, _kill, args=(self.processes,), exitpriority=0)

    @override
    def _check_spaces(self) -> None:
        # Here AsyncVectorEnv.__init__ has started all workers and begins to wait for
        # them.
        self._unblock_signals()
        check_spaces: Callable[[], None] = super()._check_spaces  # untyped in Gymnasium
        with self._call():
            check_spaces()

    def _unblock_signals(self) -> None:
        """Restores the signal mask once all workers are registered. Before that, Ctrl-C
        would leave an unregistered worker. The workers inherit the mask and remove it
        when they are ready for signals."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """The context of a call to the workers. `_in_call` stays True if it is
        interrupted. Raises LabError if a worker has died."""
        self._in_call = True
        try:
            yield
        except (EOFError, ConnectionError) as error:
            # Its frames have a view of what was sent. Python 3.12.1 crashes when it
            # collects one in a cycle (python/cpython#111049); 3.13 complains.
            clear_frames(error.__traceback__)
            raise LabError(self._death_notice()) from error
        self._in_call = False

    @override
    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Array, dict[str, Any]]:
        self._action = None
        with self._call():
            return super().reset(seed=seed, options=options)

    @override
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        with self._call():
            return super().call(name, *args, **kwargs)

    @override
    def step(self, actions: Any) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        self._action = actions  # for the message of a failure
        with self._call():
            return super().step(actions)

    @override
    def close_extras(
        self, timeout: float | None = None, terminate: bool = False
    ) -> None:
        """Lets the workers close their environments; kills them if a call was
        interrupted."""
        try:
            if not (terminate or self._in_call):
                failures = [why for why in super().call("lab_close") if why is not None]
                if failures:
                    warn_of_close(
                        f"{len(failures)} of {self.num_envs} copies", failures[0]
                    )
                super().close_extras(timeout)
        except (EOFError, OSError):
            pass  # a worker has died since
        finally:
            _kill(self.processes)
            for pipe in self.parent_pipes:
                pipe.close()

    def _death_notice(self) -> str:
        """Kills the other workers; returns which ones died and how."""
        wait([process.sentinel for process in self.processes], DEATH_TIMEOUT)
        for process in self.processes:
            process.join(MORE_DEATHS_TIMEOUT / len(self.processes))
        dead = [
            (i, p.exitcode)
            for i, p in enumerate(self.processes)
            if p.exitcode is not None
        ]
        self.close(terminate=True)
        if not dead:
            return "a worker process of the environments closed its connection"
        return "; ".join(
            f"the worker process of environment {index} died with exit code {code}"
            f"{', often because no memory is left' if code == -signal.SIGKILL else ''}"
            f"{exit_reason(code)}"
            for index, code in dead
        )

    @override
    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raises what the first worker that failed reports, with the copy and its
        action."""
        failed = [index for index, success in enumerate(successes) if not success]
        if not failed:
            return
        index = failed[0]
        report: FailureReport = self.parent_pipes[index].recv()
        self.close(terminate=True)
        where = f"in environment {index} of {self.num_envs} ({report.env})"
        if report.in_reset:
            where = reset_failure_note(report.env, index)
        elif self._action is not None:
            action = element(self.single_action_space, self._action, index)
            where = step_failure_note(report.env, index, self.num_envs, action)
        if report.is_of_lab:
            error = LabError(report.text)
            error.add_note(where)
            raise error
        raise EnvironmentFailedError(f"{report.text}\n{where}")


def _make_stateful(
    make_one: Callable[[], Env], index: int, parent: int, process_seed: int
) -> Stateful:
    """The environment of one worker. The `parent` makes one too, for its spaces."""
    if os.getpid() != parent:
        die_with_parent(os.getppid())
        for number in STOP_SIGNALS:
            signal.signal(number, signal_ignored)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        seed_global_generators(process_seed, index)
    return Stateful(make_one(), index)


def _kill(processes: Sequence[BaseProcess]) -> None:
    started = [process for process in processes if process.pid is not None]
    for process in started:
        kill_with_children(process)
    for process in started:
        process.join()
