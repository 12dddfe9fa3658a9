"""The figures of a comparison: what is drawn, in which colours, with which words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slm_lab.analysis.compare import comparison as compared
from slm_lab.analysis.figure import figure as fig
from slm_lab.analysis.figure.axis import (
    TOTAL_FRAMES,
    Axis,
    common_grid,
    frames,
    spread,
    wall_clock,
)
from slm_lab.analysis.figure.layout import SIDE, overview, single_bars
from slm_lab.analysis.figure.look import INK, MUTED, tick_text, tinted
from slm_lab.analysis.figure.write import write_figure
from slm_lab.core.files import write_atomically
from slm_lab.core.text import count_text
from slm_lab.spec.modes import MODES

MOST_BANDS = 5
"""The most curves in one panel whose bands can still be told apart."""

_BASELINE_COLOUR = 6
_LIGHTEST = 0.6
"""The tint of the fewest workers; the most have the full colour."""
_GAP = 0.7
"""Between two groups of bars, in bars."""
_FEWEST = 4.0
"""Bars for which there is always room."""
_POINTS = 400
"""The points of a curve: a plot of the dashboard has few more pixels, and all lines in
it are to be as thick."""
_STARVED = 0.9
"""Cores used by one process below which a note says so."""

# pixels: the dashboard, its head, and the height of a plot
_WIDTH, _TOP, _CELL = 1720, 118, 372
# left, right, above and below a plot
_NUMBERS, _BETWEEN, _HEADING, _FOOT = 66, 30, 44, 66
_PLOTS_WIDTH = 1080
_ROW, _NOTE_ROW = 34, 24  # of the table, and of the notes below it
_LEGEND = 26  # above the bars


def draw_comparison(
    comparison: compared.Comparison, folder: Path, prefix: str
) -> list[Path]:
    """Draws all graphs into `folder`; returns the paths, the dashboard's PNG first.
    Files are `{prefix}_compare.png` and `.html` (the dashboard),
    `{prefix}_compare_mean_returns_vs_{total_frames,wall_t,frames,cpu_t}` and
    `{prefix}_compare_speed_up` as both. Raises OSError."""
    stem = f"{prefix}_compare"
    paths = write_figure(dashboard(comparison), folder, stem, folder.parent)
    for x in clocks(comparison):
        figure = return_overview(comparison, x)
        paths += write_figure(
            figure, folder, f"{stem}_mean_returns_vs_{x.file}", folder.parent
        )
    paths += write_figure(
        speed_up_figure(comparison), folder, f"{stem}_speed_up", folder.parent
    )
    return paths


def write_tables(
    comparison: compared.Comparison, folder: Path, prefix: str
) -> list[Path]:
    """Writes `{prefix}_compare_df.csv` and `{prefix}_compare_trainings_df.csv` into
    `folder`; returns both paths. Raises OSError."""
    stem = f"{prefix}_compare"
    tables = {
        folder / f"{stem}_df.csv": compared.summary_table(comparison),
        folder / f"{stem}_trainings_df.csv": compared.trainings_table(comparison),
    }
    for path, table in tables.items():
        write_atomically(path, table.to_csv(index=False).encode())
    return [*tables]


def dashboard(comparison: compared.Comparison) -> fig.Figure:
    """Everything at one glance: returns over four clocks, speed-ups, and the table,
    which is the legend of the curves."""
    with_bands = len(comparison.outcomes) <= MOST_BANDS
    table, notes = compared.text_table(comparison), _notes(comparison, with_bands)
    plots = fig.Box(SIDE, _TOP, _PLOTS_WIDTH, 2 * _CELL)
    bars = fig.Box(plots.right, _TOP, _WIDTH - SIDE - plots.right, plots.height)
    bars = bars.inset(left=_NUMBERS, top=_HEADING + _LEGEND, bottom=_FOOT)
    parts: list[fig.Part] = [_speed_ups(comparison, bars)]
    for x, cell in zip(clocks(comparison), plots.cells(2, 2), strict=True):
        found = _curves(comparison, comparison.outcomes, x, with_bands)
        curves = tuple(
            curve._replace(label="") for curve in _with_threshold(comparison, found)
        )
        scales = (
            fig.Scale(x.label, fig.x_limits(curves), 5),
            fig.Scale(ends=fig.y_limits(curves), most=5),
        )
        box, title = (
            cell.inset(_NUMBERS, _HEADING, _BETWEEN, _FOOT),
            f"return against {x.label}",
        )
        parts.append(fig.Panel(box, *scales, title, curves=curves, note="no values"))
    swatches = tuple(
        tinted(*_look(comparison, each.variant)) for each in comparison.outcomes
    )
    high = _ROW * (len(table.rows) + 1)
    box = fig.Box(SIDE, plots.bottom + 14, _WIDTH - 2 * SIDE, high)
    parts.append(fig.Table(box, table, swatches))
    for i, note in enumerate(notes):
        parts.append(fig.TextLine(SIDE, box.bottom + 40 + _NOTE_ROW * i, note, 16))
    title = f"{comparison.title}: ways of parallel training"
    return fig.Figure(title, _budget_text(comparison), tuple(parts), _WIDTH, 17)


def speed_up_figure(comparison: compared.Comparison) -> fig.Figure:
    """How many times as fast as one process, beside the ideal: the number of
    workers."""
    title = f"{comparison.title}: speed-up over one process"
    panel = _speed_ups(comparison, fig.Box(0, 0, 0, 0))
    panel = panel._replace(y=panel.y._replace(label="total frames/s, one process = 1"))
    return single_bars(title, _budget_text(comparison), panel)


def _speed_ups(comparison: compared.Comparison, box: fig.Box) -> fig.Panel:
    bars: list[fig.Bar] = []
    rows: list[Any] = list(compared.summary_table(comparison).itertuples())
    for (variant, *_), row in zip(comparison.outcomes, rows, strict=True):
        if variant.mode == compared.BASELINE:
            continue
        place = 0.0
        if bars:
            place = bars[-1].place + 1.0 + _GAP * (bars[-1].group != variant.mode)
        gain, spread, text = None, (0.0, 0.0), "failed" if row.failed else "–"
        if np.isfinite(row.speed_up):
            gain, spread = row.speed_up, (row.speed_up_low, row.speed_up_high)
            text = f"{gain:.2f}"
        label = f"{variant.workers}{f' {compared.CROWDED}' if variant.crowded else ''}"
        ideal, hover = float(variant.workers), f"{text}, ideal: {variant.workers}"
        look, kind = _look(comparison, variant), (variant.crowded, variant.mode)
        bars.append(
            fig.Bar(place, label, gain, *spread, ideal, text, *look, *kind, hover)
        )
    keys = [(INK, "━ ideal"), (MUTED, "╌ one process")]
    if comparison.seeds > 1:
        keys.append((INK, "│ all seeds"))
    if any(bar.hollow for bar in bars):
        keys.append((MUTED, f"☐ {compared.CROWDED} more workers than cores"))
    title = "speed-up: total frames/s, one process = 1"
    return bar_panel(box, title, "workers", bars, 1.0, tuple(keys))


def bar_panel(
    box: fig.Box,
    title: str,
    x: str,
    bars: Sequence[fig.Bar],
    base: float,
    keys: fig.Keys = (),
) -> fig.Panel:
    """Bars from 0; wide axes, so that a few bars do not become walls."""
    last = bars[-1].place if bars else 0.0
    wider = max(0.7, (_FEWEST - last) / 2)
    ticks = tuple((bar.place, bar.label) for bar in bars)
    top = 1.14 * max([base, *(end for bar in bars for end in (bar.mark, bar.high))])
    across = fig.Scale(x, (-wider, last + wider), ticks=ticks)
    up = fig.Scale(ends=(0.0, top))
    return fig.Panel(box, across, up, title, keys=keys, bars=tuple(bars), base=base)


def return_overview(comparison: compared.Comparison, x: Axis) -> fig.Figure:
    """A panel for each number of workers, all with the baseline; each colour is named
    once."""
    baseline, *others = comparison.outcomes
    panels = []
    named: set[str] = set()
    for workers in comparison.worker_counts or [1]:
        chosen = [
            baseline,
            *(each for each in others if each.variant.workers == workers),
        ]
        found = []
        for outcome, curve in _curves(comparison, chosen, x, with_bands=True):
            mode = outcome.variant.mode
            name = curve.label if mode == compared.BASELINE else mode
            found.append(
                (outcome, curve._replace(label="" if mode in named else name, tint=0.0))
            )
            named.add(mode)
        crowd = f", on {count_text(comparison.cores, 'core')} {compared.CROWDED}"
        title = count_text(workers, "worker") + (
            crowd if workers > comparison.cores else ""
        )
        panels.append((title, _with_threshold(comparison, found)))
    title = f"{comparison.title}: return against {x.label}"
    subtitle = _budget_text(comparison)
    if comparison.threshold is not None:
        subtitle += f" · dashed: {comparison.threshold:g}"
    return overview(title, subtitle, x.label, panels, "no values")


def _curves(
    comparison: compared.Comparison,
    outcomes: Sequence[compared.Outcome],
    x: Axis,
    with_bands: bool,
) -> list[tuple[compared.Outcome, fig.Curve]]:
    """The mean over the seeds, as far as all of them go, of each outcome that has
    any."""
    found = []
    for outcome in outcomes:
        lines = [
            compared.line_over(training, x) for training in outcome.trainings.values()
        ]
        lines = [one for one in lines if one.x.size]
        if not lines:
            continue
        over = spread(lines, common_grid(lines, _POINTS))
        all_there = over.sessions == len(lines)
        mean, std = over.mean[all_there], over.std[all_there]
        band = fig.around(mean, std) if with_bands and len(lines) > 1 else None
        colour, tint = _look(comparison, outcome.variant)
        label = outcome.variant.label
        curve = fig.Curve(label, over.x[all_there], mean, band, colour, "solid", tint)
        found.append((outcome, curve))
    return found


def _with_threshold(
    comparison: compared.Comparison, found: Sequence[tuple[compared.Outcome, fig.Curve]]
) -> list[fig.Curve]:
    """The curves, over a line across all of them if there is a threshold."""
    curves = [curve for _, curve in found]
    if comparison.threshold is None or not curves:
        return curves
    return [fig.level(comparison.threshold, curves), *curves]


def clocks(comparison: compared.Comparison) -> list[Axis]:
    """The clocks, each in units that suit the longest training."""
    trainings = [
        t for outcome in comparison.outcomes for t in outcome.trainings.values()
    ]
    cpu = max(
        (float(t.cpu_t[-1]) for t in trainings if np.isfinite(t.cpu_t).any()),
        default=0.0,
    )
    longest = max((t.seconds for t in trainings), default=0.0)
    cpu_clock = wall_clock(cpu)
    label = cpu_clock.label.replace("training time", "CPU time of all processes")
    cpu_clock = cpu_clock._replace(column="cpu_t", file="cpu_t", label=label)
    return [TOTAL_FRAMES, wall_clock(longest), frames("per process"), cpu_clock]


def _look(
    comparison: compared.Comparison, variant: compared.Variant
) -> tuple[int, float]:
    """Colour and tint: the mode is the colour, few workers are pale."""
    counts = comparison.worker_counts
    colour = _BASELINE_COLOUR
    if variant.mode != compared.BASELINE:
        modes = list(dict.fromkeys([*MODES.names(), variant.mode]))
        colour = modes.index(variant.mode) % _BASELINE_COLOUR
    if variant.mode == compared.BASELINE or len(counts) == 1:
        return colour, 0.0
    return colour, _LIGHTEST * (1 - counts.index(variant.workers) / (len(counts) - 1))


def _budget_text(comparison: compared.Comparison) -> str:
    budget = tick_text(comparison.max_frame, comparison.max_frame)
    return (
        f"{budget} total frames each · {count_text(comparison.seeds, 'seed')} · "
        f"measured on {count_text(comparison.cores, 'core')} ({comparison.processor})"
    )


def _notes(comparison: compared.Comparison, with_bands: bool) -> tuple[str, ...]:
    window = tick_text(comparison.window, comparison.window)
    several = comparison.seeds > 1
    band = ", the band one standard deviation" if with_bands else ""
    curves = f"; a curve is the mean over the seeds{band}" if several else ""
    numbers = "; numbers are medians over the seeds" if several else ""
    notes = [
        f"return: mean of all workers over the last {window} total "
        f"frames{curves}{numbers}"
    ]
    if any(each.variant.crowded for each in comparison.outcomes):
        notes.append(f"{compared.CROWDED} more workers than cores: they take turns")
    with_learner = [
        o.variant.mode for o in comparison.outcomes if o.variant.has_learner
    ]
    for mode in dict.fromkeys(with_learner):
        notes.append(f"{mode}: workers are its actors; the learner is one process more")
    trainings = comparison.outcomes[0].trainings.values()
    used = [each.cores_used for each in trainings if each.cores_used is not None]
    if used and np.median(used) < _STARVED:
        notes.append(
            f"one process computed in {np.median(used):.0%} of its time only: it "
            "waited for its environments, or other programs had the cores, and then "
            "the speeds are too low"
        )
    return (*notes, *comparison.notes)
