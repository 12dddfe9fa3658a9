"""Writes one figure as PNG and as HTML."""

from pathlib import Path

from slm_lab.analysis.atomic import write_atomically
from slm_lab.analysis.figure import Figure
from slm_lab.analysis.render_html import ensure_plotly_js, relative_url, render_html
from slm_lab.analysis.render_png import render_png


def write_figure(figure: Figure, folder: Path, stem: str, run_dir: Path) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`, each whole; returns both paths.

    `run_dir` holds the plotly.js that all pages of the run share.
    """
    png, html = folder / f"{stem}.png", folder / f"{stem}.html"
    write_atomically(png, render_png(figure))
    plotly_js = ensure_plotly_js(run_dir)
    write_atomically(html, render_html(figure, relative_url(plotly_js, html)))
    return [png, html]
