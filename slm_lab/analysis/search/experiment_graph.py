"""Writes the graph of a search."""

from pathlib import Path

from slm_lab.analysis.figure.page import ensure_plotly_js, relative_url
from slm_lab.analysis.search.experiment_figure import experiment_figure
from slm_lab.analysis.search.experiment_html import render_experiment_html
from slm_lab.analysis.search.experiment_png import render_experiment_png
from slm_lab.analysis.search.summary import SearchSummary
from slm_lab.core.files import write_atomically


def draw_experiment_graph(experiment: SearchSummary, folder: Path, prefix: str) -> list[Path]:
    """Writes `{prefix}_experiment_graph.png` and `.html` into `folder`; returns both paths.

    A picture of the Trials' metrics over every variable, and a page that adds parallel axes, the
    importance of each variable and the best Trials. Raises OSError.
    """
    figure = experiment_figure(experiment)
    png, page = (folder / f"{prefix}_experiment_graph.{end}" for end in ("png", "html"))
    plotly_js = relative_url(ensure_plotly_js(folder), page)
    write_atomically(png, render_experiment_png(figure))
    write_atomically(page, render_experiment_html(figure, plotly_js))
    return [png, page]
