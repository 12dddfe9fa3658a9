import io
import re
import subprocess
import sys

import numpy as np
import plotly
import pytest
from PIL import Image

from slm_lab.charts.chart import (
    Chart,
    Curve,
    Ink,
    Panel,
    around,
    curves_panel,
    grid,
    single,
)
from slm_lab.charts.page import render_page
from slm_lab.charts.picture import render_png, render_print
from slm_lab.charts.write import ensure_plotly_js, write_chart
from tests.unit.charts.page import domains, plot

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
X = np.arange(5.0)
BROKEN = np.array([1.0, 2.0, np.nan, 4.0, np.nan])


def chart(*curves, title="spec <a> · Env-v1"):
    return single(title, "4 Sessions", curves_panel("frames", "return", curves))


def panels(count):
    """Panels whose curves have different lengths and sizes; every fourth has no
    values."""
    drawn = []
    for i in range(count):
        x = X[: 1 + i]
        curve = Curve("mean", x, x * 10.0**i, around(x * 10.0**i, x))
        drawn.append(curves_panel("", "", [curve] if i % 4 < 3 else [], f"panel <{i}>"))
    return Chart("spec <a>, Session 0", "80 rows", grid(drawn), linked=True)


@pytest.mark.medium
@pytest.mark.parametrize(
    "drawn",
    [
        chart(Curve("mean", X, X, around(X, X / 10))),
        chart(
            Curve("mean", X, BROKEN, around(BROKEN, BROKEN), style="dashed", ink=Ink(9))
        ),
        chart(Curve("", X[:1], X[:1])),
        chart(Curve("", X, X * 0)),
        chart(Curve("", X, X * 1e-5), Curve("each", X, X * 1e7, style="faint")),
        chart(),
        chart(Curve("a_$b$", X, X), title="$x$ is $"),
        *map(panels, (1, 2, 5, 20)),
    ],
)
def test_any_figure_can_be_drawn_both_ways_and_twice_with_the_same_bytes(drawn):
    png, page = render_png(drawn), render_page([drawn], "plotly.min.js")
    assert png.startswith(PNG_MAGIC)
    assert b"Plotly.newPlot" in page
    assert (png, page) == (render_png(drawn), render_page([drawn], "plotly.min.js"))


def test_a_band_of_a_page_is_one_closed_outline_per_unbroken_stretch():
    curve = Curve("mean", X, BROKEN, around(BROKEN, np.ones(5)))
    (band, line), _ = plot(render_page([chart(curve)], "p.js"))
    assert band["x"] == [0, 1, 1, 0, None, 3, 3, None]
    assert band["y"] == [2, 3, 1, 0, None, 5, 3, None]
    assert (band["showlegend"], line["showlegend"]) == (False, True)
    assert line["customdata"][:2] == [[0, 2], [1, 3]]


def test_a_click_in_the_legend_hides_a_curve_and_what_belongs_to_it():
    dashed = Curve("", X, X, style="dashed")
    drawn = chart(Curve("<b>", X, X, around(X, X)), dashed, Curve("other", X, X))
    traces, _ = plot(render_page([drawn], "p.js"))
    assert [trace["legendgroup"] for trace in traces] == ["<b>", "<b>", "<b>", "other"]
    assert [trace["name"] for trace in traces] == ["&lt;b&gt;"] * 3 + ["other"]
    assert [trace["showlegend"] for trace in traces] == [False, True, False, True]


def test_words_from_a_spec_are_text_and_cannot_end_the_script():
    page = render_page([chart(Curve("</script>", X, X))], "p.js")
    traces, _ = plot(page)
    assert "<h1>spec &lt;a&gt; · Env-v1</h1>" in page.decode()
    assert "<title>spec &lt;a&gt;" in page.decode()
    assert traces[0]["name"] == "&lt;/script&gt;"
    assert page.decode().count("</script>") == 2


@pytest.mark.filterwarnings("error")
def test_control_characters_of_names_are_shown_escaped(tmp_path):
    named = chart(Curve("a\x1b[31mb", X, X), title="c\x07d")
    _, page = write_chart(named, tmp_path, "a", tmp_path)
    text = page.read_text()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "c\\x07d" in text


def test_pages_of_a_data_folder_share_one_plotly_js(tmp_path):
    drawn = chart(Curve("", X, X))
    paths = write_chart(drawn, tmp_path, "a", tmp_path)
    paths += write_chart(drawn, tmp_path / "graph", "b", tmp_path)
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
    _, page = write_chart(chart(Curve("", X, X)), tmp_path, "a")
    assert (
        re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=", page.read_text()) == []
    )
    assert page.stat().st_size > 3_000_000
    assert not list(tmp_path.rglob("*.js"))


def test_a_page_of_several_panels_stays_readable_on_a_narrow_screen():
    assert b'class="wide"' in render_page([panels(5)], "p.js")
    assert b'class="wide"' not in render_page([chart(Curve("", X, X))], "p.js")


def test_an_overview_has_axes_for_every_panel():
    traces, layout = plot(render_page([panels(20)], "p.js"))
    names = [str(i + 1) if i else "" for i in range(20)]
    assert {trace["xaxis"] for trace in traces} == {f"x{name}" for name in names}
    assert {trace["yaxis"] for trace in traces} == {f"y{name}" for name in names}
    words = [note["text"] for note in layout["annotations"]]
    titles = [text for text in words if "<b>" in text]
    assert titles == [f"<b>panel &lt;{i}&gt;</b>" for i in range(20)]
    assert words.count("no values yet") == 5
    places = domains(layout)
    for i, (left, right, bottom, top) in enumerate(places):
        assert 0 <= left < right <= 1
        assert -1e-9 <= bottom < top <= 1
        for a, b, c, d in places[:i]:
            assert right <= a or b <= left or top <= c + 1e-9 or d <= bottom + 1e-9


def texts_of(content):
    """The texts of an SVG, which holds each as a comment before its paths."""
    return re.findall(r"<!-- (.*) -->", content.decode())


def test_a_picture_has_all_words_and_names_each_curve_once():
    drawn = chart(Curve("ours", X, X), Curve("", X, X + 1), Curve("theirs", X, X))
    texts = texts_of(render_print(drawn._replace(notes=("a note",)), "svg"))
    for words in (
        "spec &lt;a&gt; · Env-v1",
        "4 Sessions",
        "frames",
        "return",
        "a note",
    ):
        assert words in texts
    assert [text for text in texts if text in ("ours", "theirs")] == ["ours", "theirs"]


def test_no_word_of_a_picture_is_cut_off():
    """A long title, label or name is written smaller, or in several lines."""
    words = "a long name of something " * 8
    panel = curves_panel(words, words, [Curve(words, X, X)], words)
    drawn = Chart(words, words, ((panel,),), notes=(words,), legend=True)
    png = np.asarray(Image.open(io.BytesIO(render_png(drawn))).convert("RGB"))
    for edge in (png[:2], png[-2:], png[:, :2], png[:, -2:]):
        assert (edge == 255).all()


def test_an_empty_panel_says_so_in_a_picture():
    drawn = Chart("", "", ((Panel(note="no results yet"),),))
    assert "no results yet" in texts_of(render_print(drawn, "svg"))


def test_a_picture_grows_with_its_legend():
    few, many = (
        Image.open(
            io.BytesIO(render_png(chart(*(Curve(f"run {i}", X, X) for i in range(n)))))
        )
        for n in (2, 20)
    )
    assert many.height > few.height
    assert many.width == few.width


@pytest.mark.medium
def test_importing_charts_loads_no_drawing_library_and_drawing_no_global_state():
    code = (
        "import sys\n"
        "from slm_lab.charts import chart, picture, trial\n"
        "heavy = {'matplotlib', 'plotly', 'torch', 'gymnasium', 'pandas'}\n"
        "assert not heavy & set(sys.modules)\n"
        "picture.render_png(chart.single('', '', chart.Panel(note='nothing')))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
