"""Processes that die or hang, and are replaced; after a stop they are not."""

import signal
import time

import pytest

from slm_lab.parallel import processes
from slm_lab.session.status_board import Phase
from slm_lab.storage.result import Ending
from tests.unit.parallel.acts import (
    act,
    begin,
    die_after_frames,
    die_at_once,
    die_then_fail_to_begin,
    fail_at_once,
    finish,
    hang,
    nothing,
)
from tests.unit.parallel.tasks import processes_that

TIMEOUT = 30.0


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Processes of which each does one of the acts, and is replaced."""
    monkeypatch.setattr(processes, "session_main", act)
    return lambda *acts, **limits: processes_that(acts, tmp_path, **limits)


@pytest.mark.medium
def test_a_killed_worker_is_replaced_as_often_as_allowed(make):
    """Each adds a frame before it dies; each sees how its predecessor died."""
    launcher, status_board = make(die_after_frames, finish, max_restart=2)
    dead, whole = launcher.run(nothing)
    assert (dead.ending, dead.exit_code, dead.restarts) == (
        Ending.FAILED,
        -signal.SIGKILL,
        2,
    )
    assert (whole.ending, whole.restarts) == (Ending.FINISHED, 0)
    assert dead.frame == 3
    assert status_board.read(0).restarts == 2


@pytest.mark.medium
def test_a_worker_that_is_killed_before_its_first_step_is_replaced_too(make):
    launcher, _ = make(die_at_once, max_restart=1)
    (dead,) = launcher.run(nothing)
    assert (dead.ending, dead.restarts) == (Ending.FAILED, 1)


def test_a_worker_that_fails_before_its_first_step_is_not_replaced(make):
    launcher, _ = make(fail_at_once, max_restart=5)
    (failed,) = launcher.run(nothing)
    assert (failed.ending, failed.restarts, failed.error) == (
        Ending.FAILED,
        0,
        "it cannot begin",
    )


@pytest.mark.medium
def test_a_worker_that_has_stepped_is_replaced_though_its_replacement_cannot_begin(
    make,
):
    launcher, _ = make(die_then_fail_to_begin, max_restart=2)
    (failed,) = launcher.run(nothing)
    assert (failed.ending, failed.restarts, failed.frame) == (Ending.FAILED, 2, 0)


@pytest.mark.medium
def test_only_a_worker_that_is_not_replaced_has_failed(make):
    """The learner waits for the unrolls of all others."""
    launcher, status_board = make(die_after_frames, finish, max_restart=2)
    seen = set()
    launcher.run(
        lambda: seen.add(
            (status_board.read(0).restarts, *(each.session for each in launcher.failed))
        )
    )
    assert (2, 0) in seen
    assert seen <= {(0,), (1,), (2,), (2, 0)}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("why", "reported"),
    [("it hangs", "it hangs"), (None, "Session 0 hangs: its step has")],
)
def test_a_worker_that_hangs_is_killed_and_replaced_and_the_reason_is_reported(
    make, why, reported
):
    launcher, status_board = make(hang, max_restart=1)

    def sign(_):
        return "constant" if status_board.phase(0) is Phase.RUNNING else None

    launcher.watch([0], sign, why, limit=0.1)
    (hung,) = launcher.run(nothing)
    assert (hung.ending, hung.restarts) == (Ending.FAILED, 1)
    assert hung.error.startswith(reported)


@pytest.mark.medium
def test_a_worker_that_waits_for_a_disk_does_not_hang(make, monkeypatch):
    monkeypatch.setattr(
        processes.Processes, "waits_for_disk", lambda self, session: True
    )
    launcher, status_board = make(hang, stop_seconds=0.0)
    launcher.watch([0], lambda _: "constant", limit=0.1)
    ticks = []

    def tick():
        ticks.append(status_board.phase(0))
        if ticks[-5:] == [Phase.RUNNING] * 5:
            status_board.request_stop()

    (stopped,) = launcher.run(tick)
    assert stopped.ending is Ending.INTERRUPTED


def test_no_worker_is_replaced_after_a_stop_request(make):
    launcher, status_board = make(die_after_frames, max_restart=5)
    status_board.request_stop()
    (stopped,) = launcher.run(nothing)
    assert (stopped.ending, stopped.restarts) == (Ending.INTERRUPTED, 0)


def test_after_a_stop_a_worker_that_has_not_begun_is_ended_at_once(make):
    launcher, status_board = make(begin, max_restart=5, stop_seconds=TIMEOUT)
    (stopped,) = launcher.run(stop_once(status_board, Phase.STARTING))
    assert (stopped.ending, stopped.frame) == (Ending.INTERRUPTED, 7)
    assert status_board.phase(0) is Phase.STOPPED


@pytest.mark.medium
@pytest.mark.parametrize("vital", [(), (0,)])
def test_after_a_stop_a_worker_that_hangs_is_ended_in_time(make, vital):
    """Also a rank, without which none can continue."""
    launcher, status_board = make(hang, max_restart=5, stop_seconds=0.1, vital=vital)
    (stopped,) = launcher.run(stop_once(status_board, Phase.RUNNING))
    assert (stopped.ending, stopped.restarts) == (Ending.INTERRUPTED, 0)


@pytest.mark.medium
@pytest.mark.parametrize("saves", [False, True])
def test_after_a_stop_a_saving_or_scheduler_stopped_worker_is_not_killed(make, saves):
    launcher, status_board = make(hang, stop_seconds=0.0)
    ticks = []

    def tick():
        if status_board.phase(0) is Phase.RUNNING:
            status_board.saving[0] = saves
            status_board.request_stop(user_waits=saves)
        if status_board.stop_requested:
            ticks.append(status_board.phase(0))
        if len(ticks) == 3:
            raise KeyboardInterrupt  # the second Ctrl-C

    with pytest.raises(KeyboardInterrupt):
        launcher.run(tick)
    assert ticks == [Phase.RUNNING] * 3
    waits = "waiting for the disk of Session 0; Ctrl-C again ends at once"
    assert status_board.stage == (waits if saves else "")


@pytest.mark.medium
def test_the_time_of_a_step_after_a_stop_begins_when_a_slow_disk_has_its_checkpoint(
    make,
):
    launcher, status_board = make(hang, stop_seconds=1.0)
    began = []
    freed = []
    ticks = []

    def tick():
        ticks.append(time.monotonic())
        if status_board.phase(0) is Phase.RUNNING and not began:
            status_board.saving[0] = 1
            status_board.request_stop()
            began.append(ticks[-1])
        elif began and not freed and ticks[-1] - began[0] > 1.5:
            status_board.saving[0] = 0
            freed.append(ticks[-1])

    (stopped,) = launcher.run(tick)
    assert stopped.ending is Ending.INTERRUPTED
    assert ticks[-1] - freed[0] > 0.5, "it was not killed at once"


def stop_once(status_board, phase):
    def tick():
        if status_board.phase(0) is phase:
            status_board.request_stop()

    return tick
