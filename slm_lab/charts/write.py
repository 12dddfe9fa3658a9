"""Writes charts as pictures and pages; all pages in a data folder share one
plotly.js."""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from slm_lab.charts.chart import Chart
from slm_lab.charts.page import render_page
from slm_lab.charts.picture import Form, render_png, render_print
from slm_lab.core.files import write_atomically

RESERVE = 4
"""How many times the size of plotly.js must be free on the disk before it is
written."""


def write_chart(
    chart: Chart,
    folder: Path,
    stem: str,
    scripts: Path | None = None,
    page: Sequence[Chart] = (),
) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`; returns both paths. Raises
    OSError. The page shows the charts of `page`, if given. It loads plotly.js from the
    folder `scripts`, or contains it."""
    png = write_png(chart, folder, stem)
    return [png, write_page(page or [chart], folder, stem, scripts)]


def write_png(chart: Chart, folder: Path, stem: str) -> Path:
    """Writes `folder/stem.png`; returns its path. Raises OSError."""
    png = folder / f"{stem}.png"
    write_atomically(png, render_png(chart))
    return png


def write_page(
    charts: Sequence[Chart], folder: Path, stem: str, scripts: Path | None = None
) -> Path:
    """Writes `folder/stem.html` as `write_chart`; returns its path. Raises OSError."""
    html = folder / f"{stem}.html"
    url = None
    if scripts is not None:
        url = Path(os.path.relpath(ensure_plotly_js(scripts), html.parent)).as_posix()
    write_atomically(html, render_page(charts, url))
    return html


def write_print(chart: Chart, file: Path) -> Path:
    """Writes the chart for paper, as PDF, SVG or PNG by the name of the file. Raises
    OSError."""
    form = cast(Form, file.suffix.lower().removeprefix("."))
    write_atomically(file, render_print(chart, form))
    return file


def ensure_plotly_js(folder: Path) -> Path:
    """Puts plotly.js (5 MB) into a folder unless it is there; returns its path. Its
    name has the version, so that pages of an earlier version still find their script.
    Raises OSError, also if the disk is nearly full: the space is left to checkpoints
    and metrics."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    target = folder / f"plotly-{plotly.__version__}.min.js"
    size = source.stat().st_size
    if not target.exists() or target.stat().st_size != size:
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(folder).free < RESERVE * size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        write_atomically(target, source.read_bytes())
    return target
