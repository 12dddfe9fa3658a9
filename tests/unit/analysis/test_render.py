import json
import re
import subprocess
import sys

import numpy as np
import plotly
import pytest

from slm_lab.analysis.figure import Curve, Figure
from slm_lab.analysis.render import write_figure
from slm_lab.analysis.render_html import ensure_plotly_js, render_html
from slm_lab.analysis.render_png import render_png

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
X = np.arange(5.0)


def figure(*curves, note=""):
    return Figure("spec <a> · Env-v1", "4 Sessions", "frames", "return", curves, note)


def plot(page):
    """The traces and the layout inside a page."""
    call = page.decode().split("Plotly.newPlot(")[1].split(",", 1)[1]
    decoder = json.JSONDecoder()
    traces, end = decoder.raw_decode(call.lstrip())
    layout, _ = decoder.raw_decode(call.lstrip()[end:].lstrip(", \n"))
    return traces, layout


BROKEN = np.array([1.0, 2.0, np.nan, 4.0, np.nan])


@pytest.mark.parametrize(
    "drawn",
    [
        figure(Curve("mean", X, X, std=X / 10)),
        figure(Curve("mean", X, BROKEN, std=BROKEN, style="dashed", colour=9)),
        figure(Curve("", X[:1], X[:1])),
        figure(Curve("", X, X * 0)),
        figure(Curve("", X, X * 1e-5), Curve("each", X, X * 1e7, style="faint")),
        figure(note="no values yet"),
    ],
)
def test_any_figure_can_be_drawn_both_ways(drawn):
    assert render_png(drawn).startswith(PNG_MAGIC)
    assert b"Plotly.newPlot" in render_html(drawn, "plotly.min.js")


def test_drawing_twice_gives_the_same_bytes():
    drawn = figure(Curve("mean", X, X, std=X / 10))
    assert render_png(drawn) == render_png(drawn)
    assert render_html(drawn, "p.js") == render_html(drawn, "p.js")


def test_a_band_is_one_closed_outline_per_unbroken_stretch():
    traces, _ = plot(render_html(figure(Curve("mean", X, BROKEN, std=np.ones(5))), "p.js"))
    band, line = traces
    assert band["x"] == [0, 1, 1, 0, None, 3, 3, None]
    assert band["y"] == [2, 3, 1, 0, None, 5, 3, None]
    assert (band["showlegend"], line["showlegend"]) == (False, True)


def test_a_title_is_text_and_no_markup():
    page = render_html(figure(Curve("", X, X)), "p.js")
    _, layout = plot(page)
    assert layout["title"]["text"] == "<b>spec &lt;a&gt; · Env-v1</b>"
    assert "<title>spec &lt;a&gt;" in page.decode()


def test_pages_of_a_run_share_one_plotly_js(tmp_path):
    drawn = figure(Curve("", X, X))
    paths = write_figure(drawn, tmp_path, "a", tmp_path)
    paths += write_figure(drawn, tmp_path / "graph", "b", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        *("a.png", "a.html", "graph/b.png", "graph/b.html")
    ]
    sources = [
        re.findall(r'src="([^"]+)"', path.read_text()) for path in paths if path.suffix == ".html"
    ]
    assert sources == [["plotly.min.js"], ["../plotly.min.js"]]
    assert len(list(tmp_path.rglob("*.js"))) == 1
    assert all(path.stat().st_size < 50_000 for path in paths if path.suffix == ".html")


def test_plotly_js_is_written_once_and_replaced_by_another_version(tmp_path):
    path = ensure_plotly_js(tmp_path)
    first = path.stat().st_mtime_ns
    assert ensure_plotly_js(tmp_path).stat().st_mtime_ns == first
    path.write_text("another version")
    version = plotly.offline.get_plotlyjs_version()
    assert version in ensure_plotly_js(tmp_path).read_text()[:200]


def test_importing_graphs_loads_no_drawing_library_and_drawing_no_pyplot():
    code = (
        "import sys\n"
        "from slm_lab.analysis import session_graph, trial_graph, render_png, figure\n"
        "heavy = {'matplotlib', 'plotly', 'torch', 'gymnasium'}\n"
        "assert not heavy & set(sys.modules)\n"
        "render_png.render_png(figure.Figure('', '', '', '', ()))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
