"""A page that shows one plotly graph; pages of a run share one plotly.js."""

import html
import math
import os
from pathlib import Path
from typing import Any

from slm_lab.core.files import write_atomically
from slm_lab.core.types import FloatArray

PLOTLY_JS = "plotly.min.js"
FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"

_CONFIG = {"displaylogo": False, "responsive": True}


def ensure_plotly_js(run_dir: Path) -> Path:
    """Puts plotly.js (5 MB) into the run folder unless it is there; returns its path."""
    import plotly

    source = Path(plotly.__file__).parent / "package_data" / PLOTLY_JS
    target = run_dir / PLOTLY_JS
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        write_atomically(target, source.read_bytes())
    return target


def relative_url(target: Path, page: Path) -> str:
    """How `page` refers to the file `target` beside or above it."""
    return Path(os.path.relpath(target, page.parent)).as_posix()


def render_page(
    title: str,
    traces: list[dict[str, Any]],
    layout: dict[str, Any],
    plotly_js: str,
    *,
    min_height: int = 0,
    script: str = "",
) -> bytes:
    """A page with the graph, as high as the window and at least `min_height` pixels.

    `title` is text, not markup. `plotly_js` is a URL relative to the page, `script` runs when the
    graph has been made.
    """
    from plotly.graph_objects import Figure

    page: str = Figure({"data": traces, "layout": {**layout, "template": "none"}}).to_html(
        config=_CONFIG,
        include_plotlyjs=plotly_js,
        post_script=script or None,
        default_height="100vh",
        div_id="graph",
    )
    style = f"body{{margin:0}}#graph{{min-height:{min_height}px}}"
    head = f"<title>{html.escape(title)}</title><style>{style}</style></head>"
    return page.replace("</head>", head, 1).encode()


def numbers(values: FloatArray) -> list[float | None]:
    """`values` (P,) to nine digits, None where one is NaN."""
    return [None if math.isnan(value) else float(f"{value:.9g}") for value in values.tolist()]
