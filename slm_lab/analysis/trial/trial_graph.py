"""The graphs of a Session; of a Trial: mean over its Sessions, with a band of one
standard deviation; and of all Trials of a search together: a line each, the best in
colours."""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import numpy as np

from slm_lab.analysis.figure import axis
from slm_lab.analysis.figure.axis import (
    Line,
    Spread,
    common_grid,
    decimate,
    mean_lines,
    spread,
)
from slm_lab.analysis.figure.figure import MAX_POINTS, Band, Curve, Figure, around
from slm_lab.analysis.figure.layout import overview, single
from slm_lab.analysis.figure.write import write_figure, write_page, write_png
from slm_lab.analysis.search.search_summary import point_texts, short_names, status_text
from slm_lab.analysis.search.trial_state import TrialState, ranked
from slm_lab.core.text import count_text, significant
from slm_lab.core.types import FloatArray
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS, INFO_PREFIX, LEARNED

MAX_FAINT_LINES = 8
"""The most Sessions that are also drawn one by one, behind the mean."""

MAX_RAGGED = 0.05
"""The share of the axis that is left out at its ends if not all Sessions reach into
it."""

_LEARNER_COLUMNS = (
    "loss",
    "entropy",
    "explore_var",
    "staleness_p50",
    "staleness_p95",
    "updates_per_s",
    "sync_share",
    "eps",
    "policy_lag",
    "policy_lag_max",
    "actor_wait_share",
    "learner_wait_share",
)


def draw_trial_graphs(
    out_dir: Path,
    rows: Sequence[Rows],
    evaluations: Sequence[Rows],
    prefix: str,
    title: str,
    *,
    which: Literal["all", "live"] = "all",
    run_of: Sequence[int] | None = None,
    scripts: Path | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[Path]:
    """Draws the graphs of a Trial into `out_dir`; returns their paths. Pages load
    plotly.js from the folder `scripts`, as in `write_figure`.

    `rows` and `evaluations` have an entry for every Session, without rows if there are
    none yet. If one training was repeated, `run_of` has the run of each Session; mean
    and band are then over runs, each the mean of its Sessions.

    Files are `{prefix}_trial_graph_{y}_vs_{x}.png` and `.html`: returns against each
    clock; against frames also other columns with values, and `eval_mean_returns`.
    "live" draws only the first two graphs of returns and the last. No graph is begun
    once `is_stopped`. Raises OSError."""
    clock = axis.frames("per Session" if len(rows) > 1 else "")
    graphs = [
        (rows, *axes)
        for axes in _axes([each for each in rows if len(each)], which, clock)
    ]
    if any(len(each) for each in evaluations):
        graphs.append((evaluations, clock, axis.EVAL_RETURNS))
    figures = {
        f"{prefix}_trial_graph_{y.file}_vs_{x.file}": figure_of_rows(
            each, x, y, title, run_of
        )
        for each, x, y in graphs
    }
    pictures: list[Path] = []
    pages: list[Path] = []
    # Small files first: a disk may have room for them, and not for the pages and their
    # script.
    for stem, figure in figures.items():
        if not is_stopped():
            pictures.append(write_png(figure, out_dir, stem))
    for stem, figure in figures.items():
        if not is_stopped():
            pages.append(write_page(figure, out_dir, stem, scripts))
    pairs = zip_longest(pictures, pages)
    return [path for pair in pairs for path in pair if path is not None]


def trial_figure(
    lines: Sequence[Line],
    x: axis.Axis,
    y: axis.Axis,
    title: str,
    subtitle: str,
    of: str = "Session",
) -> Figure:
    """Mean and band over the lines that have points, each `of` a Session or a run."""
    lines = [one for one in lines if one.x.size]
    if not lines:
        return single(title, subtitle, x.label, y.label, (), "no values yet")
    if len(lines) == 1:
        return single(
            title, subtitle, x.label, y.label, [Curve("", *decimate(lines[0]))]
        )
    faint = map(decimate, lines if len(lines) <= MAX_FAINT_LINES else ())
    curves = [
        Curve("" if i else f"each {of}", *one, style="faint")
        for i, one in enumerate(faint)
    ]
    curves += _mean_curves(lines, of)
    return single(title, subtitle, x.label, y.label, curves)


def sessions_text(with_rows: int, planned: int, of: str = "Session") -> str:
    """ "4 Sessions", or "3 of 4 Sessions" while one has no rows."""
    every = count_text(planned, of)
    return every if with_rows == planned else f"{with_rows} of {every}"


def figure_of_rows(
    rows: Sequence[Rows],
    x: axis.Axis,
    y: axis.Axis,
    title: str,
    run_of: Sequence[int] | None = None,
) -> Figure:
    """The graph of a Trial from the rows of its Sessions; see `draw_trial_graphs`."""
    of = "Session" if run_of is None else "run"
    runs = len(set(run_of or ()))
    one_each = run_of is not None and runs == len(rows)
    with_rows = sum(len(each) > 0 for each in rows)
    subtitle = sessions_text(with_rows, len(rows), "run" if one_each else "Session")
    if run_of is not None and not one_each:
        subtitle += f", workers of {runs} runs"
    lines = [axis.line(each, x, y) for each in rows]
    lines = lines if run_of is None else mean_lines(lines, run_of)
    return trial_figure(lines, x, y, title, subtitle, of)


def _axes(
    rows: Sequence[Rows], which: Literal["all", "live"], clock: axis.Axis
) -> list[tuple[axis.Axis, axis.Axis]]:
    pairs = [(clock, y) for y in axis.RETURNS]
    if which == "live":
        return pairs
    longest = max((float(each["wall_t"].max()) for each in rows), default=0.0)
    pairs += [
        (x, y)
        for x in (axis.TOTAL_FRAMES, axis.wall_clock(longest))
        for y in axis.RETURNS
    ]
    of_info = dict.fromkeys(
        c for r in rows for c in r.columns if c.startswith(INFO_PREFIX)
    )
    known = (*_LEARNER_COLUMNS, *of_info)
    reported = [
        c for c in known if any(c in r.columns and r.has_values(c) for r in rows)
    ]
    return pairs + [(clock, axis.learner_axis(column)) for column in reported]


def _mean_curves(lines: Sequence[Line], of: str) -> list[Curve]:
    """The mean over all lines with its band, and over fewer where some have no data."""
    over = without_ragged_ends(
        spread(lines, common_grid(lines, MAX_POINTS)), len(lines)
    )
    look = Curve(f"mean ± 1 std of {len(lines)} {of}s", over.x, over.mean)
    curves = middle_curves(
        look, over, over.mean, around(over.mean, over.std), len(lines)
    )
    if curves[-1].style == "dashed":
        count = over.sessions[over.sessions < len(lines)]
        fewest, most = int(count.min()), int(count.max())
        number = f"{fewest}" if fewest == most else f"{fewest}–{most}"
        label = f"mean of {number} {of}{'' if most == 1 else 's'}"
        curves[-1] = curves[-1]._replace(label=label)
    return curves


def middle_curves(
    look: Curve, over: Spread, middle: FloatArray, band: Band, num_lines: int
) -> list[Curve]:
    """Splits `middle` (G,) into a solid curve with a band where all lines have data,
    and a dashed one where only some have. Both are styled like `look`."""
    full = over.sessions == num_lines
    curves: list[Curve] = []
    if full.any():
        mean, *ends = (np.where(full, values, np.nan) for values in (middle, *band))
        curves.append(look._replace(x=over.x, mean=mean, band=Band(*ends)))
    if not full.all():
        # and a point more on each side, so that the dashed line joins the solid one
        partly = ~full
        partly[1:] |= ~full[:-1]
        partly[:-1] |= ~full[1:]
        label, mean = "" if curves else look.label, np.where(partly, middle, np.nan)
        curves.append(look._replace(label=label, x=over.x, mean=mean, style="dashed"))
    return curves


def without_ragged_ends(over: Spread, num_sessions: int) -> Spread:
    """Leaves out ends that fewer than `num_sessions` reach, if they are short."""
    full = np.flatnonzero(over.sessions == num_sessions)
    if not full.size:
        return over
    x, allowed = over.x, MAX_RAGGED * (over.x[-1] - over.x[0])
    first = int(full[0]) if x[full[0]] - x[0] <= allowed else 0
    last = int(full[-1]) if x[-1] - x[full[-1]] <= allowed else len(x) - 1
    kept = slice(first, last + 1)
    return Spread(x[kept], over.mean[kept], over.std[kept], over.sessions[kept])


_PANEL_POINTS = 1000  # of a line: a panel is a few hundred pixels wide


def draw_session_graphs(
    graph_dir: Path,
    rows: Rows,
    evaluations: Rows,
    prefix: str,
    title: str,
    scripts: Path,
) -> list[Path]:
    """Draws `{prefix}_session_graph_overview.png` and `.html` into a folder. Returns
    the paths. Pages load plotly.js from the folder `scripts`. Raises OSError."""
    figure = session_overview(rows, evaluations, title)
    return write_figure(figure, graph_dir, f"{prefix}_session_graph_overview", scripts)


def session_overview(rows: Rows, evaluations: Rows, title: str) -> Figure:
    """A panel of returns, one of evaluations if there are any, one per column whose
    values differ. All against frames; the columns are in the order of `rows`. Constant
    ones are in the subtitle.
    """
    row, average = (_panel_line(rows, y) for y in axis.RETURNS)
    curves = (
        [Curve("", *row, colour=5), Curve("smoothed", *average)] if row.x.size else []
    )
    panels, counts = [(axis.RETURNS[0].label, curves)], [count_text(len(rows), "row")]
    if len(evaluations):
        counts.append(count_text(len(evaluations), "evaluation"))
        mean, std = (
            _panel_line(evaluations, y) for y in (axis.EVAL_RETURNS, axis.EVAL_SPREAD)
        )
        curve = Curve("± 1 std of episodes", *mean, around(mean.y, std.y), colour=2)
        panels.append(("evaluation return", [curve] if mean.x.size else []))
    reported = [c for c in rows.columns if c in LEARNED or c not in BASE_COLUMNS]
    constant = []
    for y in map(axis.learner_axis, filter(rows.has_values, reported)):
        line = _panel_line(rows, y)
        if line.x.size > 1 and np.ptp(line.y) == 0:
            constant.append(f"{y.label} {significant(float(line.y[0]))}")
        else:
            panels.append((y.label, [Curve("", *line)]))
    if constant:
        counts.append(f"constant: {', '.join(constant)}")
    return overview(title, " · ".join(counts), axis.frames().label, panels)


def _panel_line(rows: Rows, y: axis.Axis) -> Line:
    return decimate(axis.line(rows, axis.frames(), y), _PANEL_POINTS)


COLOURED_TRIALS = 5

_X = axis.Axis("total_frame", "frames", "frames of the budget")
_ALL_POINTS, _FEWEST_POINTS = 40_000, 100  # of all lines behind, and of one of them
_GREY, _TINT = 6, 0.35
_LONGEST = 170  # letters of a label


def draw_multi_trial_graphs(
    rows: Mapping[int, Sequence[Rows]],
    trials: Sequence[TrialState],
    run_of: Mapping[int, Sequence[int] | None],
    folder: Path,
    prefix: str,
    title: str,
) -> list[Path]:
    """Draws a line for each Trial over `total_frame`, the mean over its Sessions;
    returns the paths. `rows` has those of every Session, by Trial. If a Trial repeats
    one training, `run_of` has the run of each Session; its line is then the mean over
    runs, each the mean of its workers. Files are
    `{prefix}_multi_trial_graph_{mean_returns,mean_returns_ma}_vs_frames.png` and
    `.html`. Raises OSError."""
    paths: list[Path] = []
    for y in axis.RETURNS:
        lines = {
            trial: _mean(each, run_of.get(trial), y) for trial, each in rows.items()
        }
        figure = multi_trial_figure(lines, trials, y, title)
        stem = f"{prefix}_multi_trial_graph_{y.file}_vs_{_X.file}"
        paths += write_figure(figure, folder, stem, folder.parent)
    return paths


def multi_trial_figure(
    lines: Mapping[int, Line | None],
    trials: Sequence[TrialState],
    y: axis.Axis,
    title: str,
) -> Figure:
    """The best Trials in colours, named by their points; the others thin and grey
    behind them."""
    drawn = {trial: each for trial, each in lines.items() if each is not None}
    scored = [each for each in ranked(trials) if each.known_score is not None]
    best = [each for each in scored if each.trial in drawn][:COLOURED_TRIALS]
    others = [trial for trial in drawn if trial not in {each.trial for each in best}]
    names = short_names(
        list(dict.fromkeys(path for each in trials for path in each.params))
    )
    curves = [
        Curve(_label(each, names), *decimate(drawn[each.trial]), colour=i)
        for i, each in enumerate(best)
    ]
    points = max(_ALL_POINTS // max(len(others), 1), _FEWEST_POINTS)
    label = count_text(len(others), "other trial")
    for i, trial in enumerate(others):
        x, mean = decimate(drawn[trial], min(points, MAX_POINTS))
        curves.append(
            Curve("" if i else label, x, mean, style="faint", colour=_GREY, tint=_TINT)
        )
    subtitle = f"{status_text(trials)} · mean over the Sessions of each"
    return single(title, subtitle, _X.label, y.label, curves, "no values yet")


def _label(trial: TrialState, names: Mapping[str, str]) -> str:
    """ "t12 lr 0.003, entropy 0.01"."""
    short_of = (
        ""
        if trial.status == "finished"
        else f" ({trial.status} at frame {trial.frame})"
    )
    label = f"t{trial.trial} {', '.join(point_texts(trial, names))}{short_of}".strip()
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _mean(
    rows: Sequence[Rows], run_of: Sequence[int] | None, y: axis.Axis
) -> Line | None:
    """Over Sessions, or over runs; None where no Session has a value."""
    lines = [decimate(axis.line(each, _X, y)) for each in rows]
    if run_of is not None:
        lines = mean_lines(lines, run_of)
    return next(iter(mean_lines(lines, [0] * len(lines))), None)
