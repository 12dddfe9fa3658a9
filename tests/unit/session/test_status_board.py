import multiprocessing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.session.experience import Clock
from slm_lab.session.status_board import (
    PROGRESS_FIELDS,
    Phase,
    SessionProgress,
    StatusBoard,
)

CONTEXT = multiprocessing.get_context("spawn")
NUMBERS = PROGRESS_FIELDS[2:]


def play_session(raw, num_sessions, session):
    """What a Session's process does with its board."""
    status_board = StatusBoard(raw, num_sessions)
    status_board.write(session, phase=Phase.RUNNING, fps=1000.5 + session, best=-1e300)
    Clock(status_board.clock_slots, session, 2**62).set(2**53 + 1 + session)


def ask_for_a_stop(raw, num_sessions):
    StatusBoard(raw, num_sessions).request_stop()


def run_in_spawned_processes(target, *arguments):
    processes = [CONTEXT.Process(target=target, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_a_fresh_board_has_waiting_sessions_without_numbers():
    status_board = StatusBoard.allocate(CONTEXT, 3)
    waiting = SessionProgress(
        phase=Phase.WAITING,
        frame=0,
        restarts=0,
        fps=None,
        recent_return=None,
        best=None,
    )
    assert [status_board.read(session) for session in range(3)] == [waiting] * 3
    assert not status_board.stop_requested


@pytest.mark.medium
def test_the_parent_sees_what_spawned_sessions_write():
    status_board = StatusBoard.allocate(CONTEXT, 3)
    run_in_spawned_processes(
        play_session, (status_board.raw, 3, 0), (status_board.raw, 3, 2)
    )
    for session in (0, 2):
        seen = status_board.read(session)
        assert seen.phase is Phase.RUNNING
        assert (seen.fps, seen.best) == (1000.5 + session, -1e300)
        assert seen.recent_return is None
        assert seen.frame == 2**53 + 1 + session
    assert status_board.read(1) == SessionProgress(
        phase=Phase.WAITING,
        frame=0,
        restarts=0,
        fps=None,
        recent_return=None,
        best=None,
    )
    assert not status_board.stop_requested


@pytest.mark.medium
def test_a_stop_asked_for_in_another_process_is_seen_here_and_changes_nothing_else():
    status_board = StatusBoard.allocate(CONTEXT, 2)
    status_board.write(1, phase=Phase.DONE, fps=1.0, recent_return=3.0, best=4.0)
    status_board.clock_slots[1] = 5
    before = [status_board.read(session) for session in range(2)]
    run_in_spawned_processes(ask_for_a_stop, (status_board.raw, 2))
    assert status_board.stop_requested
    assert [status_board.read(session) for session in range(2)] == before


writes = st.tuples(
    st.integers(0, 3),
    st.dictionaries(st.sampled_from(NUMBERS), st.none() | st.floats(allow_nan=False)),
)


@settings(deadline=None)  # shared memory is mapped from a file
@given(st.lists(writes, max_size=20))
def test_a_session_reads_as_it_last_wrote_and_none_stays_none(history):
    status_board = StatusBoard.allocate(CONTEXT, 4)
    expected = [dict.fromkeys(NUMBERS) for _ in range(4)]
    for session, numbers in history:
        status_board.write(session, **numbers)
        expected[session].update(numbers)
    for session in range(4):
        assert status_board.read(session) == SessionProgress(
            Phase.WAITING, 0, 0, **expected[session]
        )


def test_a_number_that_is_nan_reads_as_none():
    status_board = StatusBoard.allocate(CONTEXT, 1)
    status_board.write(0, fps=float("nan"), best=1.0)
    status_board.write(0, best=None)
    assert (status_board.read(0).fps, status_board.read(0).best) == (None, None)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_reads_back(phase):
    status_board = StatusBoard.allocate(CONTEXT, 1)
    status_board.write(0, phase=phase)
    assert status_board.read(0).phase is phase


def test_actor_statistics_of_a_learner_read_back_and_others_have_none():
    status_board = StatusBoard.allocate(CONTEXT, 2)
    status_board.write(
        1, eps=2.5, policy_lag=1.0, actor_wait_share=0.25, learner_wait_share=None
    )
    assert status_board.flow(0) is None
    flow = status_board.flow(1)
    assert flow is not None
    assert flow[:3] == (2.5, 1.0, 0.25)
    assert np.isnan(flow.learner_wait_share)
