"""What every tracker does: each row is sent once, whatever happens."""

import json
import math
import shutil

import pytest

from slm_lab.metrics.reader import read_rows
from slm_lab.records.annotations import annotate
from slm_lab.records.run_record import RunRecord
from slm_lab.trackers import tracker as module
from slm_lab.trackers.callbacks import Callbacks
from slm_lab.trackers.follow import TrackedRun
from slm_lab.trackers.tracker import LARGEST_IMAGE
from tests.support import ppo
from tests.unit.records.runs import write_ended, write_run
from tests.unit.records.test_catalog import log_two_trials
from tests.unit.trackers.kept import Kept, Server


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "FIRST_RETRY", 0.0)
    return Server()


def tracked_run(run_dir, trial=0):
    return TrackedRun(RunRecord(run_dir).trial_record(trial))


def follow(server, run_dir, *, ends=True, trial=0, stream=None):
    """What a training does with its tracker, from its start."""
    called = Callbacks([Kept(server)], stream)
    run = tracked_run(run_dir, trial)
    called.follow(RunRecord(run_dir).trial_record(trial), skip=False)
    called.tick(run)
    if ends:
        called.end(run)
    return called, run


def frames(tracked):
    return [
        point.frame
        for point in tracked["points"]
        if not any(name.startswith("eval/") for name in point.values)
    ]


def rows_of(run_dir, session=0):
    return read_rows(run_dir.session(0, session).rows)


def cut(run_dir, rows):
    """Keeps the first rows of Session 0; returns the whole file."""
    file = run_dir.session(0, 0).rows
    whole = file.read_text()
    file.write_text("".join(whole.splitlines(keepends=True)[: rows + 1]))
    return whole


def test_each_row_of_each_session_is_sent_with_all_its_numbers(tmp_path, server):
    run_dir = write_run(tmp_path, ppo(meta__max_session=2), rows=20, evaluations=3)
    follow(server, run_dir)
    assert len(server.runs) == 3
    for session in range(2):
        tracked = server.named(f" s{session}")
        rows = rows_of(run_dir, session)
        assert frames(tracked) == rows["frame"].tolist()
        points = [p for p in tracked["points"] if "loss" in p.values]
        assert [p.values["loss"] for p in points] == rows["loss"].tolist()
        evaluated = [p for p in tracked["points"] if "eval/return_min" in p.values]
        assert [point.frame for point in evaluated] == [500, 1000, 1500]
        assert tracked["parent"] is server.named(run_dir.root.name)
    assert all(math.isfinite(v) for p in tracked["points"] for v in p.values.values())


def test_a_single_session_has_no_second_tracker_run(tmp_path, server):
    follow(server, write_ended(tmp_path, "alone"))
    (tracked,) = server.runs.values()
    assert tracked["parent"] is None
    assert tracked["summary"]["final_return"] == 12.5
    assert tracked["endings"] == ["finished"]


def test_a_resume_continues_the_same_tracker_run(tmp_path, server):
    run_dir = write_run(tmp_path, rows=20)
    whole = cut(run_dir, 8)
    follow(server, run_dir)
    # it was killed after its last checkpoint: rows are written again
    cut(run_dir, 6)
    run_dir.session(0, 0).rows.write_text(whole)
    follow(server, run_dir)
    (tracked,) = server.runs.values()
    assert tracked["opened"] == 2
    assert frames(tracked) == rows_of(run_dir)["frame"].tolist()


def test_rows_that_a_restarted_session_writes_again_are_not_sent_again(
    tmp_path, server
):
    run_dir = write_run(tmp_path, rows=20)
    called, run = follow(server, run_dir, ends=False)
    whole = cut(run_dir, 6)
    called.tick(run)
    run_dir.session(0, 0).rows.write_text(whole)
    called.tick(run)
    (tracked,) = server.runs.values()
    assert frames(tracked) == rows_of(run_dir)["frame"].tolist()


def test_a_moved_run_keeps_its_tracker_run(tmp_path, server):
    run_dir = write_run(tmp_path, rows=5)
    follow(server, run_dir)
    moved = shutil.move(run_dir.root, tmp_path / "elsewhere" / run_dir.root.name)
    follow(server, type(run_dir)(moved, run_dir.spec_name))
    assert len(server.runs) == 1


def test_a_tracker_run_that_was_deleted_begins_anew(tmp_path, server):
    run_dir = write_run(tmp_path, rows=5)
    follow(server, run_dir)
    server.runs.clear()
    follow(server, run_dir)
    (tracked,) = server.runs.values()
    assert frames(tracked) == rows_of(run_dir)["frame"].tolist()


@pytest.mark.parametrize("session", [0, 1])
def test_a_tracker_that_fails_warns_once_and_sends_all_later(
    session, tmp_path, server, capsys
):
    run_dir = write_run(tmp_path, ppo(meta__max_session=2), rows=20)
    server.is_down = True
    called, run = follow(server, run_dir, ends=False)
    for _ in range(3):
        called.tick(run)
    assert capsys.readouterr().err.count("ConnectionError: nobody answers") == 1
    server.is_down = False
    called.tick(run)
    server.is_down = True
    called.end(run)
    assert capsys.readouterr().err == ""
    tracked = server.named(f" s{session}")
    assert frames(tracked) == rows_of(run_dir, session)["frame"].tolist()


def test_a_tracker_that_never_answers_is_not_asked_with_every_row(
    tmp_path, server, monkeypatch
):
    monkeypatch.setattr(module, "FIRST_RETRY", 60.0)
    asked = []
    monkeypatch.setattr(Kept, "_check", lambda self: asked.append(1) or 1 / 0)
    called, run = follow(server, write_run(tmp_path, rows=20), ends=False)
    for _ in range(5):
        called.tick(run)
    called.end(run)
    assert asked == [1]


def test_what_is_not_sent_follows_with_a_resume(tmp_path, server, capsys):
    run_dir = write_run(tmp_path, rows=20)
    server.is_down = True
    follow(server, run_dir)
    server.is_down = False
    follow(server, run_dir)
    (tracked,) = server.runs.values()
    assert frames(tracked) == rows_of(run_dir)["frame"].tolist()


@pytest.mark.parametrize(
    ("endings", "expected"),
    [
        (("failed",), "failed"),
        (("interrupted",), "interrupted"),
        (("finished",), "finished"),
        ((), "failed"),
    ],
)
def test_the_ending_is_that_of_the_training_and_killed_is_failed(
    endings, expected, tmp_path, server
):
    follow(server, write_ended(tmp_path, "ended", endings=endings))
    (tracked,) = server.runs.values()
    assert tracked["endings"] == [expected]


def test_tags_note_spec_and_origin_are_sent(tmp_path, server):
    run_dir = write_ended(tmp_path, "tagged", random_seed=5)
    annotate(run_dir, add=["good"], note="by hand")
    follow(server, run_dir)
    (tracked,) = server.runs.values()
    about = tracked["about"]
    assert (about.tags, about.note) == (("good",), "by hand")
    assert about.config["agent"]["algorithm"]["name"] == "PPO"
    assert about.config["run"]["random_seed"] == 5


def test_graphs_are_sent_but_huge_ones(tmp_path, server):
    run_dir = write_ended(tmp_path, "drawn")
    for name, size in (("small", 10), ("empty", 0), ("huge", LARGEST_IMAGE + 1)):
        file = run_dir.root / f"drawn_t0_trial_graph_{name}.png"
        with file.open("wb") as stream:
            stream.truncate(size)
    follow(server, run_dir)
    (tracked,) = server.runs.values()
    assert tracked["images"] == ["trial_graph_small"]


def test_trials_of_a_search_have_tracker_runs_of_their_own(tmp_path, server):
    run_dir = write_run(tmp_path, ppo(), ppo(agent__algorithm__gamma=0.9), rows=5)
    log_two_trials(run_dir)
    for trial in range(2):
        follow(server, run_dir, trial=trial)
    gammas = [
        server.named(f" t{trial}")["about"].config["agent"]["algorithm"]["gamma"]
        for trial in range(2)
    ]
    assert gammas == [0.99, 0.9]


def test_a_damaged_note_of_what_was_sent_sends_again(tmp_path, server):
    run_dir = write_run(tmp_path, rows=5)
    follow(server, run_dir)
    (note,) = (run_dir.root / "info").glob("*_tracker_kept.json")
    assert json.loads(note.read_text())["s0"]["frame"] == rows_of(run_dir)["frame"][-1]
    note.write_text("{")
    follow(server, run_dir)
    assert len(server.runs) == 2


def test_a_run_without_rows_makes_no_tracker_run(tmp_path, server):
    follow(server, write_run(tmp_path, rows=0))
    assert server.runs == {}


def test_it_is_known_whether_the_results_were_sent(tmp_path, server):
    run_dir = write_run(tmp_path, rows=5)
    run = tracked_run(run_dir)
    assert not Kept(server).is_done(run)
    follow(server, run_dir, ends=False)
    assert not Kept(server).is_done(run)
    follow(server, run_dir)
    assert Kept(server).is_done(run)
