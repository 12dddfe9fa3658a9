"""What a search or a comparison has found so far, drawn by the parts of its offline
page."""

from typing import Any

from dash import html

from slm_lab.analysis.compare.graph import dashboard
from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.search.graph import experiment_figure, page
from slm_lab.analysis.search.search_summary import (
    number_text,
    point_texts,
    short_names,
    status_text,
)
from slm_lab.analysis.search.trial_state import ranked
from slm_lab.board.catalog import CatalogEntry
from slm_lab.board.elements import chip, graph, rows_table, section
from slm_lab.board.query import run_link
from slm_lab.core.text import duration_text, error_summary
from slm_lab.records.run_record import RunRecord
from slm_lab.studies.compare import CompareRun
from slm_lab.studies.search.outcomes import summarise

MOST_TRIALS = 200
_WIDE = {"l": 110, "r": 40, "t": 50, "b": 90}
_BARS = {"l": 190, "r": 60, "t": 8, "b": 40}
_SPEEDS = {"l": 60, "r": 14, "t": 12, "b": 64}


def of_search(entry: CatalogEntry) -> Any:
    """The trials, parallel coordinates of all that have a score, and importances."""
    assert entry.run is not None
    found = summarise(RunRecord(entry.run))
    names = short_names([variable.path for variable in found.variables])
    best_first = ranked(found.trials)
    lines = [
        (
            html.A(f"t{each.trial}", href=run_link(entry.name, each.trial)),
            chip(each.status),
            ", ".join(point_texts(each, names)),
            number_text(each.known_score, 4),
            f"{each.frame:,}",
            duration_text(each.seconds),
            error_summary(each.error or each.last_failure or ""),
        )
        for each in best_first[:MOST_TRIALS]
    ]
    header = ("trial", "status", "values", "score", "frame", "time", "error")
    shown = [
        section("Trials", rows_table(header, lines, 2), hint=status_text(found.trials))
    ]
    drawn = experiment_figure(found)
    for part in page(drawn).parts:
        if isinstance(part, fig.Parallel):
            lines_graph = html.Div(
                graph(part, "parallel", 380, margin=_WIDE), className="wide"
            )
            shown.append(
                section("Parallel coordinates", lines_graph, hint="drag along an axis")
            )
        elif isinstance(part, fig.Panel) and part.horizontal:
            bars = graph(part, "importance", 70 + 34 * len(part.bars), margin=_BARS)
            notes = html.P(" ".join(drawn.notes), className="note")
            shown.append(section("Importance of each hyperparameter", bars, notes))
    return shown


def of_comparison(entry: CatalogEntry) -> Any:
    """Its bars, curves and table, of the trainings that have finished."""
    comparison = CompareRun.look(entry.folder).comparison()
    shown: list[Any] = []
    panels = []
    for part in dashboard(comparison).parts:
        if isinstance(part, fig.Panel):
            keys = [
                html.Span(text, style={"color": colour}) for colour, text in part.keys
            ]
            head = html.Figcaption([part.title, " ", *keys])
            drawn = graph(part, part.title, 290, margin=_SPEEDS if part.bars else None)
            panels.append(html.Figure([head, drawn]))
        elif isinstance(part, fig.Table):
            (_, *header), *lines = part.cells
            marks = (
                html.Span("━━", style={"color": colour}) for colour in part.swatches
            )
            shown.append(
                rows_table(
                    ["", *header], [[next(marks), *each[1:]] for each in lines], 1
                )
            )
        elif isinstance(part, fig.TextLine):
            shown.append(html.P(part.text, className="note"))
    return section("Comparison", html.Div(panels, className="panels two"), *shown)
