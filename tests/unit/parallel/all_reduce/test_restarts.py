"""What ranks report when some of them end, and why they restart."""

import pytest

from slm_lab.parallel.all_reduce.launch import train_in_step
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.supervisor import ended_with
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.result import Ending, SessionResult
from tests.support import parse, ppo
from tests.unit.parallel.tasks import worker_tasks

ERROR = """Traceback (most recent call last):
  File "pole.py", line 12, in step
ZeroDivisionError: the pole broke
the state is saved at frame 8"""
FINISHED = [SessionResult(rank, Ending.FINISHED, 16) for rank in range(2)]


@pytest.fixture
def status_board():
    return StatusBoard.allocate(CONTEXT, 2)


def trained(folder, status_board, *attempts):
    """The results of ranks whose attempts end in this way, one after the other."""
    rest = iter(attempts)
    tasks = worker_tasks(folder, parse(ppo()), 2)
    return train_in_step(tasks, status_board, lambda ranks: next(rest))


def test_a_killed_rank_is_the_cause_of_a_restart_not_one_that_lost_it(
    tmp_path, status_board
):
    lost = SessionResult(0, Ending.FAILED, 8, "rank 0 lost its peers: closed")
    killed = SessionResult(1, Ending.FAILED, 8, "killed by signal 9", exit_code=-9)
    results = trained(tmp_path, status_board, [lost, killed], FINISHED)
    reasons = {result.restarted_because for result in results}
    assert reasons == {"rank 1 has ended: killed by signal 9"}
    assert [result.restarts for result in results] == [1, 1]


def test_the_reason_of_a_restart_is_the_error_without_its_notes(tmp_path, status_board):
    failed = SessionResult(1, Ending.FAILED, 8, ERROR)
    first = [SessionResult(0, Ending.INTERRUPTED, 8), failed]
    results = trained(tmp_path, status_board, first, FINISHED)
    reason = "rank 1 has ended: ZeroDivisionError: the pole broke"
    assert results[0].restarted_because == reason


def test_a_rank_that_stopped_with_a_failed_one_counts_as_failed(tmp_path, status_board):
    failed = SessionResult(1, Ending.FAILED, 8, ERROR, would_repeat=True)
    first = [SessionResult(0, Ending.INTERRUPTED, 8), failed]
    stopped, _ = trained(tmp_path, status_board, first)
    assert (stopped.ending, stopped.error) == (Ending.FAILED, ended_with(1))
    assert stopped.lost_others
    assert status_board.reasons[0] == ended_with(1)


def test_after_a_stop_a_rank_that_stopped_did_not_fail(tmp_path, status_board):
    status_board.request_stop()
    failed = SessionResult(1, Ending.FAILED, 8, ERROR)
    stopped, _ = trained(
        tmp_path, status_board, [SessionResult(0, Ending.INTERRUPTED, 8), failed]
    )
    assert (stopped.ending, stopped.error) == (Ending.INTERRUPTED, None)
