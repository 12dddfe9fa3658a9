import re
import subprocess
import sys

import numpy as np
import plotly
import pytest

from slm_lab.analysis.figure.figure import Band, Curve, around
from slm_lab.analysis.figure.html import render_html
from slm_lab.analysis.figure.layout import MAX_COLUMNS, grid_shape, overview, single
from slm_lab.analysis.figure.look import BAND_OPACITY, PALETTE, rgb
from slm_lab.analysis.figure.png import render_png
from slm_lab.analysis.figure.write import ensure_plotly_js, write_figure
from tests.unit.analysis.page import domains, pixels, plot

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
X = np.arange(5.0)
BROKEN = np.array([1.0, 2.0, np.nan, 4.0, np.nan])


def figure(*curves, title="spec <a> · Env-v1"):
    return single(title, "4 Sessions", "frames", "return", curves, "no values yet")


def panels(count):
    """Panels whose curves have different lengths and sizes; every fourth has no
    values."""
    drawn = []
    for i in range(count):
        x = X[: 1 + i]
        curve = Curve("mean", x, x * 10.0**i, around(x * 10.0**i, x))
        drawn.append((f"panel <{i}>", [curve] if i % 4 < 3 else []))
    return overview("spec <a>, Session 0", "80 rows", "frames", drawn)


@pytest.mark.medium
@pytest.mark.parametrize(
    "drawn",
    [
        figure(Curve("mean", X, X, around(X, X / 10))),
        figure(
            Curve("mean", X, BROKEN, around(BROKEN, BROKEN), style="dashed", colour=9)
        ),
        figure(Curve("", X[:1], X[:1])),
        figure(Curve("", X, X * 0)),
        figure(Curve("", X, X * 1e-5), Curve("each", X, X * 1e7, style="faint")),
        figure(),
        figure(Curve("a_$b$", X, X), title="$x$ is $"),
        *map(panels, (1, 2, 5, 20)),
    ],
)
def test_any_figure_can_be_drawn_both_ways_and_twice_with_the_same_bytes(drawn):
    png, page = render_png(drawn), render_html(drawn, "plotly.min.js")
    assert png.startswith(PNG_MAGIC)
    assert b"Plotly.newPlot" in page
    assert (png, page) == (render_png(drawn), render_html(drawn, "plotly.min.js"))


def test_a_band_of_a_page_is_one_closed_outline_per_unbroken_stretch():
    curve = Curve("mean", X, BROKEN, around(BROKEN, np.ones(5)))
    (band, line), _ = plot(render_html(figure(curve), "p.js"))
    assert band["x"] == [0, 1, 1, 0, None, 3, 3, None]
    assert band["y"] == [2, 3, 1, 0, None, 5, 3, None]
    assert (band["showlegend"], line["showlegend"]) == (False, True)
    assert line["customdata"][:2] == [[0, 2], [1, 3]]


def test_a_band_of_a_picture_lies_between_its_ends():
    band = Band(np.full(5, -1.0), np.full(5, 1.0))
    flat = [
        Curve("", X, np.full(5, y), band if y == 0 else None) for y in (0.0, -4.0, 4.0)
    ]
    shade = 255 + BAND_OPACITY * (np.array(rgb(PALETTE[0])) - 255)
    in_plot = pixels(render_png(figure(*flat)))[118 : 118 + 455, 700].astype(float)
    top, *_, bottom = np.flatnonzero(np.abs(in_plot - shade).max(axis=1) < 6)
    assert (top + bottom) / 2 == pytest.approx(455 / 2, abs=3)
    assert bottom - top == pytest.approx(455 * 2 / (8 * 1.12), abs=4)


def test_a_click_in_the_legend_hides_a_curve_and_what_belongs_to_it():
    dashed = Curve("", X, X, style="dashed")
    drawn = figure(Curve("<b>", X, X, around(X, X)), dashed, Curve("other", X, X))
    traces, _ = plot(render_html(drawn, "p.js"))
    assert [trace["legendgroup"] for trace in traces] == ["<b>", "<b>", "<b>", "other"]
    assert [trace["name"] for trace in traces] == ["&lt;b&gt;"] * 3 + ["other"]
    assert [trace["showlegend"] for trace in traces] == [False, True, False, True]


def test_words_from_a_spec_are_text_and_cannot_end_the_script():
    page = render_html(figure(Curve("</script>", X, X)), "p.js")
    traces, layout = plot(page)
    assert layout["title"]["text"] == "<b>spec &lt;a&gt; · Env-v1</b>"
    assert "<title>spec &lt;a&gt;" in page.decode()
    assert traces[0]["name"] == "&lt;/script&gt;"
    assert page.decode().count("</script>") == 3


@pytest.mark.filterwarnings("error")
def test_control_characters_of_names_are_shown_escaped(tmp_path):
    named = figure(Curve("a\x1b[31mb", X, X), title="c\x07d")
    _, page = write_figure(named, tmp_path, "a", tmp_path)
    text = page.read_text()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "c\\\\x07d" in text


def test_pages_of_a_data_folder_share_one_plotly_js(tmp_path):
    drawn = figure(Curve("", X, X))
    paths = write_figure(drawn, tmp_path, "a", tmp_path)
    paths += write_figure(drawn, tmp_path / "graph", "b", tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        *("a.png", "a.html", "graph/b.png", "graph/b.html")
    ]
    pages = [path.read_text() for path in paths if path.suffix == ".html"]
    sources = [re.findall(r'src="([^"]+)"', page) for page in pages]
    name = f"plotly-{plotly.__version__}.min.js"
    assert sources == [[name], [f"../{name}"]]
    assert [f"This page needs ../{name}" in page for page in pages] == [False, True]
    assert len(list(tmp_path.rglob("*.js"))) == 1
    assert all(len(page) < 50_000 for page in pages)


def test_plotly_js_is_written_once_and_replaced_by_another_version(tmp_path):
    path = ensure_plotly_js(tmp_path)
    first = path.stat().st_mtime_ns
    assert ensure_plotly_js(tmp_path).stat().st_mtime_ns == first
    path.write_text("another version")
    version = plotly.offline.get_plotlyjs_version()
    assert version in ensure_plotly_js(tmp_path).read_text()[:200]


def test_a_page_that_stands_alone_needs_no_other_file(tmp_path):
    _, page = write_figure(figure(Curve("", X, X)), tmp_path, "a")
    assert (
        re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=", page.read_text()) == []
    )
    assert page.stat().st_size > 3_000_000
    assert not list(tmp_path.rglob("*.js"))


@pytest.mark.parametrize("count", range(1, 21))
def test_every_panel_has_a_place_and_the_lowest_of_each_column_names_the_x_axis(count):
    rows, columns = grid_shape(count)
    assert columns <= MAX_COLUMNS
    boxes = [panel.box for panel in panels(count).panels]
    assert len({(box.left, box.bottom) for box in boxes}) == count
    assert len({box.bottom for box in boxes}) == rows
    lowest = {box.left: box for box in sorted(boxes, key=lambda box: box.bottom)}
    named = [panel.box for panel in panels(count).panels if panel.x.label]
    assert sorted(named) == sorted(lowest.values())


def test_a_page_of_several_panels_stays_readable_on_a_narrow_screen():
    assert b"min-width:900px" in render_html(panels(5), "p.js")
    assert b"min-width" not in render_html(figure(Curve("", X, X)), "p.js")


def test_an_overview_has_axes_for_every_panel_and_one_x_axis_in_common():
    traces, layout = plot(render_html(panels(20), "p.js"))
    names = [str(i + 1) if i else "" for i in range(20)]
    assert {trace["xaxis"] for trace in traces} == {f"x{name}" for name in names}
    assert {trace["yaxis"] for trace in traces} == {f"y{name}" for name in names}
    ranges = [layout[f"xaxis{name}"]["range"] for name in names]
    assert ranges == [ranges[0]] * 20
    assert {layout[f"xaxis{name}"]["matches"] for name in names[1:]} == {"x"}
    titles = [
        words["text"] for words in layout["annotations"] if "<b>" in words["text"]
    ]
    assert all(f"<b>panel &lt;{i}&gt;</b>" in title for i, title in enumerate(titles))
    places = domains(layout)
    for i, (left, right, bottom, top) in enumerate(places):
        assert 0 <= left < right <= 1
        assert -1e-9 <= bottom < top <= 1
        for a, b, c, d in places[:i]:
            assert right <= a or b <= left or top <= c + 1e-9 or d <= bottom + 1e-9


def test_a_picture_is_white_where_nothing_is_drawn_and_keeps_the_colours_of_its_lines():
    drawn = pixels(render_png(figure(Curve("", X, X))))
    assert (drawn[[0, 0, -1, -1], [0, -1, 0, -1]] == 255).all()
    assert (drawn == rgb(PALETTE[0])).all(axis=-1).sum() > 1000


def test_a_long_title_stays_inside_the_picture():
    title = "a long name " * 12
    drawn = pixels(render_png(figure(title=title)._replace(subtitle=title)))
    assert (drawn[:, -10:] == 255).all()


def test_the_picture_grows_with_its_legend_and_not_with_the_length_of_a_label():
    few, many = (
        pixels(
            render_png(
                figure(*(Curve(f"a long label of the run {i}", X, X) for i in range(n)))
            )
        )
        for n in (2, 9)
    )
    assert len(many) > len(few)
    long = pixels(render_png(figure(Curve("x" * 110, X, X))))
    assert len(long) == pytest.approx(len(few), abs=20)
    assert (long[:, -10:] == 255).all()


@pytest.mark.medium
def test_importing_graphs_loads_no_drawing_library_and_drawing_no_global_state():
    code = (
        "import sys\n"
        "from slm_lab.analysis.figure import layout, png\n"
        "from slm_lab.analysis.trial import trial_graph\n"
        "heavy = {'matplotlib', 'plotly', 'torch', 'gymnasium', 'pandas'}\n"
        "assert not heavy & set(sys.modules)\n"
        "png.render_png(layout.single('', '', '', '', ()))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
