"""One training event of an algorithm that learns from replay."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from slm_lab.agent.algorithm.algorithm import Learner
from slm_lab.agent.algorithm.report import Report, mean_report
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.describe import describe_on_error


class Update(NamedTuple):
    """The result of one gradient step."""

    report: Report
    error: Tensor
    """(B,) the error of the prediction for each sample."""


def train_on_replay(
    learner: Learner[TransitionSource],
    source: TransitionSource,
    frame: int,
    steps_per_batch: int,
    update: Callable[[Transitions], Update],
) -> Report:
    """Takes gradient steps on the batches that are due; then the target network may follow. Returns
    the mean report. Raises NonFiniteLossError with the statistics of the batch that caused it."""
    learner.train_state.set_frame(frame)
    reports: list[Report] = []
    seen: list[tuple[Tensor, Transitions]] = []
    failed = learner.train_state.failed
    for _ in range(source.num_batches):
        batch = source.sample(frame)
        with describe_on_error(batch):
            for _ in range(steps_per_batch):
                done = update(batch)
                reports.append(done.report)
        if failed is not None:
            seen.append((failed.clone(), batch))
        source.update_priorities(batch.index, done.error)
    if seen and seen[-1][0].item():
        first = next(batch for flag, batch in seen if flag.item())
        with describe_on_error(first):
            learner.train_state.check()
    if learner.target_network is not None:
        learner.target_network.update_after_event(source.num_stored)
    learner.version += 1
    return {
        **mean_report(reports),
        "update_to_data": learner.opt_step / source.num_trained_on,
        "lr": learner.train_state.lr,
    }
