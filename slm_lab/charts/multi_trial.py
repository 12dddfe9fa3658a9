"""The chart of all Trials of a search: a line each, the best in colours."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from slm_lab.charts import axis
from slm_lab.charts.chart import (
    GREY,
    MAX_POINTS,
    Chart,
    Curve,
    Ink,
    curves_panel,
    single,
)
from slm_lab.charts.curves import decimate
from slm_lab.charts.search_summary import point_texts, status_text
from slm_lab.charts.write import write_chart
from slm_lab.core.text import count_text, shortened
from slm_lab.core.values import short_names
from slm_lab.metrics.lines import Line, mean_lines
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.trial_state import TrialState, ranked

COLOURED_TRIALS = 5

_X = axis.Axis("total_frame", "frames", "frames of the budget")
_ALL_POINTS = 40_000  # of all lines behind
_FEWEST_POINTS = 100  # of one of them
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
    returns the paths. `rows` has the rows of every Session, by Trial. If a Trial
    repeats one training, `run_of` has the run of each Session. Its line is then the
    mean over runs, each the mean of its workers. Files are
    `{prefix}_multi_trial_graph_{mean_returns,mean_returns_ma}_vs_frames.png` and
    `.html`. Raises OSError."""
    paths: list[Path] = []
    for y in axis.RETURNS:
        lines = {
            trial: _mean(sessions, run_of.get(trial), y)
            for trial, sessions in rows.items()
        }
        chart = multi_trial_chart(lines, trials, y, title)
        stem = f"{prefix}_multi_trial_graph_{y.file}_vs_{_X.file}"
        paths += write_chart(chart, folder, stem, folder.parent)
    return paths


def multi_trial_chart(
    lines: Mapping[int, Line | None],
    trials: Sequence[TrialState],
    y: axis.Axis,
    title: str,
) -> Chart:
    """The best Trials in colours, named by their points; the others thin and grey
    behind them."""
    drawn = {trial: line for trial, line in lines.items() if line is not None}
    scored = [trial for trial in ranked(trials) if trial.known_score is not None]
    best = [trial for trial in scored if trial.trial in drawn][:COLOURED_TRIALS]
    others = drawn.keys() - {trial.trial for trial in best}
    names = short_names(
        list(dict.fromkeys(p for trial in trials for p in trial.params))
    )
    curves = [
        Curve(_label(trial, names), *decimate(drawn[trial.trial]), ink=Ink(colour))
        for colour, trial in enumerate(best)
    ]
    points = max(_ALL_POINTS // max(len(others), 1), _FEWEST_POINTS)
    label = count_text(len(others), "other trial")
    for trial in sorted(others):
        line = decimate(drawn[trial], min(points, MAX_POINTS))
        curves.append(Curve(label, *line, style="faint", ink=Ink(GREY, 0.7)))
        label = ""
    subtitle = f"{status_text(trials)} · mean over the Sessions of each"
    return single(title, subtitle, curves_panel(_X.label, y.label, curves))


def _label(trial: TrialState, names: Mapping[str, str]) -> str:
    """ "t12 lr 0.003, entropy 0.01"."""
    label = f"t{trial.trial} {', '.join(point_texts(trial, names))}".strip()
    if trial.status != "finished":
        label += f" ({trial.status} at frame {trial.frame})"
    return shortened(label, _LONGEST)


def _mean(
    rows: Sequence[Rows], run_of: Sequence[int] | None, y: axis.Axis
) -> Line | None:
    """The mean line over Sessions, or over runs; None where no Session has a value."""
    lines = [decimate(axis.line(session, _X, y)) for session in rows]
    if run_of is not None:
        lines = mean_lines(lines, run_of)
    return next(iter(mean_lines(lines, [0] * len(lines))), None)
