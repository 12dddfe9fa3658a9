"""Writes figures as PNG and as pages; all pages in a data folder share one
plotly.js."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any, Literal, cast

from slm_lab.analysis.figure.figure import Figure
from slm_lab.analysis.figure.html import render_html
from slm_lab.analysis.figure.png import render_png, render_print
from slm_lab.core.files import write_atomically
from slm_lab.core.text import printable

RESERVE = 4
"""Times the size of plotly.js that must be free before it is written."""


def write_figure(
    figure: Figure,
    folder: Path,
    stem: str,
    scripts: Path | None = None,
    page: Figure | None = None,
) -> list[Path]:
    """Writes `folder/stem.png` and `folder/stem.html`; returns both paths. Raises
    OSError. The page shows `page`, if given. It loads plotly.js from the folder
    `scripts`, or contains it."""
    png = write_png(figure, folder, stem)
    return [png, write_page(page or figure, folder, stem, scripts)]


def write_png(figure: Figure, folder: Path, stem: str) -> Path:
    """Writes `folder/stem.png`; returns its path. Raises OSError."""
    png = folder / f"{stem}.png"
    write_atomically(png, render_png(_printable(figure)))
    return png


def write_page(
    figure: Figure, folder: Path, stem: str, scripts: Path | None = None
) -> Path:
    """Writes `folder/stem.html` as `write_figure`; returns its path. Raises OSError."""
    html = folder / f"{stem}.html"
    url = None
    if scripts is not None:
        url = Path(os.path.relpath(ensure_plotly_js(scripts), html.parent)).as_posix()
    write_atomically(html, render_html(_printable(figure), url))
    return html


def write_print(figure: Figure, file: Path) -> Path:
    """Writes the figure for paper, as PDF, SVG or PNG by the name of the file. Raises
    OSError."""
    form = cast(Literal["pdf", "svg", "png"], file.suffix.lower().removeprefix("."))
    write_atomically(file, render_print(_printable(figure), form))
    return file


def _printable(part: Any) -> Any:
    """A part with its texts as a terminal shows them: fonts have no control
    characters."""
    if isinstance(part, str):
        return printable(part)
    if not isinstance(part, tuple):
        return part
    kind: Any = type(part)
    made = map(_printable, part)
    return tuple(made) if kind is tuple else kind._make(made)


def ensure_plotly_js(folder: Path) -> Path:
    """Puts plotly.js (5 MB) into a folder unless it is there; returns its path. The
    version is in its name, so that pages of an earlier one still find theirs. Raises
    OSError, also if the disk is nearly full: the space is left to checkpoints and
    metrics."""
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
