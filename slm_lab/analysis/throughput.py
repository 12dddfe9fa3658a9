"""How fast a Trial trained, and how stale its gradients were."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.metrics.reader import Rows


class Throughput(NamedTuple):
    """The speed of one training, over all workers; the mean over several trainings of a Trial. A
    value is None if no row has its columns."""

    frames_per_s: float | None
    updates_per_s: float | None
    """Gradient steps per second."""
    staleness_p50: float | None
    """Mean over all rows of the median, and of the 95 % quantile: updates between pull and push."""
    staleness_p95: float | None
    sync_share: float | None
    """The share of training time spent on exchange with other ranks and waiting for them."""
    eps: float | None
    """Median over all rows: slices per second that the learner learned from."""
    policy_lag: float | None
    """Mean over all rows: training events between the policy that acted and the learner's."""
    policy_lag_max: float | None
    """The most in any row."""
    actor_wait_share: float | None
    """Mean over all rows: the share of time that actors waited."""
    learner_wait_share: float | None
    """The share of training time that the learner waited."""


def throughput(rows: Sequence[Rows], training_of: Sequence[int]) -> Throughput:
    """The throughput of a Trial; `training_of` has the training of each Session. Speeds of workers
    add up. If one Session writes the rows of a training, they count the frames of all workers."""
    alone = [training_of.count(training) == 1 for training in training_of]
    frames = ["total_frame" if one else "frame" for one in alone]
    opt_steps = ["opt_step"] * len(rows)
    speeds = _per_second(rows, training_of, frames), _per_second(rows, training_of, opt_steps)
    reduced: dict[str, Callable[[FloatArray], float]]
    reduced = {"eps": np.nanmedian, "policy_lag_max": np.nanmax}
    columns = Throughput._fields[len(speeds) :]
    values = (_of_all(rows, each, reduced.get(each, np.nanmean)) for each in columns)
    return Throughput(*speeds, *values)


def _per_second(
    rows: Sequence[Rows], training_of: Sequence[int], counts: Sequence[str]
) -> float | None:
    speeds: dict[int, float] = {}
    for each, training, count in zip(rows, training_of, counts, strict=True):
        if len(each) and each["wall_t"][-1] > 0:
            speed = float(each[count][-1] / each["wall_t"][-1])
            speeds[training] = speeds.get(training, 0.0) + speed
    return float(np.mean(list(speeds.values()))) if speeds else None


def _of_all(rows: Sequence[Rows], column: str, what: Callable[[FloatArray], float]) -> float | None:
    known = [each[column] for each in rows if column in each.columns and each.has_values(column)]
    return float(what(np.concatenate(known))) if known else None
