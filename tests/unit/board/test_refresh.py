"""Parts of pages are made from new rows, and only when needed."""

import sys

import pytest

from slm_lab.board.app import make_app
from slm_lab.board.refresh import PagePart, Parts
from slm_lab.cli.board import show_board
from slm_lab.core.errors import MissingExtraError, UsageError
from slm_lab.metrics.reader import RowFile
from slm_lab.records.run_record import RowCache
from tests.unit.records.runs import write_run


def test_a_part_is_made_again_only_when_its_stamp_changes(monkeypatch):
    monkeypatch.setattr("slm_lab.board.refresh.SHARE", float("inf"))
    made = Parts()
    first = made.get("x", PagePart((1,), object))
    assert made.get("x", PagePart((1,), object)) is first
    assert made.get("x", PagePart((2,), object)).serial != first.serial
    # after a restart
    assert Parts().get("x", PagePart((1,), object)).serial != first.serial


def test_a_part_that_takes_long_waits_before_it_is_made_again(monkeypatch):
    monkeypatch.setattr("slm_lab.board.refresh.SHARE", 1e-12)
    made = Parts()
    first = made.get("x", PagePart((1,), object))
    assert made.get("x", PagePart((2,), object)) is first


def test_rows_are_read_in_parts(tmp_path, monkeypatch):
    paths = write_run(tmp_path).session(0, 0)
    *lines, last = paths.rows.read_text().splitlines(keepends=True)
    paths.rows.write_text("".join(lines))
    live, read = RowCache(), []
    new_rows = RowFile.new_rows

    def counted(reader):
        rows = new_rows(reader)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(RowFile, "new_rows", counted)
    assert len(live.read(paths, paths.rows)) == len(lines) - 1
    with paths.rows.open("a") as file:
        file.write(last)
    assert len(live.read(paths, paths.rows)) == len(lines)
    live.read(paths, paths.rows)
    assert read == [len(lines) - 1, 1]


def test_damaged_rows_are_an_error(tmp_path):
    paths = write_run(tmp_path).session(0, 0)
    with paths.rows.open("a") as file:
        file.write("no,number\n")
    with pytest.raises(UsageError, match=f"cannot be read: {paths.rows}, line"):
        RowCache().read(paths, paths.rows)


def test_a_damaged_file_is_reported_where_the_page_would_show_it(tmp_path):
    run = write_run(tmp_path)
    run.session(0, 0).rows.write_text("frame\nx\n")
    names = ["head", "panels", "log"]
    asked = {
        "output": '..{"part":["ALL"]}.children...{"grid":["ALL"]}.rowData'
        "...seen.data...answered.data..",
        "outputs": [
            [{"id": {"part": name}, "property": "children"} for name in names],
            [],
            {"id": "seen", "property": "data"},
            {"id": "answered", "property": "data"},
        ],
        "inputs": [
            [
                {"id": {"part": n}, "property": "id", "value": {"part": n}}
                for n in names
            ],
            {"id": "url", "property": "search", "value": f"?run={run.root.name}"},
            {"id": "tick", "property": "n_intervals", "value": 1},
        ],
        "changedPropIds": ["tick.n_intervals"],
        "state": [
            [],
            {"id": "url", "property": "pathname", "value": "/run"},
            {"id": "seen", "property": "data", "value": {}},
        ],
    }
    answer = (
        make_app(tmp_path)
        .server.test_client()
        .post("/_dash-update-component", json=asked)
    )
    text = answer.get_data(as_text=True)
    assert answer.status_code == 200, text
    assert "cannot be read" in text
    assert run.root.name in text


def test_without_the_extra_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dash", None)
    with pytest.raises(MissingExtraError, match=r'pip install "slm-lab\[board\]"'):
        show_board(tmp_path, None, no_open=True)
