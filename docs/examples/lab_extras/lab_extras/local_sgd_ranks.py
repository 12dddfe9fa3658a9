"""The ranks of local SGD: between two averages each one follows its own samples."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, final

from typing_extensions import override

from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.parallel.all_reduce.launch import MakeStrategy, train_ranks
from slm_lab.parallel.all_reduce.strategy import RankStrategy
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.result import SessionResult


@final
class LocalSGDStrategy(RankStrategy):
    """A rank that takes its optimizer steps alone.

    All ranks vote on every training event, so they come to each average together.
    Optimizer states stay with their ranks; networks, running statistics and targets are
    averaged.
    """

    saved: ClassVar = {**RankStrategy.saved, "events": "_events"}
    always_equal: ClassVar[bool] = False

    def __init__(
        self, sync_every: int, status_board: StatusBoard, group: ProcessGroup
    ) -> None:
        super().__init__(status_board, group)
        self._sync_every = sync_every
        self._events = 0

    @override
    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
        self._events += 1
        if self._events % self._sync_every == 0:
            self._average()
        return super().learned(report, cpu_t)

    def _average(self) -> None:
        for tensor in self.networks():
            mean = tensor.detach().cpu()
            self._group.all_reduce_(mean)
            tensor.data.copy_(mean / self._group.size)

    @override
    def before_end(self) -> None:
        self._average()


def train(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """The `Launcher` of the mode: ranks as those of "all_reduce", with another
    strategy."""
    return train_ranks(tasks, status_board, on_tick, _kind(tasks))


def train_on_cluster(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """The `Launcher` on the nodes of a Ray cluster, which have this package, too."""
    from slm_lab.parallel.ray.launch import train_ranks as train_on_nodes

    return train_on_nodes(tasks, status_board, on_tick, _kind(tasks))


def _kind(tasks: Sequence[SessionTask]) -> MakeStrategy:
    return partial(LocalSGDStrategy, tasks[0].spec.meta.local_sgd.sync_every)
