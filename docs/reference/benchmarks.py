"""Writes the page of the benchmarks and its graphs, from the data in `benchmark` and
the text of `benchmarks.md` beside this file. A line there becomes a table or a graph
of the report: `{table SUITE}`, `{speeds SUITE}`, `{curves SUITE}`, `{times SUITE}`.

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
PLACE = re.compile(r"^\{(table|speeds|curves|times) (\w+)\}$", re.MULTILINE)
GRAPHS = {"curves": "Learning curves", "times": "Learning curves over virtual time"}


def page(records: Sequence[TrainingRecord]) -> str:
    """The text of the page. Raises ValueError if it names a suite without data."""
    report = BenchmarkReport(records)

    def filled(place: re.Match[str]) -> str:
        kind, suite = place.groups()
        if suite not in report.suites:
            raise ValueError(f"{TEMPLATE.name}: {place[0]}: the suite has no data")
        if kind in GRAPHS:
            return f"![{GRAPHS[kind]} of the suite {suite}](images/{picture(place)})"
        return markdown(getattr(report, kind)(suite)).rstrip()

    return PLACE.sub(filled, TEMPLATE.read_text(encoding="utf-8"))


def picture(place: re.Match[str]) -> str:
    """The file name of a graph."""
    kind, suite = place.groups()
    return f"benchmark_{suite}_{kind}.png"


def main() -> None:
    """Writes the page and its graphs."""
    records = read_records(DATA)
    (DOCS / "benchmarks.md").write_text(page(records), encoding="utf-8")
    report = BenchmarkReport(records)
    for place in PLACE.finditer(TEMPLATE.read_text(encoding="utf-8")):
        kind, suite = place.groups()
        if kind in GRAPHS:
            stem = picture(place).removesuffix(".png")
            write_png(getattr(report, kind)(suite), DOCS / "images", stem)


if __name__ == "__main__":
    main()
