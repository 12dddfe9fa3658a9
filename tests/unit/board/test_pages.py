"""The pages of the board: every part of them, for whole and for damaged runs."""

import json
import os
from operator import itemgetter

import pytest

from slm_lab.board import run_page, runs_page
from slm_lab.board.app import make_board
from slm_lab.board.query import Query
from slm_lab.board.runs_page import grid_part
from slm_lab.core.errors import UsageError
from slm_lab.records.annotations import annotate
from slm_lab.records.catalog import Catalog
from slm_lab.records.comparison import COMPARISON_LOG, KINDS
from slm_lab.records.overview import RunStatus
from tests.support import ppo
from tests.unit.records.runs import write_comparison, write_ended, write_run
from tests.unit.records.test_catalog import log_two_trials


@pytest.mark.parametrize("file", ["trial_metrics_file", "trial_spec_file"])
def test_a_run_with_a_damaged_file_reports_it_and_shows_the_rest(tmp_path, file):
    run = write_ended(tmp_path, "spoilt")
    getattr(run, file)(0).write_text('{"sess')
    entry = Catalog(tmp_path).entries()[run.root.name]
    assert (entry.overview.status, entry.problem) == (RunStatus.DAMAGED, "")
    parts = run_page.parts(Catalog(tmp_path), Query(run=run.root.name))
    assert {"head", "panels", "log", "files"} <= set(parts)


def test_a_ticked_run_without_a_curve_is_listed_with_the_reason(tmp_path):
    runs = [write_ended(tmp_path, "drawn"), write_run(tmp_path, name="empty", rows=0)]
    runs.append(write_ended(tmp_path, "broken"))
    runs[2].spec_file.write_text("{")
    query = Query(runs=tuple(run.root.name for run in runs))
    shown = runs_page.parts(Catalog(tmp_path), query)["curves"].make()
    assert [each.children for each in shown.children[-2:]] == [
        f"{runs[2].root.name}: its spec file cannot be read",
        f"{runs[1].root.name}: no values of mean return yet",
    ]


def test_every_part_of_the_pages_of_whole_runs_can_be_made(tmp_path):
    names = tuple(write_ended(tmp_path, name).root.name for name in ("one", "two"))
    for page, query in (
        (runs_page, Query(runs=names)),
        (run_page, Query(run=names[0])),
    ):
        parts = page.parts(Catalog(tmp_path), query)
        assert all(parts[name].make() is not None for name in parts)


def test_the_page_of_a_search_names_the_trial_that_it_shows(tmp_path):
    run = write_run(tmp_path, ppo(), ppo())
    log_two_trials(run)
    for query, is_named in (
        (Query(run=run.root.name), True),
        (Query((), run.root.name, "1"), False),
    ):
        panels = run_page.parts(Catalog(tmp_path), query)["panels"].make()
        assert ("trial 1, the best so far" in str(panels)) is is_named


def test_runs_inside_of_another_sort_below_it(tmp_path):
    outer = write_ended(tmp_path, "outer", started="2026-11-22T04:00:00+00:00")
    write_ended(tmp_path, "older", started="2026-11-21T04:00:00+00:00")
    inner = write_ended(outer.root, "inner", started="2026-11-23T04:00:00+00:00")
    write_ended(tmp_path, "newer", started="2026-11-24T04:00:00+00:00")
    rows = sorted(
        grid_part(Catalog(tmp_path)).make(), key=itemgetter("started"), reverse=True
    )
    names = [row["run"].split("_")[0] for row in rows]
    assert names == ["newer", "outer", "outer", "older"]
    assert rows[2]["run"].endswith(f"/{inner.root.name}")


def test_a_folder_name_that_is_not_utf8_is_shown_escaped(tmp_path):
    good = write_ended(tmp_path, "good")
    run = write_ended(tmp_path, "odd")
    run.root.rename(os.fsdecode(os.fsencode(run.root) + b"\xff"))
    rows = grid_part(Catalog(tmp_path)).make()
    assert sorted(row["run"] for row in rows) == [
        good.root.name,
        f"{run.root.name}\\xff",
    ]
    assert all(json.dumps(row, ensure_ascii=False).encode() for row in rows)


def test_new_runs_appear_and_deleted_ones_go(tmp_path, monkeypatch):
    monkeypatch.setattr("slm_lab.records.catalog.PAUSE", 0.0)
    catalog = Catalog(tmp_path)
    assert not catalog.entries()
    run = write_run(tmp_path)
    stamp = grid_part(catalog).stamp
    assert list(catalog.entries()) == [run.root.name]
    run.root.rename(tmp_path.parent / "elsewhere")
    assert grid_part(catalog).stamp != stamp


def test_the_page_of_a_run_that_was_deleted_says_so(tmp_path):
    shown = run_page.parts(Catalog(tmp_path), Query(run="gone"))
    assert shown["head"].make().children == "there is no run gone"


def test_a_folder_that_is_absent_and_a_port_that_is_taken_are_one_clear_error(tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        make_board(tmp_path / "absent", None)
    server, address = make_board(tmp_path, None)
    try:
        port = int(address.rstrip("/").rpartition(":")[2])
        server_two, other = make_board(tmp_path, None)
        server_two.server_close()
        assert other != address
        with pytest.raises(UsageError, match=f"--port {port}: .*choose another one"):
            make_board(tmp_path, port)
    finally:
        server.server_close()


def test_the_page_that_a_search_has_drawn_is_framed_and_loaded_again_after_a_change(
    tmp_path,
):
    run = write_run(tmp_path, ppo(), ppo())
    log_two_trials(run)

    def frames():
        parts = run_page.parts(Catalog(tmp_path), Query(run=run.root.name))
        return parts["results"].stamp, [
            each.src for each in parts["results"].make()[1:]
        ]

    assert frames()[1] == []
    drawn = run.root / "small_experiment_graph.html"
    drawn.write_text("first")
    stamp, (first,) = frames()
    assert first.startswith(f"/files/{run.root.name}/small_experiment_graph.html?")
    os.utime(drawn, ns=(1, 1))
    new_stamp, (second,) = frames()
    assert first != second
    assert stamp != new_stamp


RESUMES = {
    "compare": "slm-lab compare --resume {folder}",
    "ab": "slm-lab ab --resume {folder}",
    "treat": "slm-lab doctor /elsewhere/ill --treat --frames 4000 --data {data}",
}
"""How a comparison is resumed, by the word of its kind."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.word)
@pytest.mark.parametrize("names_kind", [True, False])
def test_the_page_of_a_comparison_resumes_it_and_frames_its_page_without_a_result(
    tmp_path, kind, names_kind
):
    folder = write_comparison(tmp_path, kind, names_kind)
    (folder / f"small_{kind.word}.html").write_text("drawn")
    parts = run_page.parts(Catalog(tmp_path), Query(run=folder.name))
    command = RESUMES[kind.word].format(folder=folder, data=tmp_path)
    assert f"'{command}'" in str(parts["commands"].make())
    (frame,) = parts["results"].make()
    assert frame.src.startswith(f"/files/{folder.name}/small_{kind.word}.html?")


def test_the_page_of_a_comparison_says_why_its_log_cannot_be_read(tmp_path):
    folder = write_comparison(tmp_path, KINDS[0])
    (folder / "small_compare.html").write_text("drawn")
    log = folder / COMPARISON_LOG.format("small")
    log.write_text('{"event": "began", "trial": 0}\n')
    entry = Catalog(tmp_path).entries()[folder.name]
    assert (entry.overview.status, entry.problem) == (RunStatus.DAMAGED, "")
    parts = run_page.parts(Catalog(tmp_path), Query(run=folder.name))
    reason, frame = parts["results"].make()
    assert reason.children == (
        f"{log}, line 1, is no event: no line before it proposes t0"
    )
    assert frame.src.startswith(f"/files/{folder.name}/small_compare.html?")


def test_the_table_has_tags_and_the_keys_that_differ(tmp_path):
    for i, gamma in enumerate((0.9, 0.95)):
        run = write_ended(tmp_path, f"run{i}", ppo(agent__algorithm__gamma=gamma))
    annotate(run, add=["good", "old"])
    page = runs_page.layout(Catalog(tmp_path), Query())
    grid = page[1]
    field = "param/agent/algorithm/gamma"
    assert field in [column["field"] for column in grid.columnDefs]
    rows = {row["run"]: row for row in grid.rowData}
    assert rows[run.root.name]["tags"] == "good, old"
    assert sorted(row[field] for row in rows.values()) == [0.9, 0.95]


def test_a_tag_appears_on_a_page_that_is_open(tmp_path):
    run = write_ended(tmp_path, "run")
    catalog = Catalog(tmp_path)
    before = grid_part(catalog)
    annotate(run, add=["new"])
    catalog._due = 0.0
    after = grid_part(catalog)
    assert after.stamp != before.stamp
    assert after.make()[0]["tags"] == "new"


def test_runs_are_grouped_by_a_key(tmp_path):
    names = []
    for i, (gamma, seed) in enumerate([(0.9, 0), (0.9, 1), (0.95, 0)]):
        spec = ppo(agent__algorithm__gamma=gamma, meta__random_seed=seed)
        names.append(write_ended(tmp_path, f"run{i}", spec).root.name)
    key = "agent.algorithm.gamma"
    query = Query.parse(f"?{'&'.join(f'runs={name}' for name in names)}&group={key}")
    parts = runs_page.parts(Catalog(tmp_path), query)
    shown = str(parts["endings"].make())
    assert "gamma 0.9" in shown
    assert "gamma 0.95" in shown
    assert "run0" not in shown
    assert parts["curves"].make() is not None
    assert key in str(parts["controls"].make())
