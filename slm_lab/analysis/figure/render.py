"""Writes one figure, or one overview, as PNG and as HTML."""

from pathlib import Path

from slm_lab.analysis.figure.figure import Figure, Overview
from slm_lab.analysis.figure.overview_html import render_overview_html
from slm_lab.analysis.figure.page import ensure_plotly_js, relative_url
from slm_lab.analysis.figure.png import render_overview_png, render_png
from slm_lab.analysis.figure.render_html import render_html
from slm_lab.core.files import write_atomically


def write_figure(figure: Figure | Overview, folder: Path, stem: str, run_dir: Path) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`, each whole; returns both paths.

    `run_dir` holds the plotly.js that all pages of the run share.
    """
    png, html = folder / f"{stem}.png", folder / f"{stem}.html"
    plotly_js = relative_url(ensure_plotly_js(run_dir), html)
    match figure:
        case Figure():
            picture, page = render_png(figure), render_html(figure, plotly_js)
        case Overview():
            picture, page = render_overview_png(figure), render_overview_html(figure, plotly_js)
    write_atomically(png, picture)
    write_atomically(html, page)
    return [png, html]
