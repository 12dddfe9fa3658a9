"""Draws every metric over every variable of a search on its page, as dots."""

import html
from typing import Any

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.html_band import (
    HEADING,
    LETTER,
    MARGIN,
    PAGE_WIDTH,
    Band,
    axis_key,
    heading,
    nth,
    short,
    words_at,
)
from slm_lab.analysis.figure.page import numbers
from slm_lab.analysis.figure.render_html import axis_of, note_at
from slm_lab.analysis.search.experiment_figure import AxisOf, ExperimentFigure, number, point_texts

_ROWS = {1: 380, 2: 290, 3: 230}  # pixels of a row of dots, where there are so many
_LOW = 180  # where there are more
_COLUMN_GAP, _ROW_GAP = 0.02, 16  # a share of the page's plot, and pixels
_TICK_LETTER = 7.5
_DOT, _SMALL_DOT = 9, 6
_MANY = 4000  # dots, which are small, and which a browser draws by WebGL


def dots_height(figure: ExperimentFigure) -> int:
    """Pixels that the panels and the words around them take."""
    rows = len(figure.metrics) if figure.metrics and figure.variables else 1
    return rows * _ROWS.get(rows, _LOW) + HEADING + _foot(figure)


def draw_dots(layout: dict[str, Any], figure: ExperimentFigure, band: Band) -> list[dict[str, Any]]:
    """A panel for each metric over each variable; zooming into one acts on its row and column."""
    hint = "● whole budget spent   ○ stopped early, or not ended"
    layout["annotations"].append(heading("Every metric over every variable", band, hint))
    rows, columns = len(figure.metrics), len(figure.variables)
    if not rows or not columns:
        words = "no results yet" if columns else "nothing is varied"
        layout["annotations"].append(note_at(words, 0.5, band.middle))
        return []
    top, bottom = band.below_top(HEADING), band.above_foot(_foot(figure))
    high, wide = (top - bottom) / rows, (1 + _COLUMN_GAP) / columns
    letters = int(wide * PAGE_WIDTH / LETTER)
    for j, axis in enumerate(figure.variables):
        across = [j * wide, (j + 1) * wide - _COLUMN_GAP]
        x_axis = {**_x_axis(axis, columns), "domain": across, "anchor": nth("y", rows - 1)}
        layout[axis_key(nth("x", j))] = x_axis
        name = html.escape(short(axis.name, letters))
        note = f'<span style="font-size:12px;color:{look.MUTED}">{axis.note}</span>'
        head = {**words_at("", across[0], top, size=14), "text": f"<b>{name}</b><br>{note}"}
        foot = {**words_at("", sum(across) / 2, band.foot, look.MUTED, 14), "text": name}
        layout["annotations"].append({**head, "yanchor": "bottom"})
        layout["annotations"].append({**foot, "xanchor": "center", "yanchor": "bottom"})
    for i, axis in enumerate(figure.metrics):
        domain = [top - (i + 1) * high + _ROW_GAP / band.whole, top - i * high]
        y_axis = {**axis_of(axis.scale.ends, ticks=5, empty=False), "domain": domain}
        layout[axis_key(nth("y", i))] = {**y_axis, "anchor": "x", "tickfont": {"size": 12}}
        side = {**words_at(axis.name, 0.0, sum(domain) / 2, size=14), "textangle": -90}
        layout["annotations"].append({**side, "yanchor": "middle", "xshift": -MARGIN["l"] + 28})
    return _dot_traces(figure)


def _upwards(axis: AxisOf, columns: int) -> int:
    """Letters of the longest category, where they have no room side by side; 0 where they have."""
    if not axis.scale.categories:
        return 0
    longest = max(len(text) for _, text in axis.scale.ticks)
    room = PAGE_WIDTH / columns / len(axis.scale.ticks)
    return longest if (longest + 1) * _TICK_LETTER > room else 0


def _foot(figure: ExperimentFigure) -> int:
    """Pixels of the words below the dots."""
    letters = [_upwards(axis, len(figure.variables)) for axis in figure.variables]
    return round(_TICK_LETTER * max([*letters, 2])) + 28


def _x_axis(axis: AxisOf, columns: int) -> dict[str, Any]:
    scale = axis.scale
    turned = {"tickangle": -90 if _upwards(axis, columns) else 0, "tickfont": {"size": 12}}
    found = {**axis_of(scale.ends, ticks=5 if columns < 6 else 4, empty=False), **turned}
    if scale.ticks:
        places, texts = zip(*scale.ticks, strict=True)
        found["tickvals"] = [10.0**place for place in places] if scale.log else list(places)
        found["ticktext"] = [html.escape(text) for text in texts]
    if scale.log:
        found["type"] = "log"
    return {**found, "tickformat": "d"} if scale.whole else found


def _dot_traces(figure: ExperimentFigure) -> list[dict[str, Any]]:
    """For each panel the hollow dots and, before them, the filled ones."""
    many = len(figure.trials) * len(figure.variables) * len(figure.metrics) > _MANY
    texts = [_hover(figure, i, short=many) for i in range(len(figure.trials))]
    traces = []
    for symbol, filled in (("circle-open", False), ("circle", True)):
        these = [i for i, each in enumerate(figure.filled) if each == filled]
        marker = {
            "color": [figure.shading.colours[i] for i in these],
            "symbol": symbol,
            "size": _SMALL_DOT if many else _DOT,
            "line": {"width": 0 if filled else 1.5},
        }
        for j, variable in enumerate(figure.variables if these else ()):
            scale = variable.scale
            at = 10.0**scale.at if scale.log else scale.beside
            traces += [
                {
                    "type": "scattergl" if many else "scatter",
                    "mode": "markers",
                    "x": numbers(at[these]),
                    "y": numbers(metric.scale.at[these]),
                    "text": [texts[k] for k in these],
                    "marker": marker,
                    "hovertemplate": f"%{{text}}<br>{metric.name} %{{y:.4~g}}<extra></extra>",
                    "xaxis": nth("x", j),
                    "yaxis": nth("y", i),
                }
                for i, metric in enumerate(figure.metrics)
            ]
    return traces


def _hover(figure: ExperimentFigure, index: int, *, short: bool) -> str:
    """Which Trial a dot is and its score; and its point, unless that has to be `short`."""
    trial = figure.trials[index]
    lines = [f"trial {trial.trial}, {trial.status}", f"score {number(trial.known_score)}"]
    if not short:
        lines += point_texts(trial, figure.names)
    return "<br>".join(map(html.escape, lines))
