"""The graphs of all Trials of a search together: a line each, the best in colours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from slm_lab.analysis.figure.axis import RETURNS, Axis, Line, decimate, line, mean_lines
from slm_lab.analysis.figure.figure import MAX_POINTS, Curve, Figure
from slm_lab.analysis.figure.layout import single
from slm_lab.analysis.figure.write import write_figure
from slm_lab.analysis.search.summary import point_texts, short_names, status_text
from slm_lab.analysis.search.trial_state import TrialState, ranked
from slm_lab.metrics.reader import Rows

BEST = 5
"""Trials in colour."""

_X = Axis("total_frame", "frames", "frames of the budget")
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
    """Draws a line for each Trial over `total_frame`, the mean over its Sessions; returns the
    paths.

    `rows` has those of every Session, by Trial. If a Trial repeats one training, `run_of` has the
    run of each Session; its line is then the mean over runs, each the mean of its workers. Files
    are `{prefix}_multi_trial_graph_{mean_returns,mean_returns_ma}_vs_frames.png` and `.html`.
    Raises OSError.
    """
    paths: list[Path] = []
    for y in RETURNS:
        lines = {trial: _mean(each, run_of.get(trial), y) for trial, each in rows.items()}
        figure = multi_trial_figure(lines, trials, y, title)
        stem = f"{prefix}_multi_trial_graph_{y.file}_vs_{_X.file}"
        paths += write_figure(figure, folder, stem, folder.parent)
    return paths


def multi_trial_figure(
    lines: Mapping[int, Line | None], trials: Sequence[TrialState], y: Axis, title: str
) -> Figure:
    """The best Trials in colours, named by their points; the others thin and grey behind them."""
    drawn = {trial: each for trial, each in lines.items() if each is not None}
    scored = [each for each in ranked(trials) if each.known_score is not None]
    best = [each for each in scored if each.trial in drawn][:BEST]
    others = [trial for trial in drawn if trial not in {each.trial for each in best}]
    paths = dict.fromkeys(path for each in trials for path in each.params)
    names = short_names(list(paths))
    curves = [
        Curve(_label(each, names), *decimate(drawn[each.trial]), colour=i)
        for i, each in enumerate(best)
    ]
    points = max(_ALL_POINTS // max(len(others), 1), _FEWEST_POINTS)
    label = "1 other trial" if len(others) == 1 else f"{len(others)} other trials"
    for i, trial in enumerate(others):
        x, mean = decimate(drawn[trial], min(points, MAX_POINTS))
        words = "" if i else label
        curves.append(Curve(words, x, mean, style="faint", colour=_GREY, tint=_TINT))
    subtitle = f"{status_text(trials)} · mean over the Sessions of each"
    return single(title, subtitle, _X.label, y.label, curves, "no values yet")


def _label(trial: TrialState, names: Mapping[str, str]) -> str:
    """ "t12 lr 0.003, entropy 0.01"."""
    short_of = "" if trial.status == "finished" else f" ({trial.status} at frame {trial.frame})"
    label = f"t{trial.trial} {', '.join(point_texts(trial, names))}{short_of}".strip()
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"


def _mean(rows: Sequence[Rows], run_of: Sequence[int] | None, y: Axis) -> Line | None:
    """Over Sessions, or over runs; None where no Session has a value."""
    lines = [decimate(line(each, _X, y)) for each in rows]
    if run_of is not None:
        lines = mean_lines(lines, run_of)
    return next(iter(mean_lines(lines, [0] * len(lines))), None)
