"""The lab's panels as graphs of a page, as wide as their place."""

from collections.abc import Mapping

from dash import dcc

from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure.html import packed, plotly_content
from slm_lab.analysis.figure.look import MUTED

FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"
_BOX = fig.Box(0, 0, 1000, 600)
_LETTERS = 15.0
_MARGIN = {"l": 50, "r": 14, "t": 12, "b": 36}
_MODE_BAR = [["toImage", "resetScale2d"]]


def curves_graph(
    curves: list[fig.Curve], x: str, name: str, height: int = 200, legend: bool = False
) -> dcc.Graph:
    """Curves over an axis labelled `x`; `name` keeps the zoom of a graph while it grows."""
    scales = fig.Scale(x, fig.x_limits(curves), 5), fig.Scale(ends=fig.y_limits(curves), most=5)
    panel = fig.Panel(_BOX, *scales, curves=tuple(curves), note="no values yet")
    return graph(panel, name, height, legend)


def graph(
    part: fig.Panel | fig.Parallel,
    name: str,
    height: int,
    legend: bool = False,
    margin: Mapping[str, int] | None = None,
) -> dcc.Graph:
    """One part of a figure, without the titles around it."""
    part = part._replace(box=_BOX)
    if isinstance(part, fig.Panel):
        part = part._replace(title="", hint="", keys=())
    shading = part.shading if isinstance(part, fig.Parallel) else None
    figure = fig.Figure("", "", (part,), _BOX.width, _LETTERS, legend, shading=shading)
    content = plotly_content(figure)
    layout = {key: value for key, value in content["layout"].items() if key != "title"}
    if "coloraxis" in layout:  # above, it would cover the name of the last axis
        layout["coloraxis"]["colorbar"] |= {"y": -0.08, "yanchor": "top"}
    layout |= {
        "font": {"family": FONT, "size": 12},
        "margin": dict(margin or _MARGIN),
        "uirevision": name,
        "height": height,
        "hoverlabel": {"namelength": -1},
        "legend": {"orientation": "h", "y": -0.16, "yanchor": "top", "font": {"size": 12}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED},
    }
    return dcc.Graph(
        figure={"data": packed(content["data"]), "layout": layout},
        config={"displaylogo": False, "modeBarButtons": _MODE_BAR, "displayModeBar": legend},
        responsive=True,
        style={"height": f"{height}px"},
    )
