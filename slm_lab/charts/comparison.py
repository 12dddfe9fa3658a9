"""The charts of a comparison of modes: curves over four clocks, and speed-ups."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.charts import speeds
from slm_lab.charts.axis import TOTAL_FRAMES, Axis, cpu_clock, frames, wall_clock
from slm_lab.charts.chart import (
    GREY,
    Bar,
    Cells,
    Chart,
    Curve,
    Ink,
    Panel,
    Scale,
    Table,
    around,
    curves_panel,
    grid,
    level,
)
from slm_lab.charts.look import tick_text
from slm_lab.charts.speeds import (
    BASELINE,
    CROWDED,
    ComparedTrainings,
    VariantResult,
    Way,
)
from slm_lab.charts.write import write_chart
from slm_lab.core.files import write_atomically
from slm_lab.core.text import count_text
from slm_lab.metrics.lines import common_grid, spread
from slm_lab.spec.modes import MODES

MOST_BANDS = 5
"""The most curves in one panel whose bands can still be told apart."""

_PALEST = 0.4
"""The opacity of the fewest workers; the most have the full colour."""
_POINTS = 400
"""Points per curve. A panel of the dashboard has few more pixels, and with equally many
points all lines look equally thick."""
_STARVED = 0.9
"""Cores used by one process below which a note says so."""
_NO_VALUES = "no values"


def draw_comparison(
    comparison: ComparedTrainings, folder: Path, prefix: str
) -> list[Path]:
    """Draws all graphs into `folder`; returns the paths, the dashboard's PNG first.
    Files are `{prefix}_compare.png` and `.html` (the dashboard),
    `{prefix}_compare_mean_returns_vs_{total_frames,wall_t,frames,cpu_t}` and
    `{prefix}_compare_speed_up` as both. Raises OSError."""
    stem = f"{prefix}_compare"
    charts = {stem: dashboard(comparison)}
    for x in clocks(comparison):
        charts[f"{stem}_mean_returns_vs_{x.file}"] = return_overview(comparison, x)
    charts[f"{stem}_speed_up"] = speed_up_chart(comparison)
    paths: list[Path] = []
    for name, chart in charts.items():
        paths += write_chart(chart, folder, name, folder.parent)
    return paths


def write_tables(
    comparison: ComparedTrainings, folder: Path, prefix: str
) -> list[Path]:
    """Writes `{prefix}_compare_df.csv` and `{prefix}_compare_trainings_df.csv` into
    `folder`; returns both paths. Raises OSError."""
    stem = f"{prefix}_compare"
    tables = {
        folder / f"{stem}_df.csv": speeds.summary_table(comparison),
        folder / f"{stem}_trainings_df.csv": speeds.trainings_table(comparison),
    }
    for path, table in tables.items():
        write_atomically(path, table.to_csv(index=False).encode())
    return [*tables]


def dashboard(comparison: ComparedTrainings) -> Chart:
    """Everything at one glance: returns over four clocks, speed-ups, and the table,
    which is the legend of the curves."""
    with_bands = len(comparison.outcomes) <= MOST_BANDS
    summary = speeds.summary_table(comparison)
    panels = []
    for x in clocks(comparison):
        curves = _with_threshold(
            comparison, _curves(comparison, comparison.outcomes, x, with_bands)
        )
        unnamed = [curve._replace(label="") for curve in curves]
        title = f"return against {x.label}"
        panels.append(curves_panel(x.label, "", unnamed, title, note=_NO_VALUES))
    bars = _speed_ups(comparison, title="speed-up: total frames/s, one process = 1")
    inks = [_ink(comparison, outcome.way) for outcome in comparison.outcomes]
    return Chart(
        f"{comparison.title}: ways of parallel training",
        _budget_text(comparison),
        rows=((*panels[:2], bars), (*panels[2:], bars)),
        table=Table(speeds.text_table(summary), tuple(inks)),
        notes=_notes(comparison, with_bands),
    )


def speed_up_chart(comparison: ComparedTrainings) -> Chart:
    """How many times as fast as one process, beside the ideal: the number of
    workers."""
    title = f"{comparison.title}: speed-up over one process"
    panel = _speed_ups(comparison, y="total frames/s, one process = 1")
    notes = panel.hint
    if any(bar.hollow for bar in panel.bars):
        notes += f" · ☐ {CROWDED} more workers than cores"
    panel = panel._replace(hint="")
    return Chart(title, _budget_text(comparison), ((panel,),), notes=(notes,))


def _speed_ups(comparison: ComparedTrainings, title: str = "", y: str = "") -> Panel:
    bars = []
    rows: list[Any] = list(speeds.summary_table(comparison).itertuples())
    for outcome, row in zip(comparison.outcomes, rows, strict=True):
        if outcome.way.mode != BASELINE:
            bars.append(_bar(comparison, outcome.way, row))
    words = ["━ ideal", "╌ one process"]
    if comparison.seeds > 1:
        words.append("│ all seeds")
    panel = bar_panel("workers", y, bars, base=1.0)
    return panel._replace(title=title, hint=" · ".join(words))


def _bar(comparison: ComparedTrainings, way: Way, row: Any) -> Bar:
    """The bar of a variant from its row in the summary."""
    gain = None
    interval = None
    text = "failed" if row.failed else "–"
    if np.isfinite(row.speed_up):
        gain = row.speed_up
        interval = (row.speed_up_low, row.speed_up_high)
        text = f"{gain:.2f}"
    crowd = f" {CROWDED}" * way.crowded
    return Bar(
        label=f"{way.workers}{crowd}",
        height=gain,
        text=text,
        mark=float(way.workers),
        interval=interval,
        ink=_ink(comparison, way),
        hollow=way.crowded,
        group=way.mode,
        hover=f"{text}, ideal: {way.workers}",
    )


def bar_panel(x: str, y: str, bars: Sequence[Bar], base: float | None = None) -> Panel:
    """Bars from 0, on an axis that shows all of them."""
    tops = [base or 0.0]
    for bar in bars:
        tops += [bar.height or 0.0, bar.mark, *(bar.interval or ())]
    up = Scale(y, (0.0, 1.08 * float(np.nanmax(tops)) or 1.0))
    return Panel(Scale(x), up, bars=tuple(bars), base=base, note=_NO_VALUES)


def return_overview(comparison: ComparedTrainings, x: Axis) -> Chart:
    """A panel for each number of workers, all with the baseline; each colour is named
    once."""
    baseline, *others = comparison.outcomes
    panels = []
    named: set[str] = set()
    for workers in comparison.worker_counts or [1]:
        chosen = [o for o in others if o.way.workers == workers]
        curves = []
        for outcome, curve in _curves(comparison, [baseline, *chosen], x, True):
            mode = outcome.way.mode
            name = mode
            if mode == BASELINE:
                name = curve.label
            look = curve._replace(
                label=name * (mode not in named), ink=Ink(curve.ink.colour)
            )
            curves.append((outcome, look))
            named.add(mode)
        title = count_text(workers, "worker")
        if workers > comparison.cores:
            title += f", on {count_text(comparison.cores, 'core')} {CROWDED}"
        drawn = _with_threshold(comparison, curves)
        panels.append(curves_panel(x.label, "", drawn, title, note=_NO_VALUES))
    subtitle = _budget_text(comparison)
    if comparison.threshold is not None:
        subtitle += f" · dashed: {comparison.threshold:g}"
    rows: Cells = grid(panels)
    title = f"{comparison.title}: return against {x.label}"
    return Chart(title, subtitle, rows, legend=True)


def _curves(
    comparison: ComparedTrainings,
    outcomes: Sequence[VariantResult],
    x: Axis,
    with_bands: bool,
) -> list[tuple[VariantResult, Curve]]:
    """The mean over the seeds, as far as all of them go, of each outcome that has
    any."""
    curves = []
    for outcome in outcomes:
        trainings = outcome.trainings.values()
        lines = [speeds.line_over(training, x) for training in trainings]
        lines = [line for line in lines if line.x.size]
        if not lines:
            continue
        over = spread(lines, common_grid(lines, _POINTS))
        all_there = over.sessions == len(lines)
        mean = over.mean[all_there]
        curve = Curve(
            outcome.way.label,
            over.x[all_there],
            mean,
            ink=_ink(comparison, outcome.way),
        )
        if with_bands and len(lines) > 1:
            curve = curve._replace(band=around(mean, over.std[all_there]))
        curves.append((outcome, curve))
    return curves


def _with_threshold(
    comparison: ComparedTrainings, outcomes: Sequence[tuple[VariantResult, Curve]]
) -> list[Curve]:
    """The curves, over a line across all of them if there is a threshold."""
    curves = [curve for _, curve in outcomes]
    if comparison.threshold is None or not curves:
        return curves
    return [level(comparison.threshold, curves), *curves]


def clocks(comparison: ComparedTrainings) -> list[Axis]:
    """The clocks, each in units that suit the longest training."""
    trainings = [
        training
        for outcome in comparison.outcomes
        for training in outcome.trainings.values()
    ]
    longest = max((training.seconds for training in trainings), default=0.0)
    cpu_seconds = [
        float(training.cpu_t[-1])
        for training in trainings
        if np.isfinite(training.cpu_t).any()
    ]
    return [
        TOTAL_FRAMES,
        wall_clock(longest),
        frames("per process"),
        cpu_clock(max(cpu_seconds, default=0.0)),
    ]


def _ink(comparison: ComparedTrainings, way: Way) -> Ink:
    """The mode is the colour, few workers are pale."""
    if way.mode == BASELINE:
        return Ink(GREY)
    modes = list(dict.fromkeys([*MODES.names(), way.mode]))
    colour = modes.index(way.mode) % GREY
    counts = comparison.worker_counts
    if len(counts) == 1:
        return Ink(colour)
    share = counts.index(way.workers) / (len(counts) - 1)
    return Ink(colour, _PALEST + (1 - _PALEST) * share)


def _budget_text(comparison: ComparedTrainings) -> str:
    budget = tick_text(comparison.max_frame, comparison.max_frame)
    return (
        f"{budget} total frames each · {count_text(comparison.seeds, 'seed')} · "
        f"measured on {count_text(comparison.cores, 'core')} ({comparison.processor})"
    )


def _notes(comparison: ComparedTrainings, with_bands: bool) -> tuple[str, ...]:
    window = tick_text(comparison.window, comparison.window)
    measured = f"return: mean of all workers over the last {window} total frames"
    if comparison.seeds > 1:
        measured += "; a curve is the mean over the seeds"
        if with_bands:
            measured += ", the band one standard deviation"
        measured += "; numbers are medians over the seeds"
    notes = [measured]
    ways = [outcome.way for outcome in comparison.outcomes]
    if any(way.crowded for way in ways):
        notes.append(f"{CROWDED} more workers than cores: they take turns")
    with_learner = [way.mode for way in ways if way.has_learner]
    for mode in dict.fromkeys(with_learner):
        notes.append(f"{mode}: workers are its actors; the learner is one process more")
    trainings = comparison.outcomes[0].trainings.values()
    used = [t.cores_used for t in trainings if t.cores_used is not None]
    if used and np.median(used) < _STARVED:
        notes.append(
            f"one process computed in {np.median(used):.0%} of its time only: it "
            "waited for its environments, or other programs had the cores, and then "
            "the speeds are too low"
        )
    return (*notes, *comparison.notes)
