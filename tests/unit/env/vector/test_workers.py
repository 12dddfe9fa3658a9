"""Worker processes: how they are closed, and what a signal does to them."""

import functools
import os
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import closing, contextmanager
from multiprocessing import forkserver

import numpy as np
import psutil
import pytest

from slm_lab.core.errors import LabError
from slm_lab.core.process import STOP_SIGNALS
from slm_lab.core.text import error_summary
from slm_lab.env.failure import EnvironmentFailedError
from slm_lab.env.vector.workers import Workers
from tests.unit.env.vector.worker_envs import (
    Disconnected,
    Drawing,
    Killed,
    LockedError,
    Noting,
    Quit,
    Raising,
    SimulatorError,
    Starting,
)

HANGS = """
import numpy as np
from slm_lab.env.vector.workers import Workers
from tests.unit.env.vector.worker_envs import Hanging

if __name__ == "__main__":
    workers = Workers([Hanging] * 2)
    workers.reset()
    print(*(process.pid for process in workers.processes), sep="\\n", flush=True)
    workers.step(np.zeros(2, np.int64))
"""

LATE = """
import os

from slm_lab.env.vector.workers import Workers
from tests.unit.env.vector.worker_envs import MadeLate

if __name__ == "__main__":
    Workers([MadeLate(os.getpid())] * 2)
"""


@pytest.fixture
def workers(tmp_path):
    made = Workers([functools.partial(Noting, tmp_path)] * 2)
    (tmp_path / str(os.getpid())).unlink()  # of the one that it has looked at
    made.reset()
    yield made
    made.close()


def step(workers):
    return workers.step(np.zeros(2, np.int64))


def killed(workers, index):
    workers.processes[index].kill()
    workers.processes[index].join()


def closed(folder):
    return {int(path.name) for path in folder.iterdir()}


def test_closing_lets_every_environment_close_itself(workers, tmp_path):
    pids = {process.pid for process in workers.processes}
    step(workers)
    workers.close()
    assert closed(tmp_path) == pids
    assert not any(map(psutil.pid_exists, pids))


def test_an_interrupted_call_does_not_delay_closing(workers, tmp_path, monkeypatch):
    """Both answers are on their way, and one of them has been read."""

    def interrupted(*args):
        workers.parent_pipes[0].recv()
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "step_wait", interrupted)
    pids = {process.pid for process in workers.processes}
    with pytest.raises(KeyboardInterrupt):
        step(workers)
    workers.close()
    assert closed(tmp_path) == set()
    assert not any(map(psutil.pid_exists, pids))


def test_a_worker_that_has_died_does_not_keep_the_others_from_being_closed(workers):
    pids = [process.pid for process in workers.processes]
    killed(workers, 0)
    workers.close()
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.parametrize(
    "call", [Workers.reset, step, lambda workers: workers.call("started_program")]
)
def test_every_call_reports_a_worker_that_was_killed_before_it(workers, call):
    pids = [process.pid for process in workers.processes]
    killed(workers, 1)
    died = "the worker process of environment 1 died with exit code -9"
    with pytest.raises(LabError, match=f"^{died}, often because no memory is left$"):
        call(workers)
    assert not any(map(psutil.pid_exists, pids))


def test_the_error_about_a_dead_worker_keeps_no_view_of_what_was_sent(workers):
    """Python 3.12.1 crashes when it collects such a view in a cycle; 3.13 complains."""
    killed(workers, 0)
    with pytest.raises(LabError) as caught:
        step(workers)
    frames = traceback.walk_tb(caught.value.__cause__.__traceback__)
    kept = [value for frame, _ in frames for value in frame.f_locals.values()]
    assert not any(isinstance(value, memoryview) for value in kept)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            functools.partial(os._exit, 7),
            "exit code 7: its environment or a library called os",
        ),
        (
            functools.partial(os._exit, 1),
            "exit code 1: the error above, or its environment or a",
        ),
        (os.abort, "exit code -6: compiled code, such as a simulator's, has crashed"),
    ],
)
def test_the_exit_code_of_a_worker_tells_why_it_has_died(error, why):
    make = functools.partial(Raising, "step", error)
    with closing(Workers([make])) as workers:
        workers.reset()
        with pytest.raises(
            LabError, match=f"^the worker process of environment 0 died with {why}"
        ):
            workers.step(np.zeros(1, np.int64))


def test_an_exit_code_that_a_busy_machine_reports_late_is_waited_for():
    make = functools.partial(Raising, "step", functools.partial(os._exit, 7))
    with closing(Workers([make] * 2)) as workers:
        workers.reset()
        # It collects the exit codes of the workers.
        fork_server = forkserver._forkserver._forkserver_pid
        os.kill(fork_server, signal.SIGSTOP)
        late = threading.Timer(1.0, os.kill, (fork_server, signal.SIGCONT))
        late.start()
        with pytest.raises(LabError, match="of environment 0 died with exit code 7"):
            step(workers)
        late.join()


def test_a_worker_that_is_killed_while_its_environment_is_made_is_reported(tmp_path):
    with pytest.raises(
        LabError, match=r"process of environment . died with exit code -9"
    ):
        Workers([functools.partial(Killed, os.getpid(), tmp_path)] * 2)


@pytest.mark.parametrize("error", [ConnectionError, ConnectionResetError, EOFError])
def test_a_lost_connection_of_an_environment_is_not_taken_for_a_dead_worker(
    error, tmp_path
):
    with closing(
        Workers([functools.partial(Disconnected, error, tmp_path)] * 2)
    ) as workers:
        workers.reset()
        with pytest.raises(
            EnvironmentFailedError, match="the game server is gone"
        ) as caught:
            step(workers)
    assert 'raise self.error("the game server is gone")' in str(caught.value)
    assert (
        error_summary(str(caught.value)) == f"{error.__name__}: the game server is gone"
    )


MODULE = "tests.unit.env.vector.worker_envs"
GROUP = functools.partial(
    ExceptionGroup, "both", [ValueError("left"), KeyError("right")]
)
ERRORS = {
    f"{MODULE}.SimulatorError: 7: it is lost": functools.partial(
        SimulatorError, 7, "it is lost"
    ),
    f"{MODULE}.LockedError: it is locked": functools.partial(
        LockedError, "it is locked"
    ),
    "ExceptionGroup: both (2 sub-exceptions)": GROUP,
    "the environment called sys.exit: closed": functools.partial(SystemExit, "closed"),
    "the environment called sys.exit": SystemExit,
    "the environment raised KeyboardInterrupt": KeyboardInterrupt,
    "the environment raised Quit: enough": functools.partial(Quit, "enough"),
}


@pytest.mark.medium
@pytest.mark.parametrize(("line", "error"), ERRORS.items())
@pytest.mark.parametrize(
    ("place", "where"),
    [
        (
            "step",
            "\nin step() of environment 0 of 2 (<Raising instance>), with action 0",
        ),
        ("reset", "\nin reset() of environment 0 (<Raising instance>)"),
        ("constructor", "\nin environment 0 of 2 (in its constructor)"),
    ],
)
def test_whatever_an_environment_raises_arrives_as_text(line, error, place, where):
    make = functools.partial(Raising, place, error, os.getpid())

    def use():
        with closing(Workers([make] * 2)) as workers:
            workers.reset()
            step(workers)

    with pytest.raises(EnvironmentFailedError) as caught:
        use()
    text = str(caught.value)
    assert (
        error_summary(text).removeprefix("slm_lab.env.failure.EnvironmentExitError: ")
        == line
    )
    assert where.strip() in text
    if "called" not in line and "raised" not in line:
        assert "raise self.error()" in text or "raise error()" in text


@pytest.mark.medium
@pytest.mark.parametrize("letters", ["x" * 10**7, "\ud800"])
def test_a_message_is_bounded_and_can_be_printed(letters):
    make = functools.partial(Raising, "step", functools.partial(ValueError, letters))
    with closing(Workers([make])) as workers:
        workers.reset()
        with pytest.raises(EnvironmentFailedError) as caught:
            workers.step(np.zeros(1, np.int64))
    assert len(str(caught.value).encode()) < 22_000
    assert "with action 0" in str(caught.value)


@pytest.mark.medium
def test_a_close_that_raises_is_one_warning(caplog):
    make = functools.partial(
        Raising, "close", functools.partial(RuntimeError, "no window")
    )
    workers = Workers([make] * 2)  # the parent's own, for the spaces, is closed, too
    workers.reset()
    assert [each.message for each in caplog.records] == [
        "close() of <Raising instance> raised RuntimeError: no window; what it holds "
        "may stay open"
    ]
    caplog.clear()
    workers.close()
    assert [each.message for each in caplog.records] == [
        "close() of 2 of 2 copies raised RuntimeError: no window; what it holds may "
        "stay open"
    ]


def drawn(process_seed, copies=2):
    with closing(Workers([Drawing] * copies, process_seed)) as workers:
        return workers.reset()[0].tolist()


@pytest.mark.medium
def test_global_generators_repeat_with_the_seed_and_differ_between_copies():
    first = drawn(1)
    assert drawn(1) == first
    for numbers in zip(*first, *drawn(2), strict=True):
        assert len(set(numbers)) == 4


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="the list of children")
@pytest.mark.parametrize("kill", [False, True])
def test_programs_that_environments_start_end_with_the_workers(tmp_path, kill):
    workers = Workers([functools.partial(Starting, os.getpid(), tmp_path)] * 2)
    workers.reset()
    programs = [psutil.Process(pid) for pid in closed(tmp_path)]
    assert len(programs) == 2
    workers.close(terminate=kill)
    _, alive = psutil.wait_procs(programs, timeout=20)
    for each in alive:
        each.kill()
    assert not alive


SILENT = """
import sys
import numpy as np
from slm_lab.env.vector.workers import Workers
from tests.unit.env.vector.worker_envs import Hanging

if __name__ == "__main__":
    workers = Workers([Hanging] * 2)
    workers.reset()
    for pipe in workers.parent_pipes:
        pipe.close()
    for process in workers.processes:
        process.join()
"""


@pytest.mark.medium
def test_a_worker_whose_parent_has_hung_up_ends_without_a_word(tmp_path):
    script = tmp_path / "silent.py"
    script.write_text(SILENT)
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    words = [sys.executable, str(script)]
    given = {"capture_output": True, "text": True, "env": env, "timeout": 120}
    done = subprocess.run(words, check=False, **given)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_to_the_workers_changes_nothing(workers, number):
    step(workers)
    for process in workers.processes:
        os.kill(process.pid, number)
    obs, *_ = step(workers)
    np.testing.assert_array_equal(obs, [[2.0], [2.0]])


def test_programs_that_an_environment_starts_still_handle_signals(workers):
    assert set(workers.call("started_program")) == {"set() True"}


def test_the_signal_mask_of_this_process_is_unchanged(workers):
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_an_environment_that_cannot_be_made_leaves_no_mask_and_no_process():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with pytest.raises(TypeError):
        Workers([functools.partial(Noting, 1, 2)] * 2)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
    left = {child.pid for child in psutil.Process().children(recursive=True)} - before
    assert len(left) <= 1  # the resource tracker


@contextmanager
def started(script, text):
    """A parent process that runs `text`, and prints the ids of its workers. They end
    with it."""
    script.write_text(text)
    words = [sys.executable, str(script)]
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as parent:
        left = [psutil.Process(int(parent.stdout.readline())) for _ in range(2)]
        try:
            yield parent
            parent.kill()
            parent.wait()
            _, left = psutil.wait_procs(left, timeout=10)
            left = [
                process for process in left if process.status() != psutil.STATUS_ZOMBIE
            ]
            assert left == []
        finally:
            for process in left:
                process.kill()


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="a request to the kernel of Linux")
def test_workers_that_hang_die_with_a_parent_that_is_stopped_and_killed(tmp_path):
    with started(tmp_path / "hangs.py", HANGS) as parent:
        parent.send_signal(signal.SIGSTOP)


@pytest.mark.medium
@pytest.mark.skipif(sys.platform != "linux", reason="a request to the kernel of Linux")
def test_a_worker_that_hangs_ends_though_all_were_killed_before_it_had_begun(tmp_path):
    with started(tmp_path / "late.py", LATE):
        pass
