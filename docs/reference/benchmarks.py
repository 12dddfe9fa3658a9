"""Writes the pages about results and their graphs, from the data in `benchmark` and the
texts beside this file. A line there becomes a table or a graph: `{table SUITE}`,
`{speeds SUITE}`, `{curves SUITE}`, `{times SUITE}` of the report, `{settings NAME}` of
a file in `benchmark/tuning`. Other pages are filled in place: the table below
`<!-- compared NAME -->` is the one that a comparison in `benchmark/compared` printed,
that below `<!-- settings NAME -->` has the settings of a file.

python docs/reference/benchmarks.py
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from slm_lab.charts.speeds import text_table
from slm_lab.charts.write import write_png
from slm_lab.records.table import read_table
from slm_lab.records.training_record import TrainingRecord, read_records
from slm_lab.studies.benchmark.report import BenchmarkReport, markdown

DOCS = Path(__file__).parents[1]
DATA = DOCS.parent / "benchmark"
PAGES = ("benchmarks.md", "tuning_log.md")
PLACE = re.compile(r"^\{(table|speeds|curves|times|settings) (\w+)\}$", re.MULTILINE)
IN_PLACE = re.compile(
    r"^(<!-- (compared|settings) (\w+) -->\n\n)(?:\|.*\n)*", re.MULTILINE
)
GRAPHS = {"curves": "Learning curves", "times": "Learning curves over virtual time"}


def template(name: str) -> str:
    """The text from which a page is made."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def page(name: str, records: Sequence[TrainingRecord]) -> str:
    """The text of a page. Raises ValueError if it names a suite without data."""
    report = BenchmarkReport(records)

    def filled(place: re.Match[str]) -> str:
        kind, source = place.groups()
        if kind == "settings":
            return settings(source)
        if source not in report.suites:
            raise ValueError(f"{name}: {place[0]}: the suite has no data")
        if kind in GRAPHS:
            return f"![{GRAPHS[kind]} of the suite {source}](images/{picture(place)})"
        return markdown(getattr(report, kind)(source)).rstrip()

    return PLACE.sub(filled, template(name))


def settings(name: str) -> str:
    """A table of settings that were compared, a line each."""
    file = DATA / "tuning" / f"{name}.csv"
    with file.open(newline="", encoding="utf-8") as lines:
        header, *rows = csv.reader(lines)
    table = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in table)


def with_tables(text: str) -> str:
    """The text of a page with the tables that its markers name."""

    def filled(place: re.Match[str]) -> str:
        marker, kind, name = place.groups()
        if kind == "settings":
            return f"{marker}{settings(name)}\n"
        summary = read_table(DATA / "compared" / name / "summary.csv")
        return marker + markdown(text_table(summary))

    return IN_PLACE.sub(filled, text)


def picture(place: re.Match[str]) -> str:
    """The file name of a graph."""
    kind, suite = place.groups()
    return f"benchmark_{suite}_{kind}.png"


def main() -> None:
    """Writes the pages, their graphs, and tables into other pages."""
    records = read_records(DATA)
    report = BenchmarkReport(records)
    for name in PAGES:
        (DOCS / name).write_text(page(name, records), encoding="utf-8")
        for place in PLACE.finditer(template(name)):
            kind, suite = place.groups()
            if kind in GRAPHS:
                stem = picture(place).removesuffix(".png")
                write_png(getattr(report, kind)(suite), DOCS / "images", stem)
    for file in (*DOCS.glob("*.md"), *DOCS.glob("tutorial/*.md")):
        text = file.read_text(encoding="utf-8")
        file.write_text(with_tables(text), encoding="utf-8")


if __name__ == "__main__":
    main()
