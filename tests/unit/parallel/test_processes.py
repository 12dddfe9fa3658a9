"""The processes of a Trial: started, watched, and always ended."""

import errno
import multiprocessing
import os
import signal
import sys
from multiprocessing import forkserver

import psutil
import pytest

from slm_lab.parallel import fork_server, processes
from slm_lab.parallel.fork_server import (
    CONTEXT,
    end,
    new_process,
    start,
    start_fork_server,
)
from slm_lab.session.status_board import Phase
from slm_lab.storage.result import Ending
from tests.faults.lab import wait_until
from tests.unit.parallel.acts import (
    act,
    break_the_pipe,
    finish,
    hang,
    hang_after_the_result,
    hang_alone,
    leave,
    note_signals,
    note_warnings_of_rewards,
    note_what_it_inherits,
    nothing,
    wait_for_the_stop,
)
from tests.unit.parallel.tasks import processes_that

DEADLINE = 60.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no fork server")


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Processes of which each does one of the acts."""
    monkeypatch.setattr(processes, "session_main", act)
    yield lambda *acts, **limits: processes_that(acts, tmp_path, **limits)
    assert left_behind() == []


def left_behind():
    """Processes below this one, apart from multiprocessing's own servers."""
    return [c for c in psutil.Process().children(recursive=True) if not is_server(c)]


def kill_server():
    server = psutil.Process(forkserver._forkserver._forkserver_pid)
    server.kill()
    wait_until(lambda: server.status() == psutil.STATUS_ZOMBIE)


def is_server(process):
    """A forked process has the command line of its server, but not its parent."""
    servers = ("resource_tracker", "forkserver")
    named = any(server in " ".join(process.cmdline()) for server in servers)
    return named and process.ppid() == os.getpid()


@pytest.mark.medium
def test_results_come_in_the_order_of_the_tasks_with_their_exit_codes(make):
    launcher, status_board = make(finish, leave, break_the_pipe)
    first, second, third = launcher.run(nothing)
    assert (first.ending, first.frame, first.exit_code) == (Ending.FINISHED, 10, 0)
    assert (second.ending, second.exit_code) == (Ending.FAILED, 0)
    assert "ended early" in second.error
    assert (third.ending, third.exit_code) == (Ending.FAILED, -signal.SIGKILL)
    assert "signal 9" in third.error
    assert [status_board.read(s).phase for s in (1, 2)] == [Phase.FAILED] * 2


@pytest.mark.medium
def test_no_more_run_at_once_than_are_allowed(make):
    launcher, _ = make(finish, finish, finish, max_parallel=1)
    most = []
    results = launcher.run(lambda: most.append(len(left_behind())))
    assert [result.ending for result in results] == [Ending.FINISHED] * 3
    assert max(most) <= 1


@pytest.mark.medium
def test_a_process_that_hangs_after_its_result_is_killed_and_has_finished(
    make, monkeypatch
):
    monkeypatch.setattr(processes, "EXIT_SECONDS", 0.2)
    launcher, _ = make(hang_after_the_result)
    (result,) = launcher.run(nothing)
    assert (result.ending, result.frame, result.error) == (Ending.FINISHED, 10, None)


@pytest.mark.medium
def test_after_a_stop_running_processes_end_and_waiting_ones_never_start(make):
    launcher, status_board = make(wait_for_the_stop, finish, max_parallel=1)

    def stop_once_it_runs():
        if status_board.read(0).phase is Phase.RUNNING:
            status_board.request_stop()

    results = launcher.run(stop_once_it_runs)
    assert [result.ending for result in results] == [Ending.INTERRUPTED] * 2
    assert status_board.read(1).phase is Phase.STOPPED


@pytest.mark.medium
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_no_process_is_left_after_any_exception(make, error):
    launcher, status_board = make(hang, hang)

    def fail_once_it_runs():
        if status_board.read(0).phase is Phase.RUNNING:
            raise error

    with pytest.raises(error):
        launcher.run(fail_once_it_runs)
    assert left_behind() == []


@pytest.mark.medium
@pytest.mark.parametrize("vital", [(), (1,)])
def test_where_a_limit_keeps_a_process_from_starting_its_session_fails_in_one_line(
    make, monkeypatch, vital
):
    """The other one trains to its end, if it can without it."""
    launcher, status_board = make(finish, hang, max_parallel=2, vital=vital)
    start_one = processes.start

    def fail_at_the_second(process):
        if process.name == "session-1":
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        start_one(process)

    monkeypatch.setattr(processes, "start", fail_at_the_second)
    results = {each.session: each for each in launcher.run(nothing)}
    assert results[1].ending is Ending.FAILED
    assert "could not be started: no more processes" in results[1].error
    assert "ulimit -u" in results[1].error
    assert len(results[1].error.splitlines()) == 1
    assert status_board.reasons[1] == results[1].error
    assert results[0].ending is (Ending.FAILED if vital else Ending.FINISHED)
    assert left_behind() == []


@pytest.mark.medium
def test_a_signal_during_a_start_is_delayed_until_the_process_handles_it(tmp_path):
    process = CONTEXT.Process(target=note_signals, args=(tmp_path,))
    start(process)
    os.kill(process.pid, signal.SIGINT)  # before it has imported anything
    os.kill(process.pid, signal.SIGTERM)
    try:
        wait_until((tmp_path / "ready").exists)
        (tmp_path / "go").touch()
        process.join(DEADLINE)
        assert process.exitcode == 0
        assert (tmp_path / "heeded").exists()
    finally:
        end(process)


@pytest.mark.medium
@linux
def test_the_fork_server_has_imported_torch_and_has_no_thread_to_lose(tmp_path):
    """A lock that another thread holds during a fork stays locked in the child."""
    start_fork_server()
    # which environments of another test may have started, with their own imports
    kill_server()
    start_fork_server()
    before = forkserver._forkserver._forkserver_pid
    process = new_process(note_what_it_inherits, (tmp_path,), "heir")
    start(process)
    process.join(DEADLINE)
    assert forkserver._forkserver._forkserver_pid == before
    assert (tmp_path / "torch").read_text() == "True"
    assert psutil.Process(before).num_threads() == 1


def test_rewards_beyond_float32_bring_no_warning_beside_the_message_of_the_loss(
    tmp_path,
):
    process = new_process(note_warnings_of_rewards, (tmp_path,), "rewarded")
    start(process)
    process.join(DEADLINE)
    assert (tmp_path / "warnings").read_text() == "0"


def test_processes_are_like_fresh_interpreters(monkeypatch, tmp_path):
    """They have the variables of the moment and own random numbers, and run `atexit`
    functions."""
    monkeypatch.setenv("SLM_LAB_TEST", "first")
    start_fork_server()
    monkeypatch.setenv("SLM_LAB_TEST", "now")
    before = dict(os.environ)
    drawn = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        process = new_process(note_what_it_inherits, (tmp_path / name,), name)
        start(process)
        process.join(DEADLINE)
        assert (tmp_path / name / "variable").read_text() == "now"
        assert (tmp_path / name / "left").exists()
        drawn.add((tmp_path / name / "drawn").read_text())
    assert len(drawn) == 2
    assert dict(os.environ) == before


@pytest.mark.medium
@linux
def test_a_fork_server_that_was_killed_takes_its_processes_along_and_is_replaced(
    make, tmp_path
):
    start_fork_server()
    kill_server()
    launcher, _ = make(finish)
    (result,) = launcher.run(nothing)
    assert result.ending is Ending.FINISHED
    child = processes.Child(hang_alone, (), "hangs")
    child.start()
    kill_server()
    assert child.end() == (None, "process lost its fork server (exit code 255)")
    wait_until(lambda: not psutil.pid_exists(child.process.pid))
    start_fork_server()  # reaps the one that was killed


@pytest.mark.medium
@linux
@pytest.mark.parametrize("kills", [0, 1])
def test_a_process_that_linux_killed_for_memory_says_so(kills, monkeypatch):
    counts = iter([3, 3 + kills])
    monkeypatch.setattr(processes, "memory_kills", lambda: next(counts))
    child = processes.Child(hang_alone, (), "hangs")
    child.start()
    os.kill(child.process.pid, signal.SIGKILL)
    result, how = child.end()
    assert result is None
    assert how.startswith("process was killed by signal 9 (exit code -9)")
    assert ("memory was full" in how) == bool(kills)


def test_starting_a_process_leaves_the_signals_of_this_one_as_they_were():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    process = CONTEXT.Process(target=nothing)
    start(process)
    process.join(DEADLINE)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_process_that_was_never_started_can_be_ended():
    end(CONTEXT.Process(target=nothing))


def test_a_killed_process_that_waits_for_a_disk_is_not_waited_for(monkeypatch):
    """No signal reaches it before the disk answers."""
    process = new_process(hang_alone, (None, 0), "on a disk")
    start(process)
    with monkeypatch.context() as disk:
        disk.setattr(fork_server, "kill_with_children", lambda process: None)
        disk.setattr(fork_server, "waits_for_disk", lambda pid: pid == process.pid)
        disk.setattr(fork_server, "DISK_SECONDS", 0.0)
        end(process)
    assert process.is_alive()
    assert process not in multiprocessing.active_children(), (
        "the end of Python waits for these"
    )
    end(process)
    assert not process.is_alive()
