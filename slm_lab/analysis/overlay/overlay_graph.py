"""Writes an overlay as PNG and as HTML."""

from pathlib import Path

from slm_lab.analysis.figure.page import ensure_plotly_js, relative_url
from slm_lab.analysis.overlay.overlay import Overlay
from slm_lab.analysis.overlay.overlay_html import render_overlay_html
from slm_lab.analysis.overlay.overlay_png import render_overlay_png
from slm_lab.core.files import write_atomically


def write_overlay(overlay: Overlay, folder: Path, stem: str) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`, each whole; returns both paths.

    The page needs plotly.js, which is put beside it. Raises OSError.
    """
    png, page = folder / f"{stem}.png", folder / f"{stem}.html"
    write_atomically(png, render_overlay_png(overlay))
    plotly_js = relative_url(ensure_plotly_js(folder), page)
    write_atomically(page, render_overlay_html(overlay, plotly_js))
    return [png, page]
