"""Writes figures as PNG and as pages; pages of a run share one plotly.js."""

import os
from pathlib import Path

from slm_lab.analysis.figure.figure import Figure
from slm_lab.analysis.figure.html import render_html
from slm_lab.analysis.figure.png import render_png
from slm_lab.core.files import write_atomically

PLOTLY_JS = "plotly.min.js"


def write_figure(
    figure: Figure, folder: Path, stem: str, run_dir: Path | None = None, page: Figure | None = None
) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`, which shows `page` if it is to show more;
    returns both paths. `run_dir`, otherwise `folder`, holds the plotly.js of all pages. Raises
    OSError."""
    png, html = folder / f"{stem}.png", folder / f"{stem}.html"
    plotly_js = ensure_plotly_js(run_dir or folder)
    url = Path(os.path.relpath(plotly_js, html.parent)).as_posix()
    write_atomically(png, render_png(figure))
    write_atomically(html, render_html(page or figure, url))
    return [png, html]


def ensure_plotly_js(run_dir: Path) -> Path:
    """Puts plotly.js (5 MB) into the run folder unless it is there; returns its path."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_JS
    target = run_dir / PLOTLY_JS
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        write_atomically(target, source.read_bytes())
    return target
