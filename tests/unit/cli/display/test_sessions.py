"""What a run shows: on a terminal of any width, and in a log."""

import io
import re

import numpy as np
import pytest
from rich.console import Console

from slm_lab.cli.display.live import STOPPING
from slm_lab.cli.display.sessions import PHASES, SessionsTable
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.spec.schema.meta import MetaSpec

MAX_FRAME = 10_000_000
TIME = re.compile(r"\d\d:\d\d:\d\d (.*)")
TOGETHER = MetaSpec(distributed="synced", max_session=2)
TOGETHER_TWICE = MetaSpec(distributed="synced", max_session=2, max_run=2)
ACTORS = MetaSpec(distributed="actor_learner", max_session=2)
ACTORS_TWICE = MetaSpec(distributed="actor_learner", max_session=2, max_run=2)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""

    class Seconds:
        now = 100.0

    monkeypatch.setattr(
        "slm_lab.cli.display.sessions.time.monotonic", lambda: Seconds.now
    )
    return Seconds


def board_of(*phases, frame=0):
    status_board = StatusBoard.allocate(CONTEXT, len(phases))
    for session, phase in enumerate(phases):
        status_board.write(session, phase=phase, recent_return=-1234.5, best=-200.1)
        status_board.clock_slots[session] = frame
    return status_board


def alone(status_board):
    """Every Session is a separate training."""
    return MetaSpec(max_session=status_board.num_sessions)


def drawn(status_board, *changes, width=100, height=25, meta=None, **console):
    """The text of everything that is written to a terminal of this size, at first and
    after each of the changes."""
    out = io.StringIO()
    terminal = Console(
        file=out,
        force_terminal=True,
        width=width,
        height=height,
        color_system=None,
        **console,
    )
    with SessionsTable(terminal, meta or alone(status_board), MAX_FRAME) as display:
        display.update(status_board)
        for change in changes:
            change()
            display.update(status_board)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue())


def shown(status_board, width, height=25, meta=None, **console):
    """The text on a terminal of this size, without a change."""
    return drawn(status_board, width=width, height=height, meta=meta, **console)


def line_of(text, name):
    """The words of the line that begins with a name, which has no second one; gaps
    separate."""
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return re.split(r"\s{2,}", line.strip())


def logged(status_board, *changes, meta=None):
    """The lines that are written where there is no terminal, after each of the
    changes."""
    out = io.StringIO()
    console = Console(file=out, width=80)
    with SessionsTable(console, meta or alone(status_board), MAX_FRAME) as display:
        display.update(status_board)
        for change in changes:
            change()
            display.update(status_board)
    lines = [TIME.fullmatch(line) for line in out.getvalue().splitlines()]
    assert all(lines), "each line begins with the time of day"
    return [line[1] for line in lines]


@pytest.mark.parametrize(
    "phase", [Phase.RUNNING, Phase.DONE, Phase.FAILED, Phase.STOPPED]
)
def test_on_80_columns_no_number_and_no_word_is_cut(phase):
    text = shown(board_of(phase, Phase.WAITING, frame=MAX_FRAME), width=80)
    assert "…" not in text
    for word in ("Session 0", "10,000,000 / 10M", "-1,234", "-200", "waits"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_sessions_that_share_a_budget_are_summed_up():
    status_board = board_of(Phase.RUNNING, Phase.RUNNING, frame=3_000_000)
    text = shown(status_board, 80, meta=TOGETHER)
    (line,) = (line for line in text.splitlines() if "together" in line)
    assert "6,000,000 / 10M" in line
    assert "together" not in shown(board_of(Phase.RUNNING), 80)


@pytest.mark.parametrize(
    ("phases", "run", "sessions"),
    [
        ([Phase.WAITING] * 4, 1, {"0", "1"}),
        ([Phase.RUNNING, Phase.STARTING, Phase.WAITING, Phase.WAITING], 1, {"0", "1"}),
        ([Phase.DONE, Phase.DONE, Phase.WAITING, Phase.RUNNING], 2, {"2", "3"}),
    ],
)
def test_only_the_current_one_of_several_trainings_is_shown(phases, run, sessions):
    text = shown(board_of(*phases), 80, meta=TOGETHER_TWICE)
    assert f"run {run} of 2" in text
    assert set(re.findall(r"Session (\d)", text)) == sessions


@pytest.mark.parametrize(
    ("phases", "frames", "total"),
    [
        # Two of four run, each with a tenth of its budget done.
        (
            [Phase.RUNNING, Phase.RUNNING, Phase.WAITING, Phase.WAITING],
            [MAX_FRAME // 10, MAX_FRAME // 10, 0, 0],
            ["2,000,000 / 40M", "2,000", "5:16:40"],
        ),
        # One of two runs; the other has failed after as much.
        (
            [Phase.RUNNING, Phase.FAILED],
            [MAX_FRAME // 10, MAX_FRAME // 10],
            ["2,000,000 / 11M", "1,000", "2:30:00"],
        ),
    ],
)
def test_the_time_left_of_all_counts_what_waits_and_not_what_has_failed(
    phases, frames, total, clock
):
    status_board = board_of(*phases)
    runs = np.array(phases) == Phase.RUNNING
    status_board.clock_slots[:] = np.array(frames) - 1000 * runs

    def a_second():
        clock.now += 1
        status_board.clock_slots[:] = frames

    *_, line = (
        line
        for line in drawn(status_board, a_second).splitlines()
        if line.startswith("all")
    )
    assert re.split(r"\s{2,}", line.strip())[-3:] == total


def test_a_log_of_workers_has_the_time_left_of_their_training(clock):
    """Both make a thousand frames a second."""
    status_board = board_of(Phase.RUNNING, Phase.RUNNING)

    def five_seconds():
        clock.now += 5
        status_board.clock_slots[:] += 5000

    lines = logged(status_board, five_seconds, meta=TOGETHER)
    assert [line.rpartition(", ")[2] for line in lines[2:]] == ["1:23:15 left"] * 2


def test_the_sum_of_frames_is_that_of_the_current_run():
    status_board = board_of(
        Phase.DONE, Phase.DONE, Phase.RUNNING, Phase.WAITING, frame=3_000_000
    )
    text = shown(status_board, 80, meta=TOGETHER_TWICE)
    assert "6,000,000 / 10M" in text


def with_learner(learned, *played, phase=Phase.RUNNING):
    """A learner and its actors, by their frames; an actor has no returns."""
    status_board = StatusBoard.allocate(CONTEXT, 1 + len(played))
    for session, frame in enumerate((learned, *played)):
        status_board.write(session, phase=phase)
        status_board.clock_slots[session] = frame
    status_board.write(0, recent_return=12.5, best=20.1)
    return status_board


def test_only_the_learner_has_a_budget_and_returns():
    text = shown(with_learner(3_000_000, 1_700_000, 1_300_001), 100, meta=ACTORS)
    assert "Session" not in text
    assert "together" not in text
    assert "3,000,000 / 10M" in text
    assert line_of(text, "learner")[-3:-1] == ["12.5", "20.1"]
    assert line_of(text, "actor 0") == ["actor 0", "1,700,000", "–"]
    assert line_of(text, "actor 1") == ["actor 1", "1,300,001", "–"]


@pytest.mark.parametrize(
    "phase", [Phase.WAITING, Phase.DONE, Phase.FAILED, Phase.STOPPED]
)
def test_an_actor_shows_its_phase_as_any_session_does(phase):
    status_board = with_learner(0, 5, 7, phase=phase)
    status_board.write(2, restarts=3)
    text = shown(status_board, 80, meta=ACTORS)
    assert (
        line_of(text, "actor 0")[-1] == line_of(text, "learner")[-1] == PHASES[phase][0]
    )
    assert "actor 1 (restarted 3×)" in text


def test_the_remaining_time_is_that_of_the_learner(clock):
    """Its actors are at the end of the budget while it is still at its beginning."""
    status_board = with_learner(0, MAX_FRAME, MAX_FRAME)

    def a_second():
        clock.now += 1
        status_board.clock_slots[:] += [1000, 3000, 2000]

    lines = logged(status_board, *[a_second] * 5, meta=ACTORS)
    assert lines == [
        "learner: started",
        "actor 0: started",
        "actor 1: started",
        "learner: 5,000 / 10M frames, 1,000 frames/s, return 12.5, best 20.1, 2:46:35 "
        "left",
        "actor 0: 10,015,000 frames, 3,000 frames/s",
        "actor 1: 10,010,000 frames, 2,000 frames/s",
    ]


def test_a_log_names_the_run_of_a_learner_and_its_actors(clock):
    status_board = with_learner(*[0] * 6, phase=Phase.WAITING)

    def end_all():
        for session in range(6):
            status_board.write(session, phase=Phase.DONE)

    lines = logged(status_board, end_all, meta=ACTORS_TWICE)
    names = [line.partition(":")[0] for line in lines]
    assert names == [
        f"{who} of run {run}"
        for run in (1, 2)
        for who in ("learner", "actor 0", "actor 1")
    ]


def test_only_the_current_one_of_several_learners_is_shown():
    status_board = with_learner(MAX_FRAME, 1, 2, 4_000_000, 3, 4)
    text = shown(status_board, 80, meta=ACTORS_TWICE)
    assert "run 2 of 2" in text
    assert "4,000,000 / 10M" in text
    assert line_of(text, "actor 1")[1] == "4"


def test_actors_that_play_in_turn_with_the_learner_are_one_session():
    serial = {"serial": True}
    meta = MetaSpec(distributed="actor_learner", max_session=3, actor_learner=serial)
    text = shown(board_of(Phase.RUNNING), 80, meta=meta)
    assert "Session 0" in text
    assert not {"actor", "learner", "together"} & set(text.split())


def test_a_restarted_session_shows_how_often():
    status_board = board_of(Phase.RUNNING, Phase.RUNNING)
    status_board.write(1, restarts=2)
    text = shown(status_board, 100)
    assert "Session 1 (restarted 2×)" in text
    assert "Session 0 (" not in text
    assert logged(status_board, lambda: status_board.write(1, phase=Phase.DONE))[
        -1
    ].endswith("(restarted 2×)")


@pytest.mark.parametrize("width", [*range(1, 12), 20, 40, 60, 71, 72, 79, 81, 120, 300])
def test_a_terminal_of_any_width_shows_something_or_nothing_but_never_fails(width):
    for phase in Phase:
        shown(board_of(phase, phase, frame=3_333_333), width)


def test_more_sessions_than_the_terminal_has_lines_are_no_failure():
    assert shown(board_of(*[Phase.RUNNING] * 40), width=80, height=10)


def test_the_final_live_display_has_no_note():
    status_board = board_of(Phase.DONE, Phase.STOPPED, frame=MAX_FRAME)
    status_board.stage = "drawing the graphs"
    text = shown(status_board, width=80)
    assert status_board.stage not in text.rpartition("frames/s")[2]


def test_a_dumb_terminal_gets_log_lines(monkeypatch):
    text = shown(board_of(Phase.DONE), width=80, _environ={"TERM": "dumb"})
    assert TIME.match(text)[1].startswith("Session 0: 0 / 10M frames")


def test_a_log_has_the_start_and_the_end_of_a_session(clock):
    status_board = board_of(Phase.WAITING, Phase.STARTING)

    def run():
        status_board.write(0, phase=Phase.RUNNING)

    def done():
        status_board.write(0, phase=Phase.DONE)
        status_board.clock_slots[0] = MAX_FRAME

    assert logged(status_board, run, run, done, done) == [
        "Session 0: started",
        "Session 0: 10,000,000 / 10M frames, return -1,234, best -200, done",
    ]


def test_a_log_has_lines_ever_more_seldom_with_speed_and_time_left(clock):
    status_board = board_of(Phase.RUNNING)

    def a_second():
        clock.now += 1
        status_board.clock_slots[0] += 1000

    lines = logged(status_board, *[a_second] * 36)
    assert lines[0] == "Session 0: started"
    frames = [line.split()[2] for line in lines[1:]]
    assert frames == ["5,000", "15,000", "35,000"]
    assert "5,000 / 10M frames, 1,000 frames/s" in lines[1]
    assert lines[1].endswith("2:46:35 left")


def test_a_log_leaves_out_unknown_numbers(clock):
    status_board = board_of(Phase.RUNNING)
    status_board.write(0, recent_return=None, best=None)

    def five_seconds_of_acting_nowhere():
        clock.now += 5

    lines = logged(status_board, *[five_seconds_of_acting_nowhere] * 2)
    assert set(lines) == {"Session 0: started", "Session 0: 0 / 10M frames"}


def test_a_log_announces_stopping_and_each_stage_once(clock):
    status_board = board_of(Phase.RUNNING)

    def draw():
        status_board.write(0, phase=Phase.STOPPED)
        status_board.stage = "drawing the graphs"

    lines = logged(
        status_board, status_board.request_stop, status_board.request_stop, draw, draw
    )
    assert lines.count(STOPPING) == lines.count("drawing the graphs") == 1
    assert lines[-1] == "drawing the graphs"


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.DONE, Phase.STOPPED])
def test_sessions_that_are_over_announce_nothing_by_themselves(phase, clock):
    """They may restart, or have failed before their first step."""
    status_board = board_of(phase)
    (line,) = logged(status_board, lambda: None)
    assert line.startswith("Session 0: 0 / 10M frames")


@pytest.mark.parametrize("on_a_terminal", [True, False])
def test_the_reason_of_a_failure_is_printed_once_and_at_once(on_a_terminal):
    status_board = board_of(Phase.RUNNING, Phase.RUNNING, frame=400)
    why = "Traceback (most recent call last):\n  File x\nValueError: the pole broke\n"

    def fail():
        status_board.write(1, phase=Phase.FAILED)
        status_board.reasons[1] = why

    if on_a_terminal:
        fail()
        text = shown(status_board, width=80)
    else:
        text = "\n".join(logged(status_board, fail, lambda: None))
    assert text.count("Session 1: ValueError: the pole broke") == 1
    assert "Traceback" not in text


def test_another_reason_of_the_same_worker_is_printed_again():
    status_board = board_of(Phase.RUNNING, Phase.RUNNING, frame=400)

    def die(how):
        return lambda: status_board.reasons.update(
            {1: f"the process was killed by signal {how}"}
        )

    lines = logged(status_board, die(9), die(9), die(11), meta=TOGETHER)
    assert [line for line in lines if "was killed" in line] == [
        "Session 1: the process was killed by signal 9",
        "Session 1: the process was killed by signal 11",
    ]
