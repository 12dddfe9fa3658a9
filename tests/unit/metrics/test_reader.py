from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.metrics.reader import NO_ROWS, TAIL, DamagedRowsError, RowFile, read_rows
from slm_lab.metrics.row import BASE_COLUMNS, EVAL_COLUMNS, Row
from slm_lab.metrics.writer import RowWriter

CELLS = st.none() | st.floats(allow_nan=False) | st.integers(-(2**53), 2**53)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "session_df.csv"


def write(path, columns, *rows):
    with closing(RowWriter(path, columns)) as writer:
        for cells in rows:
            writer.append(Row(columns, tuple(cells)))


@given(cells=st.lists(st.tuples(CELLS, CELLS), max_size=20))
def test_written_values_are_read_back_bit_for_bit(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("csv") / "session_df.csv"
    write(path, ("frame", "loss"), *cells)
    rows = read_rows(path)
    assert rows.columns == ("frame", "loss")
    assert len(rows) == len(cells)
    for column, written in zip(rows.columns, zip(*cells, strict=True), strict=False):
        expected = [np.nan if cell is None else float(cell) for cell in written]
        np.testing.assert_array_equal(rows[column], expected)
        assert np.array_equal(np.signbit(rows[column]), np.signbit(expected))


def test_a_column_is_a_read_only_float64_array(path):
    write(path, ("frame", "loss"), (500, 0.5), (1000, None))
    frame = read_rows(path)["frame"]
    assert (frame.dtype, frame.shape) == (np.float64, (2,))
    with pytest.raises(ValueError, match="read-only"):
        frame[0] = 0


def test_a_column_has_values_when_any_cell_is_filled(path):
    write(path, ("frame", "loss", "lr"), (500, None, None), (1000, 0.5, None))
    rows = read_rows(path)
    assert [rows.has_values(column) for column in rows.columns] == [True, True, False]
    assert not any(NO_ROWS.has_values(column) for column in NO_ROWS.columns)
    with pytest.raises(KeyError, match="entropy"):
        rows.has_values("entropy")


@pytest.mark.parametrize("text", ["", "frame,to"])
def test_a_file_without_a_header_is_a_session_without_rows(path, text):
    path.write_text(text)
    rows = read_rows(path)
    assert (rows.columns, len(rows)) == (BASE_COLUMNS, 0)


@pytest.mark.parametrize("columns", [BASE_COLUMNS, EVAL_COLUMNS])
def test_a_header_alone_names_the_columns(path, columns):
    write(path, columns)
    rows = read_rows(path)
    assert (rows.columns, len(rows)) == (columns, 0)
    assert rows["frame"].shape == (0,)


@pytest.mark.parametrize("half", ["6", "600,", "600,0.25"])
def test_a_last_line_that_is_still_being_written_is_left_out(path, half):
    path.write_text(f"frame,loss\n500,0.5\n{half}")
    assert read_rows(path)["frame"].tolist() == [500]


def test_lines_may_end_as_an_editor_of_another_system_leaves_them(path):
    path.write_bytes(b"frame,loss\r\n500,0.5\r\n")
    rows = read_rows(path)
    assert rows.columns == ("frame", "loss")
    assert rows["loss"].tolist() == [0.5]


def test_a_missing_file_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        read_rows(path)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1000,high", 'column loss: "high" is no number'),
        ("1000", "cells: 1, columns: 2"),
        ("1000,0.5,7", "cells: 3, columns: 2"),
    ],
)
def test_a_line_that_is_no_row_is_an_error_that_says_where(path, line, fault):
    path.write_text(f"frame,loss\n500,0.5\n{line}\n")
    with pytest.raises(DamagedRowsError, match=f"session_df.csv, line 3: {fault}"):
        read_rows(path)


def test_a_file_of_something_else_is_an_error_that_says_so(path):
    path.write_text("garbage\n")
    with pytest.raises(
        DamagedRowsError, match=r"session_df\.csv, line 1: has no column frame"
    ):
        read_rows(path)


def test_the_last_row_is_read_below_a_header_of_any_length(path):
    columns = ("frame", *(f"info_{i:0100d}" for i in range(700)))
    write(path, columns, range(701), range(1, 702))
    assert len(",".join(columns)) > TAIL
    assert RowFile(path).last_row() == dict(zip(columns, range(1, 702), strict=True))
