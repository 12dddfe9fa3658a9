"""Scores that others have published, and how results compare with them.

The file `published.csv` has a score a line. `env` is the environment of the lab whose
results it is comparable with, and `differs` says why it is not. `score` says what was
measured: returns of the training, or of greedy episodes after it."""

import csv
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override

from slm_lab.charts.statistics import NORMAL_QUANTILE

FILE = Path(__file__).with_name("published.csv")
TOLERANCE = 0.1
"""Budgets that differ by this share count as equal."""


class ScoreVerdict(StrEnum):
    """How a result compares with a published score."""

    ABOVE = "above"
    EQUAL = "equal within intervals"
    BELOW = "below"
    NOT_COMPARABLE = "not comparable"


class PublishedScore(NamedTuple):
    """A score of an algorithm in an environment, with its source."""

    algorithm: str
    env: str
    published_env: str
    """The environment's name there."""
    mean: float
    std: float | None
    """The deviation over seeds, or over the episodes of a single run."""
    frames: int
    seeds: int
    score: str
    """ "training" or "evaluation"."""
    source: str
    place: str
    protocol: str
    variant: str
    """The algorithm's name there."""
    differs: str
    """Why it is not comparable; empty if it is."""

    def interval(self, std: float) -> tuple[float, float]:
        """The 95 % interval of its mean over seeds. Of a single run, or without a
        published deviation, `std` stands in for the deviation over seeds."""
        if self.seeds > 1 and self.std is not None:
            std = self.std
        half = NORMAL_QUANTILE * std / np.sqrt(self.seeds)
        return self.mean - half, self.mean + half


class Measured(NamedTuple):
    """A result to be compared, after `frames`."""

    interval: tuple[float, float]
    """The 95 % interval of its mean."""
    std: float
    """The deviation over its seeds."""
    seeds: int
    frames: int
    measure: str = ""
    """The mean and what it is of, unless final returns."""


class Judgement(NamedTuple):
    """A verdict, and what qualifies it."""

    verdict: ScoreVerdict
    why: str = ""

    @override
    def __str__(self) -> str:
        if self.why:
            return f"{self.verdict} ({self.why})"
        return str(self.verdict)


@cache
def published_scores() -> tuple[PublishedScore, ...]:
    """All scores of the file."""
    with FILE.open(newline="", encoding="utf-8") as file:
        return tuple(_score(row) for row in csv.DictReader(file))


def _score(row: dict[str, str]) -> PublishedScore:
    numbers = {
        "mean": float(row["mean"]),
        "std": float(row["std"]) if row["std"] else None,
        "frames": int(row["frames"]),
        "seeds": int(row["seeds"]),
    }
    facts: dict[str, Any] = {**row, **numbers}
    return PublishedScore(**facts)


def scores_for(algorithm: str, env: str, frames: int) -> list[PublishedScore]:
    """The scores of an algorithm in an environment. Comparable scores come first, among
    these the nearest budget, then the highest score."""
    fitting = [
        score
        for score in published_scores()
        if (score.algorithm, score.env) == (algorithm, env)
    ]

    def place(score: PublishedScore) -> tuple[bool, float, float]:
        distance = round(abs(np.log(score.frames / frames)), 1)
        return bool(score.differs), distance, -score.mean

    return sorted(fitting, key=place)


def judge(score: PublishedScore, measured: Measured | None) -> Judgement:
    """Compares a result with a published score. A result of fewer frames can be above
    or equal, but says nothing if it is below. With more frames it is the reverse."""
    if score.differs:
        return Judgement(ScoreVerdict.NOT_COMPARABLE, score.differs)
    if measured is None:
        measure = "greedy episodes" if score.score == "evaluation" else "returns"
        return Judgement(ScoreVerdict.NOT_COMPARABLE, f"has no {measure}")
    if measured.seeds < 2:
        return Judgement(ScoreVerdict.NOT_COMPARABLE, "needs two finished seeds")
    theirs = score.interval(measured.std)
    verdict = _compare_intervals(measured.interval, theirs)
    ratio = measured.frames / score.frames
    budgets = ""
    says_nothing = False
    if ratio < 1 - TOLERANCE:
        budgets = "with fewer frames"
        says_nothing = verdict is ScoreVerdict.BELOW
    elif ratio > 1 + TOLERANCE:
        budgets = "with more frames"
        says_nothing = verdict is not ScoreVerdict.BELOW
    if says_nothing:
        verdict = ScoreVerdict.NOT_COMPARABLE
    why = ", ".join(filter(None, (measured.measure, budgets)))
    return Judgement(verdict, why)


def _compare_intervals(
    ours: tuple[float, float], theirs: tuple[float, float]
) -> ScoreVerdict:
    if ours[0] > theirs[1]:
        return ScoreVerdict.ABOVE
    if ours[1] < theirs[0]:
        return ScoreVerdict.BELOW
    return ScoreVerdict.EQUAL
