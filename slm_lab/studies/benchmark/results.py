"""The rows of a benchmark with the statistics of their seeds."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from slm_lab.charts.overlay import Seeds
from slm_lab.charts.statistics import (
    Statistic,
    bootstrap_interval,
    seeds_for_width,
)
from slm_lab.core.text import short_count, significant
from slm_lab.core.types import FloatArray
from slm_lab.metrics.lines import Line
from slm_lab.records.training_record import TrainingRecord
from slm_lab.studies.benchmark.published import (
    Judgement,
    Measured,
    PublishedScore,
    ScoreVerdict,
    judge,
    scores_for,
)

FINAL_SHARE = 0.05
"""The share of the frames over which a final return is a mean."""
WIDTH = 0.05
"""The half width that an interval should have, as a share of what was learned."""


def mean(values: FloatArray) -> FloatArray:
    """The mean over S seeds; values (S, …), result (…)."""
    result: FloatArray = values.mean(axis=0)
    return result


@final
@dataclass(frozen=True, eq=False)
class RowResult:
    """The trainings of a row, which differ in their seeds."""

    records: tuple[TrainingRecord, ...]

    @property
    def first(self) -> TrainingRecord:
        """What all of them have in common."""
        return self.records[0]

    @property
    def finished(self) -> list[TrainingRecord]:
        """The trainings that have spent their budget. Statistics rest on them."""
        return [record for record in self.records if record.ending == "finished"]

    @property
    def planned(self) -> int:
        """The seeds of the suite, and more where there are more results."""
        return max(self.first.seeds_planned, len(self.records))

    @cached_property
    def final_returns(self) -> FloatArray:
        """(S,) of the finished trainings in which an episode has ended."""
        known = [record.final_return for record in self.finished]
        return np.array([value for value in known if value is not None], np.float64)

    @cached_property
    def evaluations(self) -> FloatArray:
        """(S,) mean returns of greedy episodes."""
        played = [record.evaluation for record in self.finished]
        return np.array(
            [evaluation.mean for evaluation in played if evaluation is not None],
            np.float64,
        )

    @property
    def frames(self) -> int:
        """The budget."""
        return self.first.max_frame

    @property
    def random_return(self) -> float | None:
        """The mean return of the Random agent, if it is known."""
        known = [record.random_return for record in self.records]
        return next((value for value in known if value is not None), None)

    @property
    def unfinished(self) -> str:
        """What the trainings that have not finished did; empty if all have."""
        failed = [record for record in self.records if record.ending == "failed"]
        stopped = [record for record in self.records if record.ending == "stopped"]
        texts = []
        if failed:
            texts.append(f"{len(failed)} failed")
        if stopped:
            frames = ", ".join(f"{record.frames:,}" for record in stopped)
            texts.append(f"stopped at {frames} frames")
        return "; ".join(texts)

    @property
    def speeds(self) -> list[float]:
        """Frames per second of the trainings beside which nothing ran, or in virtual
        time."""
        return [
            record.frames_per_second
            for record in self.finished
            if (record.is_alone or record.is_virtual)
            and record.frames_per_second is not None
        ]

    @property
    def speed(self) -> float | None:
        """The median of its speeds."""
        if not self.speeds:
            return None
        return float(np.median(self.speeds))

    @property
    def work(self) -> tuple[str, str, str, bool]:
        """The key that rows share if they differ only in the number of their
        workers."""
        first = self.first
        return first.algorithm, first.env, first.mode, first.is_virtual

    @property
    def seeds_needed(self) -> int | None:
        """The number of seeds with which the interval of the mean should be small
        enough. It may reach `WIDTH` of what was learned to each side."""
        if not self.final_returns.size:
            return None
        learned = abs(self.final_returns.mean() - (self.random_return or 0.0))
        return seeds_for_width(self.final_returns.tolist(), WIDTH * learned)

    @property
    def is_kept(self) -> bool | None:
        """Whether every training reaches the bound; None without one."""
        bound = self.first.bound
        if bound is None:
            return None
        finals = [record.final_return for record in self.records]
        reached = [value is not None and value >= bound for value in finals]
        return all(reached) and len(self.finished) == len(self.records)

    @property
    def is_below(self) -> bool:
        """Whether a training that has finished misses the bound."""
        bound = self.first.bound
        return bound is not None and bool((self.final_returns < bound).any())

    @cached_property
    def published(self) -> list[tuple[PublishedScore, Judgement]]:
        """The published scores of its algorithm, and how it compares; comparable ones
        first, of these the nearest budget."""
        scores = scores_for(self.first.algorithm, self.first.env, self.frames)
        judged = [(score, judge(score, self._measured(score))) for score in scores]
        return sorted(judged, key=_is_not_comparable)

    def seeds(self, zero: float = 0.0, unit: float = 1.0, second: float = 0.0) -> Seeds:
        """The trainings with returns as one curve. The values are less `zero`, in units
        of `unit`. They are over frames, or over training time in units of `second`."""
        drawn = [record for record in self.finished if record.curve.frame]
        finals = np.array([record.final_return for record in drawn], np.float64)
        return Seeds(
            label=self.first.method,
            lines=tuple(_line(record, zero, unit, second) for record in drawn),
            final_return=(finals - zero) / unit,
            frames=np.array([record.frames for record in drawn], np.float64),
            planned=self.planned,
        )

    def _measured(self, score: PublishedScore) -> Measured | None:
        """The result in the measure of a published score: by greedy episodes, or by the
        returns of the training. If need be only its first frames count."""
        values = self.final_returns
        frames = self.frames
        kind = ""
        if score.score == "evaluation":
            values = self.evaluations
            kind = "greedy"
        elif score.frames < frames:
            values = self._returns_at(score.frames)
            frames = score.frames
            kind = f"at {short_count(frames)}"
        if not values.size:
            return None
        return Measured(
            interval=interval(values, mean),
            std=_deviation(values),
            seeds=len(values),
            frames=frames,
            measure=f"{significant(float(mean(values)))} {kind}" if kind else "",
        )

    def _returns_at(self, frames: int) -> FloatArray:
        """(S,) the mean returns of the last 5 % of the first `frames`."""
        means = []
        for record in self.finished:
            clock = np.array(record.curve.frame)
            inside = (clock > (1 - FINAL_SHARE) * frames) & (clock <= frames)
            if inside.any():
                means.append(
                    float(np.array(record.curve.episode_return)[inside].mean())
                )
        return np.array(means, np.float64)


def _deviation(values: FloatArray) -> float:
    """The standard deviation over seeds (S,); 0 for a single one."""
    if len(values) < 2:
        return 0.0
    return float(values.std(ddof=1))


def _is_not_comparable(judged: tuple[PublishedScore, Judgement]) -> bool:
    return judged[1].verdict is ScoreVerdict.NOT_COMPARABLE


def _line(record: TrainingRecord, zero: float, unit: float, second: float) -> Line:
    returns = np.array(record.curve.episode_return, np.float64)
    clock = np.array(record.curve.frame, np.float64)
    if second:
        clock = np.array(record.curve.wall_t, np.float64) / second
    return Line(clock, (returns - zero) / unit)


def interval(values: FloatArray, statistic: Statistic) -> tuple[float, float]:
    """The 95 % bootstrap interval of a statistic over seeds (S,); the same numbers give
    the same interval."""
    ends = bootstrap_interval(values, statistic, np.random.default_rng(0))
    return float(ends.low), float(ends.high)


def row_results(records: Sequence[TrainingRecord]) -> list[RowResult]:
    """The rows of the records, by suite, environment and name."""
    rows: dict[tuple[str, str], list[TrainingRecord]] = {}
    for record in records:
        rows.setdefault((record.suite, record.row), []).append(record)
    results = [
        RowResult(tuple(sorted(members, key=lambda record: record.seed)))
        for members in rows.values()
    ]
    return sorted(
        results,
        key=lambda result: (
            result.first.suite,
            result.first.env,
            _natural_order(result.first.method),
            _natural_order(result.first.row),
        ),
    )


def _natural_order(name: str) -> list[str | int]:
    """A key that sorts "4 workers" before "16 workers"."""
    parts = re.split(r"(\d+)", name)
    return [int(part) if part.isdecimal() else part for part in parts]
