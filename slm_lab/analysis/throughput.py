"""How fast a Trial trained, and how stale its gradients were."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.metrics.reader import Rows


@final
@dataclass(frozen=True)
class Throughput:
    """Of one training, with all its workers; the mean where a Trial holds several.

    None where there is nothing to measure it by.
    """

    frames_per_s: float | None
    updates_per_s: float | None
    """Gradient steps per second."""
    staleness_p50: float | None
    """Mean over all rows of the median, and of the 95 % quantile: updates between pull and push."""
    staleness_p95: float | None
    sync_share: float | None
    """Of the training time, what went into exchanging with other ranks and waiting for them."""
    eps: float | None
    """Median over all rows: slices per second that the learner learned from."""
    policy_lag: float | None
    """Mean over all rows: training events between the policy that acted and the learner's."""
    policy_lag_max: float | None
    """The most in any row."""
    actor_wait_share: float | None
    """Mean over all rows: of their time, what actors waited."""
    learner_wait_share: float | None
    """Of the training time, what the learner waited."""

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and None."""
        return asdict(self)


def throughput(rows: Sequence[Rows], training_of: Sequence[int]) -> Throughput:
    """Of a Trial's Sessions; `training_of` says for each which training it was part of.

    A Session's speed is what its last row counts over its training time; those of workers add up.
    Where one of a training writes rows for all, they count the frames of all.
    """
    alone = [training_of.count(training) == 1 for training in training_of]
    frames = ["total_frame" if one else "frame" for one in alone]
    return Throughput(
        _per_second(rows, training_of, frames),
        _per_second(rows, training_of, ["opt_step"] * len(rows)),
        _mean(rows, "staleness_p50"),
        _mean(rows, "staleness_p95"),
        _mean(rows, "sync_share"),
        _of_all(rows, "eps", np.nanmedian),
        _mean(rows, "policy_lag"),
        _of_all(rows, "policy_lag_max", np.nanmax),
        _mean(rows, "actor_wait_share"),
        _mean(rows, "learner_wait_share"),
    )


def _per_second(
    rows: Sequence[Rows], training_of: Sequence[int], counts: Sequence[str]
) -> float | None:
    speeds: dict[int, float] = {}
    for each, training, count in zip(rows, training_of, counts, strict=True):
        if len(each) and each["wall_t"][-1] > 0:
            speed = float(each[count][-1] / each["wall_t"][-1])
            speeds[training] = speeds.get(training, 0.0) + speed
    return float(np.mean(list(speeds.values()))) if speeds else None


def _mean(rows: Sequence[Rows], column: str) -> float | None:
    return _of_all(rows, column, np.nanmean)


def _of_all(rows: Sequence[Rows], column: str, what: Callable[[FloatArray], float]) -> float | None:
    known = [each[column] for each in rows if column in each.columns and each.has_values(column)]
    return float(what(np.concatenate(known))) if known else None
