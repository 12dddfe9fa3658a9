"""One training event of an algorithm that learns from replay."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from slm_lab.agent.algorithm.algorithm import Learner
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.describe import describe_on_error


class Update(NamedTuple):
    """The result of one gradient step."""

    report: dict[str, float]
    error: Tensor
    """(B,) the error of the prediction for each sample, on the CPU."""


def train_on_replay(
    learner: Learner[TransitionSource],
    source: TransitionSource,
    frame: int,
    steps_per_batch: int,
    update: Callable[[Transitions], Update],
) -> dict[str, float]:
    """Takes gradient steps on the batches that are due; then the target network may follow. Returns
    the mean report. Raises NonFiniteLossError with the statistics of the batch that caused it."""
    learner.train_state.set_frame(frame)
    reports = []
    for _ in range(source.num_batches):
        batch = source.sample(frame)
        with describe_on_error(batch):
            for _ in range(steps_per_batch):
                done = update(batch)
                reports.append(done.report)
        source.update_priorities(batch.index, done.error)
    if learner.target_network is not None:
        learner.target_network.update_after_event(source.num_stored)
    learner.version += 1
    return {
        **mean_report(reports),
        "update_to_data": learner.opt_step / source.num_trained_on,
        "lr": learner.train_state.lr,
    }


def mean_report(reports: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of every number over the reports that have it."""
    names = dict.fromkeys(name for report in reports for name in report)
    values = {name: [r[name] for r in reports if name in r] for name in names}
    return {name: sum(found) / len(found) for name, found in values.items()}
