import io
import json
import re
import subprocess
import sys

import numpy as np
import plotly
import pytest
from PIL import Image

from slm_lab.analysis.figure.figure import Curve, Figure, Overview, Panel
from slm_lab.analysis.figure.overview_html import render_overview_html
from slm_lab.analysis.figure.page import ensure_plotly_js
from slm_lab.analysis.figure.panel_grid import MAX_COLUMNS, cells, grid_shape
from slm_lab.analysis.figure.png import render_overview_png, render_png
from slm_lab.analysis.figure.render import write_figure
from slm_lab.analysis.figure.render_html import render_html

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


def overview(panels):
    """Panels whose curves have different lengths and sizes; every fourth has no values."""
    drawn = [
        Panel(f"panel <{i}>", (Curve("mean", X[: 1 + i], X[: 1 + i] * 10.0**i, X[: 1 + i]),))
        if i % 4 < 3
        else Panel(f"panel <{i}>", (), "no values yet")
        for i in range(panels)
    ]
    return Overview("spec <a>, Session 0", "80 rows", "frames", tuple(drawn))


def pixels(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


@pytest.mark.parametrize("panels", range(1, 21))
def test_every_panel_has_a_cell_and_every_column_one_that_is_lowest(panels):
    rows, columns = grid_shape(panels)
    placed = cells(panels)
    assert len({(cell.row, cell.column) for cell in placed}) == panels
    assert max(cell.row for cell in placed) == rows - 1
    assert columns <= MAX_COLUMNS
    lowest = {cell.column: cell.row for cell in placed if cell.lowest}
    assert len(lowest) == sum(cell.lowest for cell in placed) == columns
    assert all(cell.row <= lowest[cell.column] for cell in placed)


@pytest.mark.parametrize("panels", [1, 2, 5, 20])
def test_an_overview_has_axes_of_its_own_for_every_panel_and_one_x_axis_in_common(panels):
    assert render_overview_png(overview(panels)).startswith(PNG_MAGIC)
    traces, layout = plot(render_overview_html(overview(panels), "p.js"))
    names = [str(i + 1) if i else "" for i in range(panels)]
    assert {trace["xaxis"] for trace in traces} == {f"x{name}" for name in names}
    assert {trace["yaxis"] for trace in traces} == {f"y{name}" for name in names}
    ranges = [layout[f"xaxis{name}"]["range"] for name in names]
    assert ranges == [ranges[0]] * panels
    assert {layout[f"xaxis{name}"]["matches"] for name in names[1:]} <= {"x"}
    titles = [words["text"] for words in layout["annotations"] if "<b>" in words["text"]]
    assert [f"<b>panel &lt;{i}&gt;</b>" in title for i, title in enumerate(titles)] == [
        True
    ] * panels


def test_panels_of_a_page_do_not_overlap():
    _, layout = plot(render_overview_html(overview(20), "p.js"))
    domains = [
        (*layout[f"xaxis{n}"]["domain"], *layout[f"yaxis{n}"]["domain"])
        for n in ("", *map(str, range(2, 21)))
    ]
    for i, (left, right, bottom, top) in enumerate(domains):
        assert 0 <= left < right <= 1
        assert -1e-9 <= bottom < top <= 1
        for a, b, c, d in domains[:i]:
            assert right <= a or b <= left or top <= c + 1e-9 or d <= bottom + 1e-9


def test_a_picture_is_white_where_nothing_is_drawn_and_keeps_the_colours_of_its_lines():
    drawn = pixels(render_png(figure(Curve("", X, X))))
    assert (drawn[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    assert (drawn == (0x00, 0x72, 0xB2)).all(axis=-1).sum() > 1000


def test_a_long_title_stays_inside_the_picture():
    title = "a long name " * 12
    drawn = pixels(render_png(Figure(title, title, "frames", "return", ())))
    assert (drawn[:, -10:] == 255).all()


def test_letters_of_mathematics_are_letters():
    drawn = Figure("$x$ is $", "", "frames", "return", (Curve("a_$b$", X, X),))
    assert render_png(drawn).startswith(PNG_MAGIC)


def test_what_stands_in_a_page_cannot_end_its_script():
    page = render_html(figure(Curve("</script>", X, X)), "p.js").decode()
    traces, _ = plot(page.encode())
    assert traces[0]["name"] == "</script>"
    assert page.count("</script>") == 3


def test_importing_graphs_loads_no_drawing_library_and_drawing_no_global_state():
    code = (
        "import sys\n"
        "from slm_lab.analysis.figure import figure, png\n"
        "from slm_lab.analysis.trial import session_graph, trial_graph\n"
        "heavy = {'matplotlib', 'plotly', 'torch', 'gymnasium'}\n"
        "assert not heavy & set(sys.modules)\n"
        "png.render_png(figure.Figure('', '', '', '', ()))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
