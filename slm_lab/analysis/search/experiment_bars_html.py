"""Draws the importance of each variable of a search on its page, as bars."""

import html
from typing import Any

from slm_lab.analysis.figure import figure as look
from slm_lab.analysis.figure.figure import tinted
from slm_lab.analysis.figure.html_band import Band, axis_key, heading, short, words_at
from slm_lab.analysis.figure.render_html import axis_of
from slm_lab.analysis.search.experiment_figure import ExperimentFigure, number

_BAR, _FOOT, _NOTE_ROW = 34, 52, 22  # pixels
_NAMES, _BARS_END, _NOTES = 0.13, 0.47, 0.52  # shares of the page's plot, from the left
_CHANCE = 6  # of PALETTE


def importances_height(figure: ExperimentFigure) -> int:
    """Pixels that the bars and what is beside them take."""
    return max(_BAR * len(figure.importances) + _FOOT, _NOTE_ROW * len(figure.notes))


def draw_importances(
    layout: dict[str, Any], figure: ExperimentFigure, band: Band
) -> list[dict[str, Any]]:
    """A bar for each variable, with a mark at chance; beside them how they came about."""
    layout["annotations"].append(heading("Importance of each hyperparameter", band))
    for i, note in enumerate(figure.notes):
        line = words_at(note, _NOTES, band.below_top(i * _NOTE_ROW), look.MUTED, 14)
        layout["annotations"].append(line)
    found = figure.importances
    x, y = f"x{len(figure.variables) + 1}", f"y{len(figure.metrics) + 1}"
    bottom = band.below_top(_BAR * max(len(found), 1))
    names = [short(figure.names[each.path]) for each in found]
    layout[axis_key(x)] = {
        **axis_of((0.0, 1.0), ticks=6, empty=False),
        "domain": [_NAMES, _BARS_END],
        "anchor": y,
        "tickformat": ".0%",
        "tickfont": {"size": 13},
        "title": {"text": "share explained", "font": {"size": 14}, "standoff": 6},
    }
    layout[axis_key(y)] = {
        "range": [len(found) - 0.5, -0.5],
        "domain": [bottom, band.top],
        "anchor": x,
        "tickvals": list(range(len(found))),
        "ticktext": [html.escape(name) for name in names],
        "tickfont": {"size": 14},
        "ticks": "outside",
        "tickcolor": "white",
        "showgrid": False,
        "zeroline": False,
    }
    for i, each in enumerate(found):
        if each.share is None:
            at = {"xref": x, "yref": y, "xanchor": "left", "yanchor": "middle", "xshift": 6}
            reason = words_at(each.reason, 0.0, float(i), look.MUTED, 13)
            layout["annotations"].append({**reason, **at})
    return [{**trace, "xaxis": x, "yaxis": y} for trace in _bars(figure)]


def _bars(figure: ExperimentFigure) -> list[dict[str, Any]]:
    known = [(i, each) for i, each in enumerate(figure.importances) if each.share is not None]
    full = look.PALETTE[0]
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [each.share for _, each in known],
        "y": [i for i, _ in known],
        "width": 0.66,
        "marker": {
            "color": [full if each.sure else tinted(0, 0.85) for _, each in known],
            "line": {"color": full, "width": 1.5},
        },
        "customdata": [
            [figure.names[each.path], number(each.p_value), each.trials] for _, each in known
        ],
        "hovertemplate": "%{customdata[0]}: %{x:.1%}<br>p = %{customdata[1]}, of "
        "%{customdata[2]} trials<extra></extra>",
    }
    mark = {
        "type": "scatter",
        "mode": "lines",
        "x": [x for _, each in known for x in (each.chance, each.chance, None)],
        "y": [y for i, _ in known for y in (i - 0.42, i + 0.42, None)],
        "line": {"color": look.PALETTE[_CHANCE], "width": 2},
        "hovertemplate": "chance: 95 % below %{x:.1%}<extra></extra>",
    }
    text = {
        "type": "scatter",
        "mode": "text",
        "x": [max(each.share or 0.0, each.chance or 0.0) for _, each in known],
        "y": [i for i, _ in known],
        "text": [f" {100 * (each.share or 0.0):.0f} %" for _, each in known],
        "textposition": "middle right",
        "textfont": {"size": 14},
        "cliponaxis": False,
        "hoverinfo": "skip",
    }
    return [bar, mark, text]
