"""All-reduce: the Sessions of a Trial as ranks that take every gradient step together."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import final

import numpy as np

from slm_lab.agent.agent import Agent
from slm_lab.agent.optim.all_reduce import AllReduceSync, broadcast
from slm_lab.agent.optim.peers import Peers
from slm_lab.core.errors import LabError, NonFiniteLossError
from slm_lab.core.moments import merged_by_all
from slm_lab.core.types import FloatArray, IntArray, StateDict
from slm_lab.env.step import FinishedEpisodes
from slm_lab.env.vector_env import VectorEnv
from slm_lab.experiment.clock import Clock
from slm_lab.experiment.crew import Crew, Wish
from slm_lab.experiment.progress import Board

HEAD = 4
"""Numbers at the beginning of what is said at a meeting: wish, frames, samples, and 1 from one that
has reached the return at which the training ends."""

ON_TIME = (Wish.LEARN, Wish.ACT, Wish.FINISH)
"""At which meetings the frames of all hang on what was done alone, and not on how quickly."""


@final
class RankClock(Clock):
    """Knows the frames of the others as of the last meeting.

    Until the next one they are taken to step as this one does. So the total hangs on nothing but
    what was learned from, however fast the others are: a run can be repeated. Where they step less,
    as those whose episodes are over and who wait to learn, the budget seems spent too early: so
    that is the occasion for a meeting, and no end yet.
    """

    def __init__(self, slots: IntArray, index: int, max_frame: int) -> None:
        super().__init__(slots, index, max_frame)
        self._met = np.zeros(len(slots), np.int64)

    @property
    def total_frame(self) -> int:
        """See `Clock`."""
        since = self.frame - int(self._met[self._index])
        return int(self._met.sum()) + len(self._met) * since

    @property
    def frames(self) -> list[int]:
        """Of every rank at the last meeting."""
        return [int(frame) for frame in self._met]

    def is_spent(self, frames: FloatArray) -> bool:
        """Whether the budget is, where all have come as far as that, (W,)."""
        return bool(frames.sum() >= self._max_frame)

    def met(self, frames: FloatArray | IntArray) -> None:
        """The others have come as far as that, (W,)."""
        self._met[:] = frames

    def load(self, frame: int, frames: Sequence[int]) -> None:
        """Goes back to what was saved: a rank begins again where all of them were."""
        self.set(frame)
        self._met[:] = frames


@final
class AllReduce(Crew):
    """A rank among W. All act by themselves, and meet when one of them wishes for something.

    The first one leads: it writes the rows, of the episodes of all.
    """

    columns = ("sync_share",)

    def __init__(self, board: Board, peers: Peers, progress: IntArray | None = None) -> None:
        """`progress`, (W,), is where each counts what it does besides steps and exchanges, for
        those who look whether it gets on; each writes its own number only."""
        self._board = board
        self._peers = peers
        self._progress = np.zeros(peers.size, np.int64) if progress is None else progress
        self._frame_clock: RankClock | None = None
        self._cpu_t_of_others = 0.0
        self._synced = self._aside_from = 0.0
        self._statistics: FloatArray | None = None
        """Those of the environments, (S,), as all had them after the last training event."""
        self._told: list[FinishedEpisodes] = []
        """Episodes since the last training event."""
        self._heard: list[FinishedEpisodes] = []
        self._is_solved = False
        self.size = peers.size
        self.leads = peers.rank == 0

    def clock(self, max_frame: int) -> Clock:
        """See `Crew`."""
        self._frame_clock = RankClock(self._board.clock_slots, self._peers.rank, max_frame)
        return self._frame_clock

    def join(self, agent: Agent, env: VectorEnv) -> None:
        """Everyone begins with what the first rank has."""
        self._env = env
        self._units = agent.learner.units
        self._units.peers = self._peers
        self._syncs = []
        for optimizer in self._units.optimizers.values():
            broadcast(optimizer.state_tensors(), self._peers)
            self._syncs.append(AllReduceSync(self._peers))
            optimizer.join(self._syncs[-1])
        if self._statistics is None:
            self._statistics = env.statistics.copy()

    def meet(self, wish: Wish, num_samples: int = 1) -> Wish:
        """See `Crew`; before they learn all hear how much each has done, and before the end that it
        is enough."""
        clock, rank = self._frame_clock, self._peers.rank
        assert clock is not None
        head = np.array([wish, clock.frame, num_samples, self._is_solved], np.float64)
        told = [np.stack(each, 1).astype(np.float64).ravel() for each in self._told]
        said = [
            np.frombuffer(content, np.float64)
            for content in self._peers.all_of(np.concatenate([head, *told]).tobytes())
        ]
        heads = np.stack([each[:HEAD] for each in said])
        granted, frames = Wish(int(heads[:, 0].max())), heads[:, 1]
        if granted is Wish.FINISH and not (heads[:, 3].any() or clock.is_spent(frames)):
            granted = Wish.ACT
        if granted in ON_TIME:
            clock.met(frames)
        if granted is Wish.LEARN:
            self._told.clear()
            self._heard = [
                _episodes(each[HEAD:], other, self._env.num_envs)
                for other, each in enumerate(said)
                if other != rank and len(each) > HEAD
            ]
            for sync in self._syncs:
                sync.share = float(heads[rank, 2] / heads[:, 2].sum())
        return granted

    def tell(self, finished: FinishedEpisodes) -> None:
        """See `Crew`."""
        self._told.append(finished)

    def heard(self) -> Sequence[FinishedEpisodes]:
        """See `Crew`."""
        return self._heard

    def learned(self, report: dict[str, float], cpu_t: Callable[[], float]) -> dict[str, float]:
        """The mean report. Statistics become those of all.

        Raises NonFiniteLossError, in all ranks, where those of one are not finite.
        """
        own_cpu_t = cpu_t()
        own = np.array([own_cpu_t, *report.values()], np.float64)
        said = self._peers.exchanged(np.concatenate([own, self._env.statistics]))
        numbers, statistics = said[:, : len(own)], said[:, len(own) :]
        if not np.isfinite(statistics).all():
            raise NonFiniteLossError(
                "the running statistics of observations or rewards are not finite: the "
                "environment gave a number that is not"
            )
        assert self._statistics is not None
        self._cpu_t_of_others = float(numbers[:, 0].sum()) - own_cpu_t
        self._statistics = merged_by_all(self._statistics, statistics, self._env.moments)
        self._env.statistics[:] = self._statistics
        return dict(zip(report, numbers[:, 1:].mean(0).tolist(), strict=True))

    def cpu_t(self, own: float) -> float:
        """See `Crew`; that of the others as of the last training event."""
        return own + self._cpu_t_of_others

    def report(self, seconds: float) -> dict[str, float]:
        """See `Crew`."""
        spent, self._synced = self._peers.seconds - self._synced, self._peers.seconds
        return {"sync_share": spent / seconds} if seconds > 0 else {}

    def enter(self) -> None:
        """See `Crew`; what it has waited for before, or aside, is not a share of the training."""
        self._synced += self._peers.seconds - self._aside_from

    def stand_aside(self) -> None:
        """See `Crew`."""
        self._aside_from = self._peers.seconds

    def show_progress(self) -> None:
        """See `Crew`."""
        self._progress[self._peers.rank] += 1

    def part_of(self, num_envs: int) -> int:
        """The first ranks have one more where they cannot share evenly."""
        each, left = divmod(num_envs, self.size)
        return each + (self._peers.rank < left)

    def evaluated(self, episodes: FinishedEpisodes | None) -> FinishedEpisodes | None:
        """See `Crew`."""
        numbers = np.zeros((0, 3)) if episodes is None else np.stack(episodes, 1)
        head = np.array([episodes is not None], np.float64)
        content = np.concatenate([head, numbers.astype(np.float64).ravel()]).tobytes()
        said = [np.frombuffer(each, np.float64) for each in self._peers.all_of(content)]
        if not all(each[0] for each in said):
            return None
        return _episodes(np.concatenate([each[1:] for each in said]), 0, 0)

    def declare_solved(self) -> None:
        """See `Crew`; they hear it when they meet."""
        self._is_solved = True

    def state_dict(self) -> StateDict:
        """See `Crew`."""
        return {
            "told": [list(each) for each in self._told],
            "statistics": self._statistics,
            "cpu_t_of_others": self._cpu_t_of_others,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """See `Crew`."""
        self._told = [FinishedEpisodes(*each) for each in state["told"]]
        self._statistics = state["statistics"]
        self._cpu_t_of_others = float(state["cpu_t_of_others"])

    def all_have_written(self) -> None:
        """See `Crew`."""
        self._peers.all_of(b"")

    def end_together(self, copy: Callable[[], StateDict]) -> StateDict:
        """See `Crew`. Raises LabError where the ranks have come apart, which must never happen."""
        digests = self._peers.all_of(self._digest())
        if len(set(digests)) > 1:
            raise LabError(
                "the networks of the ranks are not the same any more: "
                + ", ".join(f"rank {r} has {d.hex()[:8]}" for r, d in enumerate(digests))
            )
        self._board.saving[self._peers.rank] = 1
        return copy()

    def _digest(self) -> bytes:
        """Of all weights, those of target networks too, statistics and optimizer states.

        Environments have seen something of their own since the last training event; what counts is
        what all had then.
        """
        assert self._statistics is not None
        digest = hashlib.sha256()
        states = (optimizer.state_tensors() for optimizer in self._units.optimizers.values())
        targets = ((target.vector, target.statistics) for target in self._units.targets)
        for tensor in chain.from_iterable((*states, *targets)):
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        digest.update(self._statistics.tobytes())
        return digest.digest()


def _episodes(numbers: FloatArray, rank: int, num_envs: int) -> FinishedEpisodes:
    """What `tell` made flat, of a rank whose environments follow those of the ranks before it."""
    index, returns, lengths = numbers.reshape(-1, 3).T
    return FinishedEpisodes(
        index.astype(np.int64) + rank * num_envs, returns.copy(), lengths.astype(np.int64)
    )
