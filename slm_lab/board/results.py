"""What a search or a comparison has found so far, drawn by the parts of its offline
page."""

from typing import Any

from dash import html

from slm_lab.board.catalog import CatalogEntry
from slm_lab.board.elements import (
    MARGIN,
    chart_graph,
    chip,
    panel_graph,
    rows_table,
    section,
)
from slm_lab.board.query import run_link
from slm_lab.charts.comparison import dashboard
from slm_lab.charts.look import colour
from slm_lab.charts.search import search_charts
from slm_lab.charts.search_summary import (
    number_text,
    point_texts,
    short_names,
    status_text,
)
from slm_lab.core.text import duration_text, error_summary
from slm_lab.metrics.trial_state import ranked
from slm_lab.records.run_record import RunRecord
from slm_lab.studies.compare import CompareRun
from slm_lab.studies.search.outcomes import summarise

MOST_TRIALS = 200
_WIDE = {"l": 110, "r": 40, "t": 110, "b": 20}
_BARS = {"l": 190, "r": 60, "t": 8, "b": 40}
_SPEEDS = {"l": 60, "r": 14, "t": 12, "b": 84}


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
    charts = search_charts(found)
    if charts.parallel.shading is not None:
        lines_graph = chart_graph(charts.parallel, "parallel", 400, margin=_WIDE)
        wide = html.Div(lines_graph, className="wide")
        shown.append(section("Parallel coordinates", wide, hint="drag along an axis"))
    (panel,) = charts.importance.panels
    if panel.bars:
        height = 70 + 34 * len(panel.bars)
        bars = panel_graph(panel, "importance", height, margin=_BARS)
        notes = html.P(" ".join(charts.importance.notes), className="note")
        shown.append(section("Importance of each hyperparameter", bars, notes))
    return shown


def of_comparison(entry: CatalogEntry) -> Any:
    """Its bars, curves and table, of the trainings that have finished."""
    chart = dashboard(CompareRun.look(entry.folder).comparison())
    panels = []
    for panel in chart.panels:
        head = html.Figcaption([panel.title, " ", html.Span(panel.hint)])
        margin = MARGIN
        if panel.bars:
            margin = _SPEEDS
        drawn = panel_graph(panel, panel.title, 290, margin=margin)
        panels.append(html.Figure([head, drawn]))
    assert chart.table is not None
    header, *lines = chart.table.cells
    marked = [
        [html.Span(mark, style={"color": colour(*ink)}), *cells]
        for ink, (mark, *cells) in zip(chart.table.inks, lines, strict=True)
    ]
    table = rows_table(header, marked, words=1)
    notes = [html.P(note, className="note") for note in chart.notes]
    return section(
        "Comparison", html.Div(panels, className="panels two"), table, *notes
    )
