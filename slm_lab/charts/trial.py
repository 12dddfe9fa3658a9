"""The charts of a Trial: the mean over its Sessions, with a band of one standard
deviation."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from slm_lab.charts import axis
from slm_lab.charts.chart import (
    MAX_POINTS,
    Chart,
    Curve,
    around,
    curves_panel,
    single,
)
from slm_lab.charts.curves import common_spread, decimate, solid_and_dashed
from slm_lab.charts.write import write_page, write_png
from slm_lab.core.text import count_text
from slm_lab.metrics.lines import Line, mean_lines
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import INFO_PREFIX

MAX_FAINT_LINES = 8
"""The most Sessions that are also drawn one by one, behind the mean."""
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


def trial_chart(
    lines: Sequence[Line],
    x: axis.Axis,
    y: axis.Axis,
    title: str,
    subtitle: str,
    unit: str = "Session",
) -> Chart:
    """Mean and band over the lines that have points. Each line is a Session or a run,
    as `unit` says."""
    lines = [line for line in lines if line.x.size]
    curves: list[Curve] = []
    if len(lines) == 1:
        curves = [Curve("", *decimate(lines[0]))]
    elif lines:
        if len(lines) <= MAX_FAINT_LINES:
            curves = [Curve("", *decimate(line), style="faint") for line in lines]
            curves[0] = curves[0]._replace(label=f"each {unit}")
        curves += _mean_curves(lines, unit)
    return single(title, subtitle, curves_panel(x.label, y.label, curves))


def _mean_curves(lines: Sequence[Line], unit: str) -> list[Curve]:
    """The mean over all lines with its band, and over fewer where some have no data."""
    over = common_spread(lines, MAX_POINTS)
    label = f"mean ± 1 std of {len(lines)} {unit}s"
    whole = Curve(label, over.x, over.mean, around(over.mean, over.std))
    *solid, last = solid_and_dashed(whole, over.sessions == len(lines))
    if last.style == "dashed":
        count = over.sessions[over.sessions < len(lines)]
        fewest = int(count.min())
        most = int(count.max())
        number = count_text(most, unit)
        if fewest < most:
            number = f"{fewest}–{number}"
        last = last._replace(label=f"mean of {number}")
    return [*solid, last]


def count_with_rows(with_rows: int, planned: int, unit: str = "Session") -> str:
    """ "4 Sessions", or "3 of 4 Sessions" while one has no rows."""
    count = count_text(planned, unit)
    if with_rows == planned:
        return count
    return f"{with_rows} of {count}"


def chart_of_rows(
    rows: Sequence[Rows],
    x: axis.Axis,
    y: axis.Axis,
    title: str,
    run_of: Sequence[int] | None = None,
) -> Chart:
    """The chart of a Trial from the rows of its Sessions; see `draw_trial_graphs`."""
    with_rows = sum(len(session) > 0 for session in rows)
    lines = [axis.line(session, x, y) for session in rows]
    subtitle = count_with_rows(with_rows, len(rows))
    if run_of is None:
        return trial_chart(lines, x, y, title, subtitle=subtitle)
    runs = len(set(run_of))
    subtitle += f", workers of {runs} runs"
    if runs == len(rows):
        subtitle = count_with_rows(with_rows, len(rows), "run")
    lines = mean_lines(lines, run_of)
    return trial_chart(lines, x, y, title, subtitle=subtitle, unit="run")


def chart_of_returns(
    rows: Mapping[int, Rows], title: str, run_of: Sequence[int] | None
) -> Chart:
    """The chart of the returns of a Trial against frames, from the rows by Session."""
    x = axis.frames("per Session")
    return chart_of_rows(list(rows.values()), x, axis.RETURNS[0], title, run_of=run_of)


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
    plotly.js from the folder `scripts`, as in `write_chart`.

    `rows` and `evaluations` have an entry for every Session, without rows if there are
    none yet. If one training was repeated, `run_of` has the run of each Session. Mean
    and band are then over runs, each the mean of its Sessions.

    Files are `{prefix}_trial_graph_{y}_vs_{x}.png` and `.html`: returns against each
    clock; against frames also other columns with values, and `eval_mean_returns`.
    "live" draws only the first two graphs of returns and the last. No graph is begun
    once `is_stopped`. Raises OSError."""
    clock = axis.frames("per Session" if len(rows) > 1 else "")
    begun = [session for session in rows if len(session)]
    graphs = [(rows, x, y) for x, y in _axes(begun, which, clock)]
    if any(len(session) for session in evaluations):
        graphs.append((evaluations, clock, axis.EVAL_RETURNS))
    charts = {
        f"{prefix}_trial_graph_{y.file}_vs_{x.file}": chart_of_rows(
            sessions, x, y, title, run_of=run_of
        )
        for sessions, x, y in graphs
    }
    paths: list[Path] = []
    # Small files first: a disk may have room for them, and not for the pages and their
    # script.
    for stem, chart in charts.items():
        if not is_stopped():
            paths.append(write_png(chart, out_dir, stem))
    for stem, chart in charts.items():
        if not is_stopped():
            paths.append(write_page([chart], out_dir, stem, scripts))
    return paths


def _axes(
    rows: Sequence[Rows], which: Literal["all", "live"], clock: axis.Axis
) -> list[tuple[axis.Axis, axis.Axis]]:
    """The axes of each graph of `rows`."""
    clocks = [clock]
    columns: list[str] = []
    if which == "all":
        longest = max((float(session["wall_t"].max()) for session in rows), default=0.0)
        clocks += [axis.TOTAL_FRAMES, axis.wall_clock(longest)]
        reported = dict.fromkeys(c for session in rows for c in session.columns)
        infos = [column for column in reported if column.startswith(INFO_PREFIX)]
        columns = [*_LEARNER_COLUMNS, *infos]
    pairs = [(x, y) for x in clocks for y in axis.RETURNS]
    for column in columns:
        with_column = [session for session in rows if column in session.columns]
        if any(session.has_values(column) for session in with_column):
            pairs.append((clock, axis.learner_axis(column)))
    return pairs
