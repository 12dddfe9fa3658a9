"""Lists of runs, their differences, and their deletion."""

import json
import os
from dataclasses import asdict
from datetime import timedelta

import pytest

from slm_lab.charts.diff import _table, diff
from slm_lab.core.errors import UsageError
from slm_lab.metrics.reader import read_rows
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Began, Ended, EventLog, Proposed
from slm_lab.records.lock import RunLock
from slm_lab.records.overview import RunStatus, overview_of
from slm_lab.records.run_record import RunRecord
from slm_lab.records.tidy import delete, selected
from slm_lab.storage.run_dir import RunDir, runs_in
from tests.support import ppo
from tests.unit.records.runs import change_spec, write_ended, write_run


def last(run, column, session=0):
    return read_rows(run.session(0, session).rows)[column][-1]


def test_a_summary_has_what_the_folder_says(tmp_path):
    run = write_ended(
        tmp_path,
        "small",
        ppo(meta__max_session=2),
        endings=("finished",) * 2,
        set=["env.max_frame=500", "agent.algorithm.gamma=0.9"],
        name="short",
        note="a try",
        resumed=[{"set": ["env.max_frame=1000"]}],
    )
    summary = overview_of(run)
    assert (summary.run, summary.name, summary.env) == (
        run.root.name,
        "small",
        "CartPole-v1",
    )
    assert (summary.label, summary.note) == ("short", "a try")
    assert summary.changed == ("env.max_frame=1000", "agent.algorithm.gamma=0.9")
    assert (summary.mode, summary.seeds, summary.status) == (
        "seeds × 2",
        2,
        RunStatus.DONE,
    )
    assert (summary.final_return, summary.final_return_std) == (12.5, 0.5)
    assert summary.frames == last(run, "frame", 0) + last(run, "frame", 1)
    assert summary.bytes == sum(
        p.stat().st_size for p in run.root.rglob("*") if p.is_file()
    )
    assert json.loads(json.dumps(asdict(summary)))["status"] == "done"


@pytest.mark.parametrize(
    ("meta", "seeds"),
    [
        ({"distributed": False, "max_session": 3}, 3),
        ({"distributed": "shared", "max_session": 3}, 1),
        ({"distributed": "shared", "max_session": 2, "max_run": 2}, 2),
    ],
)
def test_workers_of_a_training_are_one_seed(tmp_path, meta, seeds):
    spec = ppo(**{f"meta__{key}": value for key, value in meta.items()})
    run = write_ended(
        tmp_path, "small", spec, endings=("finished",) * meta["max_session"]
    )
    summary = overview_of(run)
    assert (summary.seeds, summary.budget) == (seeds, seeds * spec["env"]["max_frame"])


@pytest.mark.parametrize(
    ("endings", "status"),
    [
        (("finished", "finished"), RunStatus.DONE),
        (("finished", "interrupted"), RunStatus.STOPPED),
        (("interrupted", "failed"), RunStatus.FAILED),
        ((), RunStatus.STOPPED),
    ],
)
def test_the_status_follows_from_how_the_sessions_ended(tmp_path, endings, status):
    run = write_ended(tmp_path, "small", ppo(meta__max_session=2), endings=endings)
    assert overview_of(run).status is status


@pytest.mark.parametrize(
    "damage",
    [
        {"final_return": "x"},
        {"final_return_std": [1]},
        {"num_sessions": "x"},
        {"throughput": {"frames_per_s": "x"}},
        {"sessions": 3},
        {"sessions": [{"ending": [1]}]},
    ],
)
def test_metrics_of_wrong_types_damage_no_list(tmp_path, damage):
    run = write_ended(tmp_path, "small")
    file = run.trial_metrics_file(0)
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    summary = overview_of(run)
    numbers = (summary.final_return, summary.final_return_std, summary.frames_per_s)
    assert all(each is None or isinstance(each, float) for each in numbers)


@pytest.mark.parametrize("cell", ["nan", "inf"])
def test_a_row_that_is_not_finite_damages_no_list(tmp_path, cell):
    run = write_ended(tmp_path, "small")
    rows = run.session(0, 0).rows
    header = rows.read_text().split("\n")[0]
    rows.write_text(f"{header}\n{','.join([cell] * len(header.split(',')))}\n")
    assert overview_of(run).frames == 0


@pytest.mark.parametrize(
    "origin", [{"set": 3}, {"resumed": 3}, {"resumed": [{"set": 3}]}]
)
def test_an_origin_of_wrong_types_damages_no_list(tmp_path, origin):
    assert overview_of(write_ended(tmp_path, "small", **origin)).changed == ()


def test_a_run_that_trains_shows_the_recent_return(tmp_path):
    run = write_ended(tmp_path, "small", endings=("interrupted",))
    lock = RunLock(run.root)
    summary = overview_of(run)
    lock.release()
    assert summary.status is RunStatus.TRAINING
    assert summary.final_return == last(run, "recent_return")
    assert overview_of(run).status is RunStatus.STOPPED


def test_a_lock_file_of_a_dead_process_is_no_lock(tmp_path):
    run = write_ended(tmp_path, "small")
    (run.root / ".lock").write_text(str(os.getpid()))
    assert overview_of(run).status is RunStatus.DONE
    (run.root / ".lock").write_text("nonsense")
    assert overview_of(run).status is RunStatus.DONE


def test_a_search_shows_its_best_trial(tmp_path):
    run = write_ended(tmp_path, "small", ppo(), ppo(meta__random_seed=1))
    metrics = json.loads(run.trial_metrics_file(0).read_text())
    run.trial_metrics_file(1).write_text(json.dumps({**metrics, "final_return": 20.0}))
    summary = overview_of(run)
    assert (summary.mode, summary.final_return) == ("search, 2 trials", 20.0)
    assert summary.seeds == 1


@pytest.mark.parametrize(
    "damage", ["", "[]", "{", '{"small": 3}', '{"small": {"env": 1, "meta": []}}']
)
def test_a_damaged_run_is_listed_as_such(tmp_path, damage):
    run = write_ended(tmp_path, "small", endings=())
    run.spec_file.write_text(damage)
    run.session(0, 0).rows.write_bytes(b"frame,fps\n1,x\n")
    (found,) = runs_in(tmp_path)
    summary = overview_of(found)
    assert summary.status in (RunStatus.DAMAGED, RunStatus.STOPPED)
    assert summary.frames == 0


def test_a_diff_has_the_keys_the_versions_and_the_results(tmp_path):
    packages = {"torch": "2.13.0", "numpy": "2.0"}
    one = write_ended(
        tmp_path, "one", ppo(meta__max_session=3), packages=packages, python="3.11"
    )
    two = write_ended(
        tmp_path,
        "two",
        ppo(meta__max_session=3, agent__algorithm__gamma=0.9),
        packages={**packages, "torch": "2.14.0"},
        python="3.11",
    )
    found = diff("one", "two", tmp_path)
    of_spec, about = found.tables.values()
    assert of_spec.header == about.header == ("key", one.root.name, two.root.name)
    assert of_spec.rows == (
        ("agent.algorithm.gamma", "0.99", "0.9"),
        ("name", '"one"', '"two"'),
    )
    assert about.rows == (("packages.torch", '"2.13.0"', '"2.14.0"'),)
    assert [each.seeds for each in found.results.endings] == [3, 3]
    assert found.results.improvement is not None
    assert not any(each.rows for each in diff("one", "one", tmp_path).tables.values())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (("slow", "fast"), ("slow", "fast")),
        (("slow", None), ("slow", "two")),
        (("same", "same"), ("one", "two")),
    ],
)
def test_a_diff_shows_the_users_names_where_they_differ(tmp_path, given, shown):
    for prefix, name in zip(("one", "two"), given, strict=True):
        write_ended(tmp_path, prefix, **({} if name is None else {"name": name}))
    header = diff("one", "two", tmp_path).tables["Differences of the specs"].header
    assert [name.split("_2")[0] for name in header] == ["key", *shown]


def test_an_empty_table_is_no_row_of_a_diff():
    table = _table(("weak", "strong"), ({"arguments": {"g": 5}}, {"arguments": {}}))
    assert table.rows == (("arguments.g", "5", "–"),)


def test_a_diff_of_runs_without_rows_has_no_results(tmp_path):
    write_run(tmp_path, rows=0)
    assert diff("small", "small", tmp_path).results.endings == ()
    with pytest.raises(UsageError, match="there is no run folder other"):
        diff("small", "other", tmp_path)


@pytest.fixture
def several(tmp_path):
    write_ended(tmp_path, "done", days=40)
    write_ended(tmp_path, "dev", mode="dev")
    write_ended(tmp_path, "old_dev", mode="dev", days=40)
    write_ended(tmp_path, "failed", endings=("failed",), days=20)
    write_ended(tmp_path, "timeless", started="", endings=("failed",))
    return tmp_path


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        ({"dev": True}, {"dev", "old_dev"}),
        ({"failed": True}, {"failed", "timeless"}),
        ({"dev": True, "failed": True}, {"dev", "old_dev", "failed", "timeless"}),
        ({"older": timedelta(days=30)}, {"done", "old_dev"}),
        ({"dev": True, "older": timedelta(days=30)}, {"old_dev"}),
        ({"failed": True, "older": timedelta(days=1)}, {"failed"}),
    ],
)
def test_only_selected_runs_are_deleted(several, selection, names):
    before = {overview_of(run).name for run in runs_in(several)}
    chosen = selected(several, **selection)
    assert {run.name for run in chosen} == names
    assert [why for _, why in delete(several, chosen)] == [None] * len(names)
    assert {overview_of(run).name for run in runs_in(several)} == before - names


def test_a_run_that_trains_is_never_deleted(several):
    (run,) = (each for each in runs_in(several) if each.spec_name == "dev")
    chosen = selected(several, dev=True)
    lock = RunLock(run.root)
    assert {each.name for each in selected(several, dev=True)} == {"old_dev"}
    kept = {each.name: why for each, why in delete(several, chosen)}
    lock.release()
    assert "is being trained by process" in kept["dev"]
    assert kept["old_dev"] is None
    assert run.spec_file.is_file()


def test_nothing_is_deleted_through_a_link(several, tmp_path_factory):
    elsewhere = write_ended(tmp_path_factory.mktemp("elsewhere"), "mine", mode="dev")
    (several / "linked").symlink_to(elsewhere.root)
    inside = write_ended(several, "inside", mode="dev")
    before = selected(several, dev=True)
    (inside.root / "info" / "precious").symlink_to(elsewhere.root)
    assert not {"mine", "inside"} & {run.name for run in selected(several, dev=True)}
    names = {run.name: why for run, why in delete(several, before)}
    assert "mine" not in names
    assert "symbolic link" in names["inside"]
    assert elsewhere.spec_file.is_file()
    assert RunDir.at(inside.root) is not None


def test_a_changed_trial_spec_is_what_a_diff_shows(tmp_path):
    write_ended(tmp_path, "one")
    run = write_ended(tmp_path, "two")
    change_spec(run, lambda content: content["two"]["env"].update(num_envs=9))
    of_spec = diff("one", "two", tmp_path).tables["Differences of the specs"]
    assert ("env.num_envs", "4", "9") in of_spec.rows


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([Status.FINISHED, Status.STOPPED, Status.FAILED], RunStatus.DONE),
        ([Status.FINISHED, None], RunStatus.STOPPED),
        ([Status.FAILED, Status.FAILED], RunStatus.FAILED),
        ([], RunStatus.STOPPED),
    ],
)
def test_the_status_of_a_search_follows_its_record(statuses, expected, tmp_path):
    run = write_run(tmp_path, ppo(), ppo())
    log = EventLog(run.event_log_file)
    for trial, status in enumerate(statuses):
        log.write(Proposed(trial, {}))
        log.write(Began(trial))
        if status is not None:
            log.write(Ended(trial, status, 500, 1.0, 2.0, {}))
    log.close()
    assert overview_of(run).status is expected
    spec = run.trial_spec_file(1).read_bytes()
    run.trial_spec_file(1).write_bytes(spec[:100])
    assert overview_of(run).status is RunStatus.DAMAGED
    run.trial_spec_file(1).write_bytes(spec)
    if statuses:
        lines = run.event_log_file.read_bytes().splitlines(keepends=True)
        run.event_log_file.write_bytes(b"".join(lines[1:]))
        assert overview_of(run).status is RunStatus.DAMAGED


@pytest.mark.parametrize(
    ("search", "meta", "trials"),
    [
        (
            {"agent.algorithm.gamma__grid_search": [0.9, 0.95, 0.99]},
            {"max_trial": 7},
            3,
        ),
        (
            {
                "agent.algorithm.gamma__grid_search": [0.9, 0.95, 0.99],
                "agent.algorithm.lam__grid_search": [0.9, 0.95],
            },
            {"max_session": 2},
            6,
        ),
        (
            {
                "agent.algorithm.gamma__grid_search": [0.9, 0.95, 0.99],
                "agent.algorithm.lam__uniform": [0.9, 0.95],
            },
            {"max_trial": 4},
            6,
        ),
        ({"agent.algorithm.gamma__uniform": [0.9, 0.99]}, {"max_trial": 5}, 5),
        ({"meta.max_session__choice": [1, 2]}, {"max_trial": 5}, None),
        ({"env.max_frame__grid_search": [500, 1000]}, {}, None),
    ],
)
def test_the_budget_of_a_search_is_that_of_all_its_trials_if_they_have_equal_ones(
    search, meta, trials, tmp_path
):
    spec = ppo(search=search, **{f"meta__{key}": value for key, value in meta.items()})
    summary = overview_of(write_run(tmp_path, spec, spec))
    sessions = meta.get("max_session", 1)
    assert summary.budget == (None if trials is None else trials * sessions * 1000)


def test_the_table_of_a_search_is_read_once_it_is_written(tmp_path):
    run = write_run(tmp_path, ppo(), ppo())
    with pytest.raises(UsageError, match=r"has no small_experiment_df\.csv yet"):
        _ = RunRecord(run).trials_table
    table = run.root / "small_experiment_df.csv"
    table.write_text("trial,score\n1,9.5\n0,3.0\n")
    assert RunRecord(run).trials_table["trial"].tolist() == [1, 0]


def test_a_run_names_its_graphs_and_the_files_with_its_results(tmp_path):
    run = write_ended(tmp_path, "small", ppo(meta__max_session=2))
    returns = "small_t0_trial_graph_mean_returns_ma_vs_frames.png"
    of_session = "graph/small_t0_s0_session_graph_loss.png"
    inside = run.root / "confirm_t0" / returns
    inside.parent.mkdir()
    inside.touch()
    for name in (returns, of_session, "small_t0_trial_graph_strength.png"):
        (run.root / name).touch()
    record = RunRecord(run)
    assert {inside, run.root / of_session} < set(record.graphs)
    assert len(record.graphs) == 4
    assert sorted(record.result_files) == sorted(
        [
            run.trial_metrics_file(0),
            run.session(0, 0).rows,
            run.session(0, 1).rows,
            run.root / returns,
        ]
    )
