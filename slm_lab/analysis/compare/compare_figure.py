"""The figures of a comparison, described: what is drawn, in which colours, with which words."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, final

import numpy as np

from slm_lab.analysis.compare.compare_table import TextTable, text_table
from slm_lab.analysis.compare.comparison import (
    BASELINE,
    CROWDED,
    Comparison,
    Outcome,
    Variant,
    line_over,
)
from slm_lab.analysis.figure.axis import Axis, frames, total_frames, wall_clock
from slm_lab.analysis.figure.figure import Curve, Overview, Panel, limits, tick_text, x_limits
from slm_lab.analysis.figure.grid import common_grid, spread
from slm_lab.spec.modes import MODES

MOST_BANDS = 5
"""With so many curves in one panel their bands can still be told apart."""
BAR_WIDTH = 0.74
"""Of the room that a bar has."""
HOLLOW = 0.82
"""The share of white in a bar that is not filled."""

_BASELINE_COLOUR = 6
_LIGHTEST = 0.6
"""The tint of the fewest workers; the most have the full colour."""
_GAP = 0.7
"""Between two groups of bars, in bars."""
_FEWEST = 4.0
"""Bars for which there is always room."""
_POINTS = 400
"""Of a curve: a plot of the dashboard is hardly wider, and all lines in it are to be as thick."""
_STARVED = 0.9
"""Cores used by one process below which a note says so."""
_THRESHOLD_COLOUR, _THRESHOLD_TINT = 6, 0.45


Mark: TypeAlias = Literal["ideal", "base", "spread", "hollow"]
"""What is beside a bar, across all, over a bar; and a bar that is not filled."""


@final
@dataclass(frozen=True)
class Bar:
    """A bar among those of `group`: `height` is None where there is nothing to show but `note`.

    `low` and `high` are the ends of the line over it, `ideal` the mark beside it.
    """

    group: str
    label: str
    height: float | None
    low: float
    high: float
    ideal: float
    colour: int
    tint: float
    hollow: bool
    note: str = ""


@final
@dataclass(frozen=True)
class BarChart:
    """Bars in groups; `base` is the height of a line across all of them."""

    title: str
    subtitle: str
    x_label: str
    y_label: str
    bars: tuple[Bar, ...]
    base: float
    legend: tuple[tuple[Mark, str], ...]

    @property
    def groups(self) -> list[str]:
        """Each once, from left to right."""
        return list(dict.fromkeys(bar.group for bar in self.bars))

    @property
    def places(self) -> list[float]:
        """The middle of each bar, in bars from the middle of the first."""
        places: list[float] = []
        for before, bar in zip((None, *self.bars), self.bars, strict=False):
            gap = 0.0 if before is None else 1.0 + _GAP * (before.group != bar.group)
            places.append((places or [0.0])[-1] + gap)
        return places

    @property
    def x_ends(self) -> tuple[float, float]:
        """Of the x axis, in bars; wide enough that a few bars do not become walls."""
        last = (self.places or [0.0])[-1]
        wider = max(0.7, (_FEWEST - last) / 2)
        return -wider, last + wider

    @property
    def group_places(self) -> dict[str, float]:
        """The middle of each group."""
        middles = {}
        for group in self.groups:
            its = [x for x, bar in zip(self.places, self.bars, strict=True) if bar.group == group]
            middles[group] = (its[0] + its[-1]) / 2
        return middles

    @property
    def y_ends(self) -> tuple[float, float]:
        """Of the y axis."""
        tops = [max(bar.ideal, bar.high) for bar in self.bars]
        return 0.0, 1.14 * max([self.base, *tops])


@final
@dataclass(frozen=True)
class Plot:
    """A panel with an x axis of its own."""

    panel: Panel
    x_label: str

    @property
    def ends(self) -> tuple[float, float]:
        """Of the x axis."""
        return x_limits(self.panel.curves)


@final
@dataclass(frozen=True)
class Dashboard:
    """Everything at one glance: returns over four clocks, speed-ups, and the numbers."""

    title: str
    subtitle: str
    plots: tuple[Plot, ...]
    bars: BarChart
    table: TextTable
    swatches: tuple[tuple[int, float], ...]
    """Colour and tint of each row of the table, which is the legend of the plots."""
    notes: tuple[str, ...]


def dashboard(comparison: Comparison) -> Dashboard:
    """The whole comparison in one picture."""
    with_bands = len(comparison.outcomes) <= MOST_BANDS
    return Dashboard(
        f"{comparison.title}: ways of parallel training",
        _budget_text(comparison),
        tuple(_plot(comparison, x, with_bands) for x in _axes(comparison)),
        speed_up_chart(comparison),
        text_table(comparison),
        tuple(_look(comparison, each.variant) for each in comparison.outcomes),
        _notes(comparison, with_bands),
    )


def return_overviews(comparison: Comparison) -> dict[str, Overview]:
    """By the clock that returns are drawn over: a panel for each number of workers, with the
    baseline in all of them."""
    return {x.file: _return_overview(comparison, x) for x in _axes(comparison)}


def speed_up_chart(comparison: Comparison) -> BarChart:
    """How many times as fast as one process, beside the ideal: the number of workers."""
    bars = []
    for outcome, summary in zip(comparison.outcomes, comparison.summaries, strict=True):
        variant = outcome.variant
        if variant.mode == BASELINE:
            continue
        colour, tint = _look(comparison, variant)
        gain = summary.speed_up
        bars.append(
            Bar(
                variant.mode,
                f"{variant.workers}{f' {CROWDED}' if variant.crowded else ''}",
                gain,
                summary.speed_up_low or 0.0,
                summary.speed_up_high or 0.0,
                float(variant.workers),
                colour,
                tint,
                variant.crowded,
                "" if gain is not None else "failed" if summary.failed else "–",
            )
        )
    legend: list[tuple[Mark, str]] = [("ideal", "ideal"), ("base", "one process")]
    if comparison.seeds > 1:
        legend.append(("spread", "all seeds"))
    if any(bar.hollow for bar in bars):
        legend.append(("hollow", f"{CROWDED} more workers than cores"))
    return BarChart(
        f"{comparison.title}: speed-up over one process",
        _budget_text(comparison),
        "workers",
        "total frames/s, one process = 1",
        tuple(bars),
        1.0,
        tuple(legend),
    )


def _return_overview(comparison: Comparison, x: Axis) -> Overview:
    """What a colour stands for is said where it is first seen."""
    baseline, *others = comparison.outcomes
    panels: list[Panel] = []
    named: set[str] = set()
    for workers in comparison.worker_counts:
        chosen = [baseline, *(each for each in others if each.variant.workers == workers)]
        by_mode = []
        for outcome, curve in _curves(comparison, chosen, x, with_bands=True):
            mode = outcome.variant.mode
            name = curve.label if mode == BASELINE else mode
            by_mode.append(replace(curve, label="" if mode in named else name, tint=0.0))
            named.add(mode)
        panels.append(_panel(comparison, _workers_text(workers, comparison.cores), by_mode))
    title = f"{comparison.title}: return against {x.label}"
    subtitle = f"{_budget_text(comparison)}{_threshold_text(comparison)}"
    return Overview(title, subtitle, x.label, tuple(panels))


def _plot(comparison: Comparison, x: Axis, with_bands: bool) -> Plot:
    curves = [curve for _, curve in _curves(comparison, comparison.outcomes, x, with_bands)]
    panel = _panel(comparison, f"return against {x.label}", curves)
    unlabelled = tuple(replace(curve, label="") for curve in panel.curves)
    return Plot(replace(panel, curves=unlabelled), x.label)


def _panel(comparison: Comparison, title: str, curves: Sequence[Curve]) -> Panel:
    return Panel(title, (*_threshold(comparison, curves), *curves), "no values")


def _curves(
    comparison: Comparison, outcomes: Sequence[Outcome], x: Axis, with_bands: bool
) -> list[tuple[Outcome, Curve]]:
    """The mean over the seeds, as far as all of them go, of each outcome that has any."""
    found = []
    for outcome in outcomes:
        lines = [line_over(training, x) for training in outcome.trainings.values()]
        lines = [one for one in lines if one.x.size]
        if not lines:
            continue
        over = spread(lines, common_grid(lines, _POINTS))
        all_there = over.sessions == len(lines)
        std = over.std[all_there] if with_bands and len(lines) > 1 else None
        colour, tint = _look(comparison, outcome.variant)
        label = outcome.variant.label
        mean = over.mean[all_there]
        found.append((outcome, Curve(label, over.x[all_there], mean, std, colour, "solid", tint)))
    return found


def _threshold(comparison: Comparison, curves: Sequence[Curve]) -> tuple[Curve, ...]:
    """A line across all `curves`, if there is a threshold."""
    if comparison.threshold is None or not curves:
        return ()
    x = np.array(limits([curve.x for curve in curves], margin=0.0))
    y = np.full(2, comparison.threshold)
    return (Curve("", x, y, None, _THRESHOLD_COLOUR, "dashed", _THRESHOLD_TINT),)


def _threshold_text(comparison: Comparison) -> str:
    return "" if comparison.threshold is None else f" · dashed: {comparison.threshold:g}"


def _axes(comparison: Comparison) -> list[Axis]:
    """The clocks, each in units that suit the longest training."""
    trainings = [t for outcome in comparison.outcomes for t in outcome.trainings.values()]
    cpu = max((float(t.cpu_t[-1]) for t in trainings if np.isfinite(t.cpu_t).any()), default=0.0)
    of_cpu = wall_clock(cpu)
    return [
        total_frames(),
        wall_clock(max((t.seconds for t in trainings), default=0.0)),
        frames("per process"),
        replace(
            of_cpu,
            column="cpu_t",
            file="cpu_t",
            label=of_cpu.label.replace("training time", "CPU time of all processes"),
        ),
    ]


def _look(comparison: Comparison, variant: Variant) -> tuple[int, float]:
    """Colour and tint: the mode is the colour, few workers are pale."""
    counts = comparison.worker_counts
    colour = _BASELINE_COLOUR
    if variant.mode != BASELINE:
        modes = list(dict.fromkeys([*MODES.names(), variant.mode]))
        colour = modes.index(variant.mode) % _BASELINE_COLOUR
    if variant.mode == BASELINE or len(counts) == 1:
        return colour, 0.0
    return colour, _LIGHTEST * (1 - counts.index(variant.workers) / (len(counts) - 1))


def _workers_text(workers: int, cores: int) -> str:
    crowd = f", on {_count(cores, 'core')} {CROWDED}" if workers > cores else ""
    return f"{_count(workers, 'worker')}{crowd}"


def _budget_text(comparison: Comparison) -> str:
    budget = tick_text(comparison.max_frame, comparison.max_frame)
    return (
        f"{budget} total frames each · {_count(comparison.seeds, 'seed')} · measured on "
        f"{_count(comparison.cores, 'core')} ({comparison.processor})"
    )


def _notes(comparison: Comparison, with_bands: bool) -> tuple[str, ...]:
    """What one has to know to read the numbers."""
    window = tick_text(comparison.window, comparison.window)
    several = comparison.seeds > 1
    band = ", the band one standard deviation" if with_bands else ""
    curves = f"; a curve is the mean over the seeds{band}" if several else ""
    numbers = "; numbers are medians over the seeds" if several else ""
    notes = [f"return: mean of all workers over the last {window} total frames{curves}{numbers}"]
    if any(each.variant.crowded for each in comparison.outcomes):
        notes.append(f"{CROWDED} more workers than cores: they take turns")
    with_learner = [o.variant.mode for o in comparison.outcomes if o.variant.has_learner]
    for mode in dict.fromkeys(with_learner):
        notes.append(f"{mode}: workers are its actors; the learner is one process more")
    used = comparison.summaries[0].cores_used
    if used is not None and used < _STARVED:
        notes.append(
            f"one process computed in {used:.0%} of its time only: it waited for its environments, "
            "or other programs had the cores, and then the speeds are too low"
        )
    return (*notes, *comparison.notes)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
