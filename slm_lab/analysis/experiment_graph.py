"""Writes the graph of a search."""

from pathlib import Path

from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.experiment import Experiment
from slm_lab.analysis.experiment_figure import experiment_figure
from slm_lab.analysis.experiment_html import render_experiment_html
from slm_lab.analysis.experiment_png import render_experiment_png
from slm_lab.analysis.page import ensure_plotly_js, relative_url


def draw_experiment_graph(experiment: Experiment, folder: Path, prefix: str) -> list[Path]:
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
