"""Figures for papers: files, sizes, labels, environments as panels or joined,
tables."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from slm_lab.charts import plot as module
from slm_lab.charts.axis import Y_AXES
from slm_lab.charts.chart import Curve, curves_panel, single
from slm_lab.charts.final_returns import as_csv, as_latex, text_table
from slm_lab.charts.page import content
from slm_lab.charts.plot import plot
from slm_lab.charts.request import PlotRequest
from slm_lab.charts.trainings import read_trial
from slm_lab.cli.plot import plot_runs
from slm_lab.core.errors import UsageError
from slm_lab.core.files import read_file
from slm_lab.records.lookup import find_trials
from tests.support import ppo
from tests.unit.charts.page import curves_of
from tests.unit.records.runs import write_ended

ENVS = ("CartPole-v1", "Acrobot-v1")
RANDOM = 20.0
COMMAND = "slm-lab plot a & b --label 'A < B'"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two methods in two environments, three seeds each."""
    folder = tmp_path_factory.mktemp("data")
    for name, seed in (("one", 0), ("two", 50)):
        for env in ENVS:
            spec = ppo(env__name=env, meta__max_session=3, meta__random_seed=seed)
            run = write_ended(folder, name, spec, endings=("finished",) * 3)
            metrics = json.loads(run.trial_metrics_file(0).read_text())
            run.trial_metrics_file(0).write_text(
                json.dumps({**metrics, "random_return": RANDOM})
            )
            run.root.rename(folder / f"{name}_{env}")
    return folder


@pytest.fixture
def drawn(data, tmp_path, monkeypatch):
    """A function that draws runs; returns the figure and the result."""
    figures = []
    real = module.overlay_chart

    def kept(*args, **options):
        figures.append(real(*args, **options))
        return figures[-1]

    monkeypatch.setattr(module, "overlay_chart", kept)

    def draw(*names, out="f.svg", **options):
        patterns = names or ("one_*", "two_*")
        folders = tuple(
            str(path) for each in patterns for path in sorted(data.glob(each))
        )
        result = plot(
            PlotRequest(folders, out=tmp_path / out, data_dir=data, **options)
        )
        return figures[-1], result

    return draw


def points(text):
    return [float(each) for each in re.findall(r"[\d.]+", text)]


def test_a_pdf_has_the_asked_width_true_type_fonts_and_its_command(drawn):
    _, result = drawn("one_Cart*", out="f.pdf", width="3.4in", command=COMMAND)
    content = result.paths[0].read_bytes()
    box = points(re.search(rb"/MediaBox \[([^]]*)\]", content)[1].decode())
    assert box[2] == pytest.approx(3.4 * 72)
    assert b"/FontType 42" in content or b"/CIDFontType2" in content
    assert f"/Subject ({COMMAND})".encode() in content
    assert b"CreationDate" not in content


def test_texts_of_an_svg_are_paths_and_it_has_the_command(drawn):
    _, result = drawn("one_Cart*", out="f.svg", width="86mm", command=COMMAND)
    text = result.paths[0].read_text()
    assert "<text" not in text
    assert "slm-lab plot a &amp; b" in text
    assert points(re.search(r'width="([\d.]+)pt"', text)[1]) == [
        pytest.approx(86 / 25.4 * 72)
    ]


def test_a_png_for_paper_has_300_dots_per_inch_and_one_for_screens_the_command_too(
    drawn,
):
    _, result = drawn("one_Cart*", out="f.png", width="4in", command=COMMAND)
    with Image.open(result.paths[0]) as picture:
        assert picture.width == 4 * 300
        assert picture.info["Description"] == COMMAND
    _, result = drawn("one_Cart*", out="folder", command=COMMAND)
    with Image.open(result.paths[0]) as picture:
        assert picture.info["Description"] == COMMAND
    assert "slm-lab plot a &amp; b" in result.paths[1].read_text()


@pytest.mark.parametrize("out", ["f.pdf", "f.svg", "f.png"])
def test_the_same_figure_gives_the_same_bytes_and_a_replaced_file_is_said_to_be(
    drawn, out
):
    _, first = drawn("one_Cart*", out=out)
    content = read_file(first.paths[0])
    _, second = drawn("one_Cart*", out=out)
    assert read_file(second.paths[0]) == content
    assert (first.replaced, second.replaced) == ((), second.paths)


def test_labels_a_title_and_lines_are_what_was_asked_for(drawn):
    figure, result = drawn(
        "*Cart*", labels=("Ours", "Theirs"), title="none", levels=("solved=475", "0")
    )
    named = [curve.label for curve in figure.named]
    assert named == ["Ours", "Theirs", "solved"]
    assert figure.title == ""
    dashed = [curve for curve in curves_of(figure) if curve.style == "dashed"]
    assert [set(curve.mean) for curve in dashed] == [{475.0}, {0.0}]
    low, high = figure.panels[0].y.ends
    assert low < 0
    assert high > 475
    assert [each.label for each in result.results.endings] == ["Ours", "Theirs"]


def test_axes_have_the_names_that_were_asked_for(drawn):
    figure, _ = drawn("*Cart*")
    (panel,) = figure.panels
    assert panel.x.label == "frames", "each seed is one Session"
    figure, _ = drawn("*Cart*", x_label="environment steps", y_label="return")
    (panel,) = figure.panels
    assert (panel.x.label, panel.y.label) == ("environment steps", "return")


def test_a_line_with_the_name_of_an_environment_is_in_its_panel_only(drawn):
    figure, _ = drawn(by="env", levels=("CartPole-v1=475", "zero=0"))
    dashed = [
        [c for c in panel.curves if c.style == "dashed"] for panel in figure.panels
    ]
    heights = [[c.mean[0] for c in curves] for curves in dashed]
    assert heights == [[0.0], [475.0, 0.0]]
    assert [c.label for curves in dashed for c in curves] == ["zero", "", "zero"]


def test_a_label_too_few_names_the_curves_in_their_order(drawn):
    with pytest.raises(
        UsageError, match="--label: 1 for 2 curves, in this order: 1: one, 2: two"
    ):
        drawn("*Cart*", labels=("Ours",))


def test_any_column_can_be_drawn_smoothed_and_on_a_logarithmic_axis(drawn):
    figure, result = drawn("one_Cart*", y="loss", log_y=True)
    plain, _ = drawn("one_Cart*", y="loss")
    np.testing.assert_allclose(curves_of(figure)[0].mean, curves_of(plain)[0].mean)
    assert figure.panels[0].y.log
    assert [each.highest for each in result.results.endings] == [None]
    smooth, _ = drawn("one_Cart*", y="loss", smooth=50.0)
    assert np.ptp(curves_of(smooth)[0].mean) < np.ptp(curves_of(plain)[0].mean)


def test_a_page_shows_the_heights_of_a_logarithmic_axis():
    x, y = np.arange(3.0), np.array([1.0, 10.0, -1.0])
    panel = curves_panel("x", "y", [Curve("a", x, y)], log=True)
    drawn = content(single("", "", panel))
    np.testing.assert_allclose(drawn["data"][0]["y"], [1.0, 10.0, np.nan])
    assert drawn["layout"]["yaxis"]["type"] == "log"


def test_environments_are_panels_with_one_colour_for_each_method(drawn):
    figure, result = drawn(by="env")
    assert [panel.title for panel in figure.panels] == ["Acrobot-v1", "CartPole-v1"]
    assert [[c.ink.colour for c in panel.curves] for panel in figure.panels] == [
        [0, 1],
        [0, 1],
    ]
    assert [curve.label for curve in curves_of(figure)] == ["one", "two"] * 2
    assert [curve.label for curve in figure.named] == ["one", "two"]
    assert [each.label for each in result.results.endings] == [
        "one  Acrobot-v1",
        "two  Acrobot-v1",
        "one  CartPole-v1",
        "two  CartPole-v1",
    ]
    assert not any("cannot be compared" in note for note in result.notes)


def test_normalised_returns_are_0_for_random_and_1_for_the_score(drawn):
    plain, _ = drawn("one_Cart*")
    figure, result = drawn("one_Cart*", normalise=("120",))
    (one,), (other,) = curves_of(figure), curves_of(plain)
    np.testing.assert_allclose(one.mean, (other.mean - RANDOM) / 100)
    assert "normalised" in result.y_label


def test_normalised_environments_are_joined_with_a_profile(drawn):
    figure, result = drawn(normalise=("CartPole-v1=200", "Acrobot-v1=400"))
    assert [each.seeds for each in result.results.endings] == [6, 6]
    assert result.results.improvement is not None
    returns, profile = figure.panels
    assert [curve.label for curve in returns.curves if curve.label] == ["one", "two"]
    for curve in profile.curves:
        assert curve.mean[0] == 1
        assert curve.mean[-1] == 0
        assert (np.diff(curve.mean) <= 0).all()
        assert (curve.band.low <= curve.mean).all()
        assert (curve.mean <= curve.band.high).all()


def test_a_method_without_runs_in_an_environment_is_noted(drawn):
    _, result = drawn("one_*", "two_Cart*", by="env")
    assert any("two: only in CartPole-v1" in note for note in result.notes)


def test_seeds_have_a_mean_also_where_their_last_rows_ended_no_episode(tmp_path):
    run = write_ended(tmp_path, "long", ppo(meta__max_session=2))
    rows = run.session(0, 1).rows
    header, *lines = rows.read_text().splitlines()
    column = header.split(",").index("mean_return")
    cells = lines[-1].split(",")
    cells[column] = ""
    rows.write_text("\n".join([header, *lines[:-1], ",".join(cells)]) + "\n")
    result = plot(PlotRequest((str(run.root),), out=tmp_path / "f.svg"))
    assert "dashed" not in str(result.notes)
    (one,) = read_trial(
        find_trials(str(run.root), tmp_path)[0], "frames", Y_AXES["mean_returns_ma"]
    ).trainings[1:]
    assert one.line.x[-1] == float(cells[header.split(",").index("frame")])


def test_a_random_return_is_known_from_any_run_in_the_environment(data, tmp_path):
    run = shutil.copytree(data / "two_CartPole-v1", tmp_path / "young")
    (file,) = run.glob("*_trial_metrics_scalar.json")
    file.unlink()
    folders = str(run), str(data / "one_CartPole-v1")
    result = plot(PlotRequest(folders, out=tmp_path / "f.svg", normalise=("500",)))
    assert len(result.results.endings) == 2


def test_a_damaged_run_of_a_folder_is_left_out_with_a_note(data, tmp_path):
    runs = shutil.copytree(data, tmp_path / "data")
    (file,) = (runs / "two_CartPole-v1").glob("*_t0_spec.json")
    file.write_text("{")
    result = plot(PlotRequest((str(runs),), out=tmp_path / "f.svg"))
    assert len(result.results.endings) == 3
    assert any("left out: two_CartPole-v1" in note for note in result.notes)


def test_the_numbers_are_a_json_document(data, tmp_path, capsys):
    folders = str(data / "one_CartPole-v1"), str(data / "two_CartPole-v1")
    plot_runs(PlotRequest(folders, out=tmp_path / "f.svg"), as_json=True)
    document = json.loads(capsys.readouterr().out)
    low, high = document["runs"][0]["interval"]
    assert low <= document["runs"][0]["iqm"] <= high


def test_curves_below_zero_are_named_on_a_logarithmic_axis(data, tmp_path):
    runs = shutil.copytree(data, tmp_path / "data")
    rows = next((runs / "two_CartPole-v1").glob("info/*_session_df_train.csv")).parent
    for file in rows.glob("*_session_df_train.csv"):
        header, *lines = file.read_text().splitlines()
        column = header.split(",").index("loss")
        changed = [
            [*each.split(",")[:column], "-1", *each.split(",")[column + 1 :]]
            for each in lines
        ]
        file.write_text("\n".join([header, *map(",".join, changed)]) + "\n")
    folders = str(runs / "one_CartPole-v1"), str(runs / "two_CartPole-v1")
    ask = PlotRequest(folders, "loss", out=tmp_path / "f.svg", log_y=True)
    assert any("two: has no values above zero" in note for note in plot(ask).notes)
    with pytest.raises(UsageError, match="no value is above zero"):
        plot(ask._replace(folders=folders[1:]))


REFUSED = {
    "no length": (
        {"width": "wide", "out": "f.pdf"},
        "--width wide: must be like 3.4in",
    ),
    "a width without a file": (
        {"width": "3in", "out": "folder"},
        "--width: needs a file",
    ),
    "a table as a graph": (
        {"out": "t.csv"},
        "is for graphs; --table prints: write > .*csv",
    ),
    "another form": ({"out": "f.eps"}, "a file ends with .pdf, .svg or .png"),
    "a bitmap": ({"out": "f.bmp"}, "a file ends with .pdf, .svg or .png"),
    "by another word": ({"by": "algo"}, "--by algo: must be"),
    "a score that is none": ({"normalise": ("x",)}, "must be SCORE or ENV=SCORE"),
    "no score of one": ({"normalise": ("CartPole-v1=5",)}, "no score of Acrobot-v1"),
    "a share above all": ({"smooth": 101.0}, "--smooth 101: must be a percentage"),
    "one label twice": ({"by": "env", "labels": ("a",) * 4}, "names two curves of"),
    "one label of two": ({"labels": ("a",) * 4}, "two curves have the same one"),
    "a width without room": ({"width": "1in", "out": "f.pdf"}, "1.5in or more"),
    "a loss as a score": ({"y": "loss", "normalise": ("5",)}, "--y loss is none"),
    "no finite score": ({"normalise": ("nan",)}, "must be SCORE or ENV=SCORE"),
    "a score of nowhere": ({"normalise": ("Ant=5",)}, "no run is in it; they are in"),
    "a score of two": ({"normalise": ("5",)}, "name the environment|no score of"),
    "two scores of one": (
        {"normalise": ("A=5", "A=6")},
        "an environment has two scores",
    ),
    "a line nowhere": ({"levels": ("inf",)}, "--hline inf: must be Y or NAME=Y"),
    "a line below zero": (
        {"levels": ("low=-1",), "log_y": True},
        "--hline low=-1: has no place",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_impossible_plot_requests_are_refused_in_one_line(drawn, case):
    options, message = REFUSED[case]
    with pytest.raises(UsageError, match=message):
        drawn(**options)


def test_an_unknown_random_return_says_when_it_is_known(data, tmp_path):
    run = shutil.copytree(data / "two_CartPole-v1", tmp_path / "young")
    (file,) = run.glob("*_trial_metrics_scalar.json")
    file.unlink()
    with pytest.raises(UsageError, match="not known until a run has ended"):
        plot(PlotRequest((str(run),), out=tmp_path / "f.svg", normalise=("500",)))


def test_tables_keep_all_digits_as_csv_and_escape_names_as_latex(drawn):
    _, result = drawn("*Acro*", labels=("a_b & c", "100 %"))
    lines = as_csv(result.results.endings).splitlines()
    assert lines[0].startswith("label,seeds,planned,mean,std,iqm")
    assert float(lines[1].split(",")[3]) == result.results.endings[0].mean
    latex = as_latex(text_table(result.results.endings))
    assert r"a\_b \& c" in latex
    assert r"100 \%" in latex
    assert latex.startswith("\\begin{tabular}{lrrrrr}\n\\toprule")


def test_a_narrow_figure_has_its_panels_below_each_other(drawn):
    wide, _ = drawn(by="env", out="f.pdf", width="5.5in")
    assert [len(row) for row in wide.rows] == [2]
    narrow, _ = drawn(by="env", out="f.pdf", width="3.4in")
    assert [len(row) for row in narrow.rows] == [1, 1]
    assert all(panel.y.label for panel in narrow.panels)
