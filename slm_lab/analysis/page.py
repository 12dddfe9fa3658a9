"""A page that shows one plotly graph; pages of a run share one plotly.js."""

import html
import json
import math
import os
from pathlib import Path
from typing import Any

from slm_lab.analysis.atomic import write_atomically
from slm_lab.core.types import FloatArray

PLOTLY_JS = "plotly.min.js"
FONT = "DejaVu Sans, Verdana, Segoe UI, Helvetica, sans-serif"

# What plotly's own to_html writes is the same call behind the import of plotly.io (0.1 s).
_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body{{margin:0}}#graph{{height:100vh;min-height:{min_height}px}}</style></head>
<body><div id="graph"></div>
<script charset="utf-8" src="{plotly_js}"></script>
<script>
Plotly.newPlot("graph", {traces}, {layout}, {config});
{script}</script></body>
</html>
"""
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
    return _PAGE.format(
        title=html.escape(title),
        min_height=min_height,
        plotly_js=html.escape(plotly_js),
        traces=_json(traces),
        layout=_json(layout),
        config=_json(_CONFIG),
        script=script,
    ).encode()


def numbers(values: FloatArray) -> list[float | None]:
    """`values` (P,) to nine digits, None where one is NaN."""
    return [None if math.isnan(value) else float(f"{value:.9g}") for value in values.tolist()]


def _json(value: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")
