"""What the processes of test_processes.py do; cheap to import, because each of them
does."""

import atexit
import os
import signal
import sys
import warnings

import numpy as np

from slm_lab.core.process import die_with_parent, ignore_terminal
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.storage.result import Ending, SessionResult
from tests.faults.lab import wait_until


def finish(task, raw_status_board, connection, parent):
    connection.send(SessionResult(task.session, Ending.FINISHED, 10))


def leave(task, raw_status_board, connection, parent):
    sys.exit(0)


def hang_after_the_result(task, raw_status_board, connection, parent):
    connection.send(SessionResult(task.session, Ending.FINISHED, 10))
    signal.pause()


def break_the_pipe(task, raw_status_board, connection, parent):
    """A length that no content follows, as of a process killed in the middle of a
    send."""
    os.write(connection.fileno(), b"\x00\x00\x10\x00half")
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_the_stop(task, raw_status_board, connection, parent):
    status_board = StatusBoard(raw_status_board, task.num_sessions)
    status_board.write(task.session, phase=Phase.RUNNING)
    wait_until(lambda: status_board.stop_requested)
    connection.send(SessionResult(task.session, Ending.INTERRUPTED, 5))


def hang(task, raw_status_board, connection, parent):
    StatusBoard(raw_status_board, task.num_sessions).write(
        task.session, phase=Phase.RUNNING
    )
    signal.pause()


def die_after_frames(task, raw_status_board, connection, parent):
    """Makes one frame more than its predecessor, of whose death it knows."""
    status_board = StatusBoard(raw_status_board, task.num_sessions)
    assert bool(task.replaces) == bool(status_board.clock_slots[task.session])
    status_board.clock_slots[task.session] += 1
    os.kill(os.getpid(), signal.SIGKILL)


def die_then_fail_to_begin(task, raw_status_board, connection, parent):
    """The first makes a frame and dies; those that replace it cannot even begin."""
    if not task.replaces:
        StatusBoard(raw_status_board, task.num_sessions).clock_slots[task.session] += 1
        os.kill(os.getpid(), signal.SIGKILL)
    fail_at_once(task, raw_status_board, connection, parent)


def die_at_once(task, raw_status_board, connection, parent):
    os.kill(os.getpid(), signal.SIGKILL)


def fail_at_once(task, raw_status_board, connection, parent):
    connection.send(SessionResult(task.session, Ending.FAILED, 0, "it cannot begin"))
    sys.exit(1)


def begin(task, raw_status_board, connection, parent):
    status_board = StatusBoard(raw_status_board, task.num_sessions)
    status_board.clock_slots[task.session] = 7
    status_board.write(task.session, phase=Phase.STARTING)
    signal.pause()


def note_signals(folder):
    """Opens itself to signals only on demand, and records what arrived."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: (folder / "heeded").touch())
    (folder / "ready").touch()
    wait_until((folder / "go").exists)
    ignore_terminal()


ACTS = {
    act.__name__: act
    for act in (
        finish,
        leave,
        hang_after_the_result,
        break_the_pipe,
        wait_for_the_stop,
        hang,
        die_after_frames,
        die_then_fail_to_begin,
        die_at_once,
        fail_at_once,
        begin,
    )
}


def act(task, *args):
    """The target of every process here: does what its task names in the place of
    plug-ins."""
    ACTS[task.imports[0]](task, *args)


def nothing():
    """Ends at once."""


def note_what_it_inherits(folder):
    (folder / "torch").write_text(str("torch" in sys.modules))
    (folder / "variable").write_text(os.environ.get("SLM_LAB_TEST", ""))
    (folder / "drawn").write_text(str(np.random.rand()))  # noqa: NPY002
    atexit.register((folder / "left").touch)


def hang_alone(connection, parent):
    die_with_parent(os.getppid())
    signal.pause()


def note_warnings_of_rewards(folder):
    """Notes how many warnings a reward beyond float32 brings."""
    from slm_lab.env.convert.reward import RewardConverter

    with warnings.catch_warnings(record=True) as caught:
        RewardConverter(None, None, training=True).normalize(np.array([3e39]))
    (folder / "warnings").write_text(str(len(caught)))
