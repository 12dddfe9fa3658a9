"""The charts of a comparison of modes: curves over four clocks, and speed-ups."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.charts import speeds
from slm_lab.charts.axis import TOTAL_FRAMES, Axis, cpu_clock, frames, wall_clock
from slm_lab.charts.chart import (
    GREY,
    NO_VALUES,
    Bar,
    Chart,
    Ink,
    Panel,
    Scale,
    Table,
    curves_panel,
    level,
)
from slm_lab.charts.overlay import Seeds, overlay, overlay_chart
from slm_lab.charts.speeds import (
    BASELINE,
    CROWDED,
    ComparedTrainings,
    VariantResult,
    Way,
)
from slm_lab.charts.write import write_chart
from slm_lab.core.files import write_atomically
from slm_lab.core.text import count_text, short_count
from slm_lab.spec.modes import MODES

MOST_BANDS = 5
"""The most curves in one panel whose bands can still be told apart."""

_PALEST = 0.4
"""The opacity of the fewest workers; the most have the full colour."""
_STARVED = 0.9
"""Cores used by one process below which a note says so."""
_UNNAMED = Axis("", "", "")
"""An axis whose name is in the title."""


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
    summary = speeds.summary_table(comparison)
    outcomes = {outcome.way.label: outcome for outcome in comparison.outcomes}
    inks = {label: _ink(comparison, outcome.way) for label, outcome in outcomes.items()}
    with_bands = len(outcomes) <= MOST_BANDS
    panels = []
    for x in clocks(comparison):
        groups = _groups(outcomes, x)
        curves = overlay(groups, "mean", inks, ragged=1.0)
        if not with_bands:
            curves = [curve._replace(band=None) for curve in curves]
        if comparison.threshold is not None and curves:
            curves = [level(comparison.threshold, curves), *curves]
        panels.append(curves_panel(x.label, "", curves, f"return against {x.label}"))
    bars = _speed_ups(comparison, title="speed-up: total frames/s, one process = 1")
    return Chart(
        f"{comparison.title}: ways of parallel training",
        _budget_text(comparison),
        rows=((*panels[:2], bars), (*panels[2:], bars)),
        table=Table(speeds.text_table(summary), tuple(inks.values())),
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
    tops = [1.0]
    for bar in bars:
        tops += [bar.height, bar.mark, *bar.interval]
    return Panel(
        x=Scale("workers"),
        y=Scale(y, (0.0, 1.08 * float(np.nanmax(tops)))),
        title=title,
        hint=" · ".join(words),
        bars=tuple(bars),
        base=1.0,
        note=NO_VALUES,
    )


def _bar(comparison: ComparedTrainings, way: Way, row: Any) -> Bar:
    """The bar of a variant from its row in the summary."""
    text = "failed" if row.failed else "–"
    if np.isfinite(row.speed_up):
        text = f"{row.speed_up:.2f}"
    return Bar(
        label=way.number,
        height=row.speed_up,
        text=text,
        mark=float(way.workers),
        interval=(row.speed_up_low, row.speed_up_high),
        ink=_ink(comparison, way),
        hollow=way.crowded,
        group=way.mode,
        hover=f"{text}, ideal: {way.workers}",
    )


def return_overview(comparison: ComparedTrainings, x: Axis) -> Chart:
    """A panel for each number of workers, all with the baseline; each colour is named
    once."""
    baseline, *others = comparison.outcomes
    panels: dict[str, list[Seeds]] = {}
    for workers in comparison.worker_counts or [1]:
        heading = count_text(workers, "worker")
        if workers > comparison.cores:
            heading += f", on {count_text(comparison.cores, 'core')} {CROWDED}"
        chosen = [o for o in others if o.way.workers == workers]
        outcomes = {outcome.way.name: outcome for outcome in (baseline, *chosen)}
        panels[heading] = _groups(outcomes, x)
    ways = [outcome.way for outcome in comparison.outcomes]
    lines = []
    if comparison.threshold is not None:
        lines = [(f"threshold {comparison.threshold:g}", comparison.threshold)]
    chart = overlay_chart(
        panels,
        x,
        y=_UNNAMED,
        aggregate="mean",
        title=f"{comparison.title}: return against {x.label}",
        lines=lines,
        ragged=1.0,
        inks={way.name: Ink(_ink(comparison, way).colour) for way in ways},
    )
    return chart._replace(subtitle=_budget_text(comparison), notes=(chart.subtitle,))


def _groups(outcomes: Mapping[str, VariantResult], x: Axis) -> list[Seeds]:
    """The curve of each outcome that has any, by its label."""
    groups = []
    for label, outcome in outcomes.items():
        lines = [speeds.line_over(t, x) for t in outcome.trainings.values()]
        with_points = tuple(line for line in lines if line.x.size)
        if with_points:
            groups.append(Seeds(label, with_points))
    return groups


def clocks(comparison: ComparedTrainings) -> list[Axis]:
    """The clocks, each in units that suit the longest training."""
    trainings = [
        training
        for outcome in comparison.outcomes
        for training in outcome.trainings.values()
    ]
    longest = max((training.seconds for training in trainings), default=0.0)
    cpu_seconds = [training.cpu_t[-1] for training in trainings if training.cpu_t.size]
    return [
        TOTAL_FRAMES,
        wall_clock(longest),
        frames("per process"),
        cpu_clock(float(np.nanmax([0.0, *cpu_seconds]))),
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
    budget = short_count(comparison.max_frame)
    return (
        f"{budget} total frames each · {count_text(comparison.seeds, 'seed')} · "
        f"measured on {count_text(comparison.cores, 'core')} ({comparison.processor})"
    )


def _notes(comparison: ComparedTrainings, with_bands: bool) -> tuple[str, ...]:
    window = short_count(round(comparison.window))
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
    used = [t.cores_used for t in trainings if np.isfinite(t.cores_used)]
    if used and np.median(used) < _STARVED:
        notes.append(
            f"one process computed in {np.median(used):.0%} of its time only: it "
            "waited for its environments, or other programs had the cores, and then "
            "the speeds are too low"
        )
    return (*notes, *comparison.notes)
