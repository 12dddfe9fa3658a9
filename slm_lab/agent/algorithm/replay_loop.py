"""One training event of an algorithm that learns from replay."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.describe import described


class Update(NamedTuple):
    """What one gradient step found."""

    report: dict[str, float]
    error: Tensor
    """(B,) how wrong the prediction was for each sample, on the CPU."""


def replay(
    source: TransitionSource,
    frame: int,
    steps_per_batch: int,
    update: Callable[[Transitions], Update],
) -> dict[str, float]:
    """Draws the batches that are due and takes gradient steps on each; the mean of the reports.

    Raises NonFiniteLossError with the statistics of the batch that caused it.
    """
    reports = []
    for _ in range(source.num_batches):
        batch = source.sample(frame)
        with described(batch):
            for _ in range(steps_per_batch):
                done = update(batch)
                reports.append(done.report)
        source.update_priorities(batch.index, done.error)
    return mean_report(reports)


def mean_report(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of every number over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    values = {name: [r[name] for r in reports if name in r] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}
