"""One training event of an algorithm that learns from replay."""

from collections import deque
from collections.abc import Callable

from torch import Tensor

from slm_lab.agent.algorithm.algorithm import Learner
from slm_lab.agent.algorithm.report import Report, Update, mean_report
from slm_lab.agent.batch import Transitions, TransitionSource
from slm_lab.agent.describe import describe_on_error

MOST_UNREAD = 64
"""Batches after which the host asks a GPU whether a step has failed. Until then it
keeps them."""


def train_on_replay(
    learner: Learner[TransitionSource],
    source: TransitionSource,
    frame: int,
    steps_per_batch: int,
    update: Callable[[Transitions], Update],
) -> Report:
    """Takes gradient steps on the batches that are due; then the target networks may
    follow. Returns the mean report. Raises NonFiniteLossError with the statistics of
    the batch that caused it."""
    learner.train_state.set_frame(frame)
    reports: list[Report] = []
    seen: deque[tuple[Tensor, Transitions]] = deque(maxlen=MOST_UNREAD)
    failed = learner.train_state.failed
    for left in reversed(range(source.num_batches)):
        batch = source.sample(frame)
        on_device = batch
        if failed is not None:
            on_device = batch.to(failed.device)
        with describe_on_error(batch):
            for _ in range(steps_per_batch):
                done = update(on_device)
                reports.append(done.report)
        if failed is not None:
            seen.append((failed.clone(), batch))
            if left % MOST_UNREAD == 0 and failed.item():
                first_failed = next(batch for flag, batch in seen if flag.item())
                with describe_on_error(first_failed):
                    learner.train_state.check()
        if done.error is not None:
            source.update_priorities(batch.index, done.error)
    for network in learner.target_networks.values():
        network.update_after_event(source.num_stored)
    learner.version += 1
    return {
        **mean_report(reports),
        "update_to_data": learner.opt_step / source.num_trained_on,
        "lr": learner.train_state.lr,
    }
