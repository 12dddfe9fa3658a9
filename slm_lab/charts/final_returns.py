"""The numbers beside an overlay: how each group of seeds ended."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from slm_lab.charts.overlay import Seeds
from slm_lab.charts.statistics import (
    Interval,
    bootstrap_interval,
    difference_interval,
    improvement_interval,
    interquartile_mean,
    probability_of_improvement,
)
from slm_lab.core.text import TextTable, significant, with_spread

ENOUGH_TO_TRIM = 4
"""The fewest seeds of which the interquartile mean leaves any out."""
ENOUGH_TO_RANK = 3
"""The fewest seeds in each of two groups that can be ranked."""
ENOUGH_TO_PAIR = 3
"""The fewest pairs whose difference has an interval."""


class TableRow(NamedTuple):
    """The final returns of the seeds of a group; seeds may end at different frames."""

    label: str
    seeds: int
    planned: int
    frames: tuple[float, float]
    """The least and the most of any seed, summed over its workers."""
    mean: float
    """NaN if no episode has ended."""
    std: float
    """Population standard deviation."""
    iqm: float
    interval: tuple[float, float] | None
    """95 %; None of a single seed."""
    highest: float | None
    """The largest return of any seed at any time; None if its lines have no returns."""


class Improvement(NamedTuple):
    """The probability that a seed of the better of two groups ends above a seed of the
    other."""

    better: str
    worse: str
    probability: float
    interval: tuple[float, float]


class PairedDifference(NamedTuple):
    """The mean difference between the final returns of pairs: trainings that were one
    until a fork."""

    of: str
    than: str
    mean: float
    """The mean of the first label's return less the second's."""
    interval: tuple[float, float]
    """95 %, from the pairs."""
    unpaired: tuple[float, float]
    """The interval of the same numbers as if they were no pairs."""
    pairs: int


def ending(group: Seeds, generator: np.random.Generator) -> TableRow:
    """The numbers of one group."""
    known = np.concatenate(group.task_returns)
    finals = known if known.size else np.full(1, np.nan)
    interval = None
    if len(known) > 1:
        strata = [len(task) for task in group.task_returns if len(task)]
        interval = _ends(
            bootstrap_interval(known, interquartile_mean, generator, strata=strata)
        )
    peaks = [line.y.max() for line in group.lines]
    return TableRow(
        label=group.label,
        seeds=len(group.lines),
        planned=group.planned,
        frames=(float(group.frames.min()), float(group.frames.max())),
        mean=float(finals.mean()),
        std=float(finals.std()),
        iqm=float(interquartile_mean(finals)),
        interval=interval,
        highest=float(np.max([*known, *peaks])),
    )


def improvement(
    groups: Sequence[Seeds], generator: np.random.Generator
) -> Improvement | None:
    """The better of two groups; None unless there are two with three seeds each, of
    each task."""
    sizes = [len(task) for group in groups for task in group.task_returns]
    if len(groups) != 2 or min(sizes) < ENOUGH_TO_RANK:
        return None
    better, worse = groups
    if len(better.strata) != len(worse.strata):
        return None
    probability = probability_of_improvement(better.task_returns, worse.task_returns)
    if probability < 0.5:
        worse, better = groups
        probability = 1 - probability
    return Improvement(
        better.label,
        worse.label,
        probability,
        _ends(improvement_interval(better.task_returns, worse.task_returns, generator)),
    )


def paired_difference(
    groups: Sequence[Seeds], generator: np.random.Generator
) -> PairedDifference | None:
    """How far two groups differ in pairs: a run and its fork, or two forks of one run.
    The last group with forks is compared with the other. None of less than three pairs
    that have come to the same frame."""
    if len(groups) != 2 or not any(group.are_forks for group in groups):
        return None
    base, other = groups
    if not other.are_forks:
        base, other = other, base
    finals = [_finals_by_pair(group) for group in (other, base)]
    keys = [key for key in finals[0] if key in finals[1]]
    if len(keys) < ENOUGH_TO_PAIR:
        return None
    x, y = (np.array([of_group[key] for key in keys]) for of_group in finals)
    paired, apart = generator.spawn(2)
    return PairedDifference(
        of=other.label,
        than=base.label,
        mean=float((x - y).mean()),
        interval=_ends(difference_interval(x, y, paired, is_paired=True)),
        unpaired=_ends(difference_interval(x, y, apart, is_paired=False)),
        pairs=len(keys),
    )


def _finals_by_pair(group: Seeds) -> dict[Any, float]:
    """The final returns that are known, by pair and by the frame reached."""
    keys = zip(group.pair_keys, group.frames.tolist(), strict=True)
    finals = zip(keys, group.final_return.tolist(), strict=True)
    return {key: value for key, value in finals if np.isfinite(value)}


class Results(NamedTuple):
    """The numbers of groups of seeds."""

    endings: tuple[TableRow, ...]
    improvement: Improvement | None = None
    paired: PairedDifference | None = None

    @property
    def sentences(self) -> list[str]:
        """What is known about two groups."""
        sentences = []
        if self.improvement is not None:
            sentences.append(improvement_text(self.improvement))
        if self.paired is not None:
            sentences.append(_paired_text(self.paired))
        return sentences


def results(groups: Sequence[Seeds], are_compared: bool = True) -> Results:
    """The numbers of each group, and which of two is better, if they `are_compared`."""
    root = np.random.default_rng(0)
    endings = tuple(map(ending, groups, root.spawn(len(groups))))
    if not are_compared:
        return Results(endings)
    ranking, pairing = root.spawn(2)
    return Results(
        endings,
        improvement=improvement(groups, ranking),
        paired=paired_difference(groups, pairing),
    )


def _ends(interval: Interval) -> tuple[float, float]:
    return float(interval.low), float(interval.high)


def text_table(endings: Sequence[TableRow]) -> TextTable:
    """A row for each group."""
    header = (
        "run",
        "seeds",
        "total frames",
        "final return ± std",
        "IQM, 95 % interval",
        "highest",
    )
    spare = ("highest", "total frames", "IQM, 95 % interval", "seeds")
    return TextTable(header, tuple(_cells(row) for row in endings), spare=spare)


def as_csv(endings: Sequence[TableRow]) -> str:
    """The numbers with all their digits, a line for each group."""
    import pandas as pd

    frame = pd.DataFrame([row._asdict() for row in endings])
    for name, ends in (("frames", ("least", "most")), ("interval", ("low", "high"))):
        pairs = [pair or (None, None) for pair in frame.pop(name)]
        frame[[f"{name}_{end}" for end in ends]] = pairs
    return frame.to_csv(index=False)


def as_latex(table: TextTable) -> str:
    """The table for a paper; it needs the package booktabs."""
    import pandas as pd

    frame = pd.DataFrame(table.rows, columns=table.header)
    columns = "l" + "r" * (frame.shape[1] - 1)
    text: str = frame.to_latex(index=False, escape=True, column_format=columns)
    return text.replace("\n[", "\n{}[")  # which would be an option of the rule above


def improvement_text(result: Improvement) -> str:
    """A sentence about two groups of seeds."""
    low, high = (f"{end:.2f}" for end in result.interval)
    return (
        f"a seed of {result.better} ends above one of {result.worse} with probability "
        f"{result.probability:.2f} (95 % interval {low} to {high})"
    )


def _paired_text(result: PairedDifference) -> str:
    low, high = map(significant, result.interval)
    wide_low, wide_high = map(significant, result.unpaired)
    return (
        f"{result.of} less {result.than}, in {result.pairs} pairs: "
        f"{significant(result.mean)} (95 % interval {low} to {high}; not paired: "
        f"{wide_low} to {wide_high})"
    )


def _cells(row: TableRow) -> tuple[str, ...]:
    seeds = f"{row.seeds}"
    if row.seeds < row.planned:
        seeds += f" of {row.planned}"
    frames = dict.fromkeys(f"{end:,.0f}" for end in row.frames)
    final = with_spread(row.mean, None)
    robust = "–"
    if row.interval is not None:
        final = with_spread(row.mean, row.std)
        ends = ", ".join(map(significant, row.interval))
        robust = f"{significant(row.iqm)}  [{ends}]"
    highest = significant(row.highest)
    return row.label, seeds, " – ".join(frames), final, robust, highest
