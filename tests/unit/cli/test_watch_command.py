"""`slm-lab watch`: the table of a run from its files alone."""

import json
import re
import shutil

import pytest

from slm_lab.cli import watch as watching
from slm_lab.cli.watch import TrialProgress
from slm_lab.core.errors import UsageError
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Began, Ended, EventLog, Proposed, Reported
from slm_lab.records.lock import RunLock
from slm_lab.records.lookup import find_trials
from slm_lab.records.run_record import RunRecord
from slm_lab.session.status_board import Phase
from tests.faults.lab import lab
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input
from tests.unit.records.runs import write_ended, write_run


def board_of(data, name="small"):
    (trial,) = find_trials(name, data)
    return TrialProgress(trial)


def test_a_board_shows_the_last_row_of_each_session_while_it_trains(tmp_path):
    run = write_run(tmp_path, ppo(meta__max_session=2), rows=5)
    rows = run.session(0, 0).rows.read_text().splitlines()
    lock = RunLock(run.root)
    status_board = board_of(tmp_path)
    status_board.look()
    known = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    progress = status_board.read(0)
    assert (progress.phase, progress.frame) == (Phase.RUNNING, int(known["frame"]))
    assert progress.fps == float(known["fps"])
    assert status_board.is_training
    with run.session(0, 0).rows.open("a") as file:
        file.write(rows[-1].replace(known["frame"], "9999", 1) + "\n")
    status_board.look()
    assert status_board.read(0).frame == 9999
    lock.release()
    status_board.look()
    assert (status_board.is_training, status_board.read(0).phase) == (
        False,
        Phase.STOPPED,
    )


def test_a_session_without_rows_starts(tmp_path):
    run = write_run(tmp_path, rows=0)
    lock = RunLock(run.root)
    status_board = board_of(tmp_path)
    status_board.look()
    assert (status_board.read(0).phase, status_board.read(0).frame) == (
        Phase.STARTING,
        0,
    )
    assert status_board.flow(0) is None
    lock.release()


def test_ended_sessions_are_shown_as_they_ended(tmp_path):
    write_ended(
        tmp_path, "small", ppo(meta__max_session=2), endings=("finished", "failed")
    )
    status_board = board_of(tmp_path)
    status_board.look()
    assert [status_board.read(session).phase for session in (0, 1)] == [
        Phase.DONE,
        Phase.FAILED,
    ]


def test_watch_follows_a_run_to_its_end(tmp_path, monkeypatch):
    run = write_run(tmp_path / "data")
    lock = RunLock(run.root)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        lock.release()

    monkeypatch.setattr(watching.time, "sleep", pause)
    done = lab(tmp_path, "watch")
    assert (done.code, done.err) == (0, "")
    assert pauses == [watching.PAUSE]
    assert "Session 0: started" in done.out
    assert "stopped" in done.out


@pytest.mark.parametrize("words", [["nothing"], ["small", "--data", "nowhere"]])
def test_a_missing_run_is_one_line(words, tmp_path):
    write_run(tmp_path / "data")
    assert_bad_input(tmp_path, ["watch", *words], ["there is no run"], code=3)


def test_rows_that_are_no_text_are_one_line(tmp_path):
    run = write_ended(tmp_path, "small")
    run.session(0, 0).rows.write_bytes(b"\x95\n")
    with pytest.raises(UsageError, match="cannot be read"):
        board_of(tmp_path).look()


def searched(data):
    """A search with a trial that has ended, and one that runs."""
    spec = ppo(meta__max_trial=4)
    spec["search"] = {"agent.algorithm.gamma__uniform": [0.9, 0.99]}
    run = write_run(data, spec, spec)
    content = json.loads(run.trial_spec_file(0).read_text())
    run.spec_file.write_text(json.dumps(content))
    log = EventLog(run.event_log_file)
    for event in (
        Proposed(0, {"agent.algorithm.gamma": 0.95}),
        Began(0),
        Ended(0, Status.FINISHED, 1000, 321.0, 9.0, {}),
        Proposed(1, {"agent.algorithm.gamma": 0.91}),
        Began(1),
        Reported(1, 400, 123.0),
    ):
        log.write(event)
    log.close()
    return run


def test_a_search_is_shown_by_its_trials(tmp_path):
    run = searched(tmp_path / "data")
    lock = RunLock(run.root)
    recorded = watching.SearchProgress(RunRecord(run))
    assert recorded.look()
    assert (recorded.num_trials, recorded.frame_of(1)) == (4, 400)
    assert recorded.study_state.trials[1].status is Status.RUNNING
    lock.release()
    assert not recorded.look()
    assert recorded.study_state.trials[1].status is Status.WAITING


def test_the_trials_of_a_grid_are_its_points(tmp_path):
    spec = ppo(meta__max_trial=4)
    spec["search"] = {
        "agent.algorithm.gamma__grid_search": [0.9, 0.95, 0.99],
        "agent.algorithm.lam__grid_search": [0.9, 0.95],
    }
    assert (
        watching.SearchProgress(RunRecord(write_run(tmp_path, spec, spec))).num_trials
        == 6
    )


def test_the_table_of_a_search_has_scores_and_values(tmp_path):
    searched(tmp_path / "data")
    done = lab(tmp_path, "watch")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"t0 +finished[ ━]+1k +321 +0\.95", done.out)
    assert re.search(r"t1 +waiting[ ━]+400 +123 +0\.91", done.out)


def test_one_trial_of_a_search_is_watched_as_a_run(tmp_path):
    searched(tmp_path / "data")
    done = lab(tmp_path, "watch", "small:t1")
    assert "Session 0:" in done.out


@pytest.mark.parametrize(
    ("make", "words"),
    [(write_run, "is no search"), (searched, "no such trial; it has t0, t1")],
)
def test_a_trial_that_is_not_there_is_one_line(make, words, tmp_path):
    make(tmp_path / "data")
    assert_bad_input(tmp_path, ["watch", "small:t3"], [words])


@pytest.mark.parametrize("make", [write_run, searched])
def test_a_folder_that_is_deleted_while_it_is_watched_is_one_line(
    make, tmp_path, monkeypatch
):
    run = make(tmp_path / "data")
    lock = RunLock(run.root)
    monkeypatch.setattr(watching.time, "sleep", lambda _: shutil.rmtree(run.root))
    done = lab(tmp_path, "watch")
    lock.release()
    assert done.code == 2
    assert (
        done.err.strip()
        == f"{run.root.relative_to(tmp_path)} is gone: it was deleted or renamed"
    )


def test_the_frames_of_actors_which_no_file_has_are_not_shown(tmp_path):
    spec = ppo(meta__distributed="actor_learner", meta__max_session=1)
    write_ended(tmp_path / "data", "small", spec, endings=("finished", "finished"))
    done = lab(tmp_path, "watch", "small")
    assert (done.code, done.err) == (0, "")
    assert "actor 0: done\n" in done.out


def test_ctrl_c_ends_only_the_watching(tmp_path, monkeypatch):
    run = write_run(tmp_path / "data")
    lock = RunLock(run.root)

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", interrupt)
    done = lab(tmp_path, "watch")
    lock.release()
    assert done.code == 130
    assert "stopped watching; the training continues" in done.out
