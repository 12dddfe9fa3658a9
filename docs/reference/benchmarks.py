"""Writes the page of the benchmarks and its graphs, from the data in `benchmark` and
the text of `benchmarks.md` beside this file. A line `{table SUITE}` there becomes a
table, and `{curves SUITE}` a graph.

python docs/reference/benchmarks.py
"""

import re
from collections.abc import Sequence
from pathlib import Path

from slm_lab.charts.write import write_png
from slm_lab.records.training_record import TrainingRecord, read_records
from slm_lab.studies.benchmark.report import BenchmarkReport, markdown

DOCS = Path(__file__).parents[1]
DATA = DOCS.parent / "benchmark"
TEMPLATE = Path(__file__).with_name("benchmarks.md")
PLACE = re.compile(r"^\{(table|curves|speeds) (\w+)\}$", re.MULTILINE)
PICTURES = {"classic": "Learning curves of the shipped specs for classic control"}
"""What a graph shows, by the suite."""


def page(records: Sequence[TrainingRecord]) -> str:
    """The text of the page. Raises KeyError for a suite without data."""
    report = BenchmarkReport(records)

    def filled(place: re.Match[str]) -> str:
        kind, suite = place.groups()
        if suite not in report.suites:
            raise KeyError(f"{TEMPLATE.name} names the suite {suite}, without data")
        if kind == "curves":
            return f"![{PICTURES[suite]}](images/{picture(suite)}.png)"
        table = report.table(suite) if kind == "table" else report.speeds(suite)
        return markdown(table).rstrip()

    return PLACE.sub(filled, TEMPLATE.read_text(encoding="utf-8"))


def picture(suite: str) -> str:
    """The name of the graph of a suite, without its ending."""
    return f"benchmark_{suite}_curves"


def main() -> None:
    """Writes the page and the graphs that it shows."""
    records = read_records(DATA)
    (DOCS / "benchmarks.md").write_text(page(records), encoding="utf-8")
    report = BenchmarkReport(records)
    for suite in PICTURES:
        curves = report.curves(suite)
        assert curves is not None, suite
        write_png(curves, DOCS / "images", picture(suite))


if __name__ == "__main__":
    main()
