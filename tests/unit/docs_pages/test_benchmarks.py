"""The page of the benchmarks says what the data say."""

import runpy
from pathlib import Path

import pytest

from slm_lab.records.training_record import read_records
from slm_lab.studies.benchmark.suite import read_suite

DOCS = Path(__file__).parents[3] / "docs"
BENCHMARKS = "benchmarks.md"
DATA = DOCS.parent / "benchmark"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(DOCS / "reference" / "benchmarks.py"))


@pytest.fixture(scope="module")
def page(script):
    return script["page"]


@pytest.fixture(scope="module")
def records():
    return read_records(DATA)


@pytest.mark.parametrize("name", [BENCHMARKS, "tuning_log.md"])
def test_a_page_is_up_to_date(page, records, name):
    assert (DOCS / name).read_text(encoding="utf-8") == page(name, records), (
        "run: python docs/reference/benchmarks.py"
    )


def test_pages_show_the_tables_that_their_markers_name(script):
    compared = set[str]()
    for file in DOCS.rglob("*.md"):
        text = file.read_text(encoding="utf-8")
        assert text == script["with_tables"](text), (
            "run: python docs/reference/benchmarks.py"
        )
        markers = script["IN_PLACE"].findall(text)
        compared |= {name for _, kind, name in markers if kind == "compared"}
    assert compared == {folder.name for folder in DATA.glob("compared/*")}


def test_without_one_of_its_trainings_the_page_has_another_table(page, records):
    assert page(BENCHMARKS, records[1:]) != page(BENCHMARKS, records)


def test_a_suite_without_data_is_named(page, records):
    others = [record for record in records if record.suite != "classic"]
    with pytest.raises(ValueError, match=r"classic.*has no data"):
        page(BENCHMARKS, others)


def test_every_training_is_one_that_its_suite_has(records):
    """A row that has gone, or another seed, belongs to no result of the docs."""
    suites = {record.suite for record in records}
    planned = {
        (suite, row.name, seed)
        for suite in suites
        for row in read_suite(suite).rows
        for seed in row.seeds
    }
    assert {(r.suite, r.row, r.seed) for r in records} <= planned


def test_the_data_are_small():
    size = sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file())
    assert size <= 20e6
