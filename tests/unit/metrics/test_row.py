import re
from pathlib import Path

import numpy as np
import pytest

from slm_lab.core.errors import LabError
from slm_lab.metrics.row import BASE_COLUMNS, COLUMNS, Column, Row, resolve_columns
from tests.faults.lab import TIMING_COLUMNS

DOC = Path(__file__).parents[3] / "docs" / "metrics.md"


def documented_columns(heading):
    section = DOC.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    return [
        tuple(row)
        for row in re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \|$", section, re.M)
    ]


@pytest.mark.parametrize(
    ("heading", "names"),
    [("Every session", BASE_COLUMNS), ("Extra columns", COLUMNS.keys() - BASE_COLUMNS)],
)
def test_the_page_on_metrics_shows_the_table_of_columns(heading, names):
    columns = [column for name, column in COLUMNS.items() if name in names]
    assert documented_columns(heading) == [(c.name, c.unit, c.meaning) for c in columns]


def test_every_column_has_a_unit_and_a_meaning():
    assert all(column.unit and column.meaning for column in COLUMNS.values())
    assert set(TIMING_COLUMNS) <= set(COLUMNS)


def test_extra_columns_follow_the_base_columns_in_the_given_order():
    own = Column("novelty", "1", "distance to the nearest visited observation")
    assert resolve_columns(["clip_eps", own]) == (*BASE_COLUMNS, "clip_eps", "novelty")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["aprox_kl"], "did you mean approx_kl"),
        (["loss"], "there already"),
        (["clip_eps", "clip_eps"], "there already"),
        ([Column("a,b", "1", "two")], "break the CSV"),
        ([Column("", "1", "none")], "break the CSV"),
    ],
)
def test_a_column_that_is_undocumented_doubled_or_unwritable_is_refused(extra, message):
    with pytest.raises(LabError, match=message):
        resolve_columns(extra)


def test_a_row_is_read_by_column():
    row = Row(("frame", "loss"), (3, None))
    assert (row["frame"], row["loss"]) == (3, None)


def test_an_empty_cell_is_none_and_numpy_scalars_are_plain_numbers():
    cells = (None, np.int64(3), np.float64(0.1), np.float32(0.75), np.uint8(4), 2.0, 7)
    assert Row(tuple("abcdefg"), cells).to_csv() == ",3,0.1,0.75,4,2.0,7"
