"""The runs of a data folder: damaged and hostile ones hide no other."""

import os

import pytest

from slm_lab.metrics.trial_state import Status
from slm_lab.records.catalog import Catalog
from slm_lab.records.comparison import AB
from slm_lab.records.event_log import Began, Ended, EventLog, Proposed
from slm_lab.records.lookup import find_trials
from slm_lab.records.overview import RunStatus
from tests.support import ppo
from tests.unit.records.runs import write_comparison, write_ended, write_run


def _no_spec(run):
    run.spec_file.unlink()
    run.trial_spec_file(0).unlink()


def _broken_spec(run):
    run.spec_file.write_text('{"small": [')


def _wrong_types(run):
    run.spec_file.write_text('{"small": {"env": 3, "meta": [], "agent": null}}')
    run.trial_metrics_file(0).write_text(
        '{"num_sessions": {}, "sessions": 7, "final_return": []}'
    )


def _link_out(run):
    (run.root / "info" / "out.csv").symlink_to("/etc/passwd")


def _folder_leads_out(run):
    (run.root / "video").symlink_to("/etc")


def _pipe(run):
    os.mkfifo(run.root / "info" / "small_t0_s1_session_df_train.csv")


def _control_characters(run):
    run.root.rename(run.root.with_name("new\nline_2026_11_22_040000"))


def _binary_rows(run):
    run.session(0, 0).rows.write_bytes(bytes(range(256)) * 20)


@pytest.mark.parametrize(
    ("spoil", "has_page"),
    [
        (_no_spec, False),
        (_broken_spec, False),
        (_wrong_types, False),
        (_link_out, False),
        (_folder_leads_out, False),
        (_pipe, False),
        (_control_characters, False),
        (_binary_rows, True),
    ],
)
def test_a_damaged_run_hides_no_other(tmp_path, spoil, has_page):
    bad = write_run(tmp_path, stamp="2026_11_22_040000")
    good = write_ended(tmp_path, "good")
    spoil(bad)
    found = Catalog(tmp_path).entries()
    assert found[good.root.name].overview.status is RunStatus.DONE
    (entry,) = (each for name, each in found.items() if name != good.root.name)
    assert entry.overview.status is RunStatus.DAMAGED
    assert bool(entry.problem) is not has_page


def log_two_trials(run):
    """As a search whose trials have finished, the second with the better score."""
    log = EventLog(run.event_log_file)
    for trial in (0, 1):
        for event in (
            Proposed(trial, {}),
            Began(trial),
            Ended(trial, Status.FINISHED, 9, trial, 1.0, {}),
        ):
            log.write(event)
    log.close()


@pytest.mark.parametrize("number", ["", "0", "1"])
def test_the_trial_of_an_entry_is_found_without_a_look_at_other_runs(
    number, tmp_path, monkeypatch
):
    run = write_run(tmp_path, ppo(), ppo(meta__max_session=2))
    write_ended(tmp_path, "other")
    log_two_trials(run)
    entry = Catalog(tmp_path).entries()[run.root.name]
    (expected,) = find_trials(f"{run.root}:t{number or 1}", tmp_path)

    def refuse(*_):
        raise AssertionError("it looked for the run in the whole folder")

    monkeypatch.setattr("slm_lab.records.lookup.find_folder", refuse)
    monkeypatch.setattr("slm_lab.records.lookup.runs_in", refuse)
    assert entry.trial(number).key == expected.key


def test_the_catalog_writes_nothing(tmp_path):
    run = write_run(tmp_path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    assert run.root.name in Catalog(tmp_path).entries()
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before


def test_a_summary_is_made_again_only_when_files_of_its_run_change(
    tmp_path, monkeypatch
):
    runs = [write_run(tmp_path, name=name) for name in ("one", "two")]
    catalog = Catalog(tmp_path)
    monkeypatch.setattr("slm_lab.records.catalog.PAUSE", 0.0)
    first = dict(catalog.entries())
    assert catalog.entries() == first
    with runs[0].session(0, 0).rows.open("a") as file:
        file.write("\n")
    now = catalog.entries()
    changed = [name for name, entry in now.items() if entry is not first[name]]
    assert changed == [runs[0].root.name]


def test_a_run_names_its_pages_and_tables_but_not_those_of_runs_inside(tmp_path):
    run = write_run(tmp_path, ppo(), ppo())
    names = ("small_experiment_graph.html", "graph/a.html", "small_experiment_df.csv")
    for name in (*names, "small_experiment_graph.png", "info/rows.csv"):
        (run.root / name).touch()
    entry = Catalog(tmp_path).entries()[run.root.name]
    assert entry.pages == [run.root / names[0]]
    assert entry.offline_files == [run.root / name for name in names]


def test_a_comparison_names_the_page_of_its_kind(tmp_path):
    folder = write_comparison(tmp_path, AB)
    entry = Catalog(tmp_path).entries()[folder.name]
    assert entry.pages == []
    for word in ("ab", "compare"):
        (folder / f"small_{word}.html").touch()
    assert entry.pages == [folder / "small_ab.html"]
