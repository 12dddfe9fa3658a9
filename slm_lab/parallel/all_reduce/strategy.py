"""All-reduce: a Trial's Sessions as ranks that take every gradient step together."""

import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from typing import ClassVar, final

import numpy as np
from torch import Tensor
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.resets import ResetSync
from slm_lab.agent.optim.optimizer import GradientSync, TrainState
from slm_lab.agent.optim.process_group import ProcessGroup, SoloGroup
from slm_lab.core.errors import LabError
from slm_lab.core.moments import merged_by_all, require_finite
from slm_lab.core.state import HasState
from slm_lab.core.types import FloatArray, IntArray, StateDict
from slm_lab.env.vector_env import FinishedEpisodes, VectorEnv
from slm_lab.parallel.all_reduce.sync import AllReduceSync, broadcast
from slm_lab.session import strategy
from slm_lab.session.experience import Clock
from slm_lab.session.play_episodes import join_episodes
from slm_lab.session.status_board import StatusBoard

ON_TIME = (strategy.Vote.LEARN, strategy.Vote.ACT, strategy.Vote.FINISH)
"""Votes at which frame counts do not depend on the ranks' speed."""


@final
class RankClock(Clock):
    """Holds the frames of all ranks as of the last vote. Until the next vote it assumes
    that every rank steps as this one does. So the total does not depend on the speed of
    the other ranks, and a run can be repeated. Ranks that wait to learn step less, so
    the budget may seem spent too early. Therefore ranks vote on the end."""

    def __init__(self, slots: IntArray, index: int, max_frame: int) -> None:
        super().__init__(slots, index, max_frame)
        self._voted = np.zeros(len(slots), np.int64)

    @property
    @override
    def total_frame(self) -> int:
        since = self.frame - int(self._voted[self._index])
        return int(self._voted.sum()) + len(self._voted) * since

    @property
    @override
    def frames(self) -> list[int]:
        """Frames of every rank at the last vote."""
        return [int(frame) for frame in self._voted]

    def is_spent(self, frames: FloatArray) -> bool:
        """Whether ranks with these `frames`, (W,), have spent the budget."""
        return bool(frames.sum() >= self._max_frame)

    def store_frames(self, frames: FloatArray | IntArray) -> None:
        """Stores the frames of all ranks, (W,), at a vote."""
        self._voted[:] = frames

    @override
    def load(self, frame: int, frames: Sequence[int]) -> None:
        """Restores the saved frames, even to lower counts: all ranks restart
        together."""
        self.set(frame)
        self._voted[:] = frames


class RankBallot(HasState, strategy.Ballot, strategy.EpisodeExchange):
    """Ranks vote on what comes next, and send episodes along with their votes."""

    def __init__(self, group: ProcessGroup, shares_evaluation: bool = True) -> None:
        """Without `shares_evaluation` the first rank plays all evaluation episodes."""
        self._group = group
        self._shares_evaluation = shares_evaluation
        self._unsent: list[FinishedEpisodes] = []
        """Episodes since the last training event."""
        self._received: list[FinishedEpisodes] = []
        self._is_solved = False
        self.clock: RankClock
        self.num_envs = 0  # of each rank
        self.sample_share = 1 / group.size
        """This rank's share of the samples of the next training event."""

    @override
    def agree(self, vote: strategy.Vote, num_samples: int = 1) -> strategy.Vote:
        """Agrees on a vote; exchanges frames, sample counts and episodes too. FINISH is
        granted only if the total budget is spent or a rank has reached the target
        return."""
        rank = self._group.rank
        clock = self.clock
        proposal = np.array([vote, clock.frame, num_samples, self._is_solved])
        unsent = join_episodes(self._unsent) if self._unsent else ()
        messages = self._group.all_gather_arrays([proposal, *unsent])
        votes, frames, samples, solved = np.stack(
            [message[0] for message in messages], axis=1
        )
        granted = strategy.Vote(votes.max())
        if granted is strategy.Vote.FINISH and not (
            solved.any() or clock.is_spent(frames)
        ):
            granted = strategy.Vote.ACT
        if granted in ON_TIME:
            clock.store_frames(frames)
        elif granted in (strategy.Vote.SAVE, strategy.Vote.KEEP):
            self._group.take_back()
        if granted is strategy.Vote.LEARN:
            self._unsent = []
            self._received = []
            for other, (_, *episodes) in enumerate(messages):
                if other != rank and episodes:
                    index, *values = episodes
                    index = index + other * self.num_envs
                    self._received.append(FinishedEpisodes(index, *values))
            self.sample_share = num_samples / int(samples.sum())
        return granted

    @override
    def declare_solved(self) -> None:
        """The other ranks see it at the next vote."""
        self._is_solved = True

    @override
    def send(self, finished: FinishedEpisodes) -> None:
        self._unsent.append(finished)

    @override
    def received(self) -> Sequence[FinishedEpisodes]:
        return self._received

    @override
    def eval_share(self, num_envs: int) -> int:
        """The first ranks play one more if the environments do not divide evenly."""
        if not self._shares_evaluation:
            if self._group.rank == 0:
                return num_envs
            return 0
        per_rank, remainder = divmod(num_envs, self._group.size)
        return per_rank + (self._group.rank < remainder)

    @override
    def gather_evaluation(
        self, episodes: FinishedEpisodes | None
    ) -> FinishedEpisodes | None:
        shares = self._group.all_gather_arrays(episodes or ())
        if not all(shares):
            return None
        played = [FinishedEpisodes(*share) for share in shares]
        return join_episodes([share for share in played if len(share.env_index)])

    @override
    def state_dict(self) -> StateDict:
        """Episodes not yet sent."""
        return {"unsent": [list(episodes) for episodes in self._unsent]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores the unsent episodes."""
        self._unsent += [FinishedEpisodes(*arrays) for arrays in state["unsent"]]


@final
class RankResets(ResetSync):
    """Ranks, whose clocks agree at a training event, begin anew with the first rank's
    weights."""

    def __init__(self, group: ProcessGroup, train_state: TrainState) -> None:
        self._group = group
        self._train_state = train_state

    @override
    def reset(self, due: int, done: int, begin_anew: Callable[[], None]) -> int:
        if due > done:
            begin_anew()
            for optimizer in self._train_state.optimizers.values():
                broadcast(optimizer.state_tensors(), self._group)
        return max(due, done)


class RankStrategy(strategy.Strategy, strategy.StartBarrier, strategy.JointCheckpoint):
    """One of W ranks, which act independently, vote on what comes next, and learn in
    step. The first rank leads: it writes rows that cover the episodes of all. The
    manifests of all ranks become valid together; at the end their networks are equal.
    Subclasses decide which gradients or weights ranks exchange: `AllReduceStrategy`
    averages gradients."""

    saved: ClassVar = {
        **strategy.Strategy.saved,
        "statistics": "_statistics",
        "cpu_t_of_others": "_cpu_t_of_others",
        "exchanged": "_paused_at",
    }
    merged: ClassVar = ("_ballot",)
    optional: ClassVar = (*strategy.Strategy.optional, "exchanged")

    columns = ("sync_share",)
    always_equal: ClassVar[bool] = True
    """Whether all ranks hold the same weights after every training event."""

    def __init__(self, status_board: StatusBoard, group: ProcessGroup) -> None:
        self._group = group
        self._saving = status_board.saving
        self._paused_at = 0.0
        """`group.seconds` at the last pause."""
        self._ballot = RankBallot(group, shares_evaluation=self.always_equal)
        leads = group.rank == 0
        slots = status_board.clock_slots
        columns = self.columns
        blueprint = strategy.Blueprint(
            clock_slots=slots,
            index=group.rank,
            columns=columns,
            num_sessions=group.size,
            leads=leads,
        )
        super().__init__(
            blueprint,
            barrier=self,
            ballot=self._ballot,
            episodes=self._ballot,
            checkpoint=self,
        )
        self._cpu_t_of_others = 0.0
        self._statistics: FloatArray | None = None
        """The environments' statistics, (S,), common to all ranks at the last training
        event."""

    @override
    def clock(self, max_frame: int) -> Clock:
        blueprint = self.blueprint
        self._ballot.clock = RankClock(
            blueprint.clock_slots, blueprint.index, max_frame
        )
        return self._ballot.clock

    def make_sync(self, network: str) -> GradientSync:
        """The synchronisation of a network at each of its optimizer steps; by default
        none."""
        return GradientSync()

    def before_end(self) -> None:
        """Called when the training is over; afterwards all ranks must hold equal
        networks."""

    @override
    def join(self, agent: LearningAgent, env: VectorEnv) -> None:
        """Broadcasts the first rank's parameters and optimizer state."""
        self._env = env
        self._ballot.num_envs = env.num_envs
        self._train_state = agent.learner.train_state
        # The ranks whose samples the learner's statistics cover, such as the moments of
        # advantages.
        self._train_state.group = self._group if self.always_equal else SoloGroup()
        for name, optimizer in self._train_state.optimizers.items():
            if self.always_equal or self._statistics is None:  # else it was restored
                broadcast(optimizer.state_tensors(), self._group)
            optimizer.join(self.make_sync(name))
        if agent.learner.resets is not None:
            agent.learner.resets.sync = RankResets(self._group, self._train_state)
        if self._statistics is None:
            self._statistics = env.statistics.copy()

    @override
    def learned(self, report: dict[str, float], cpu_t: float) -> dict[str, float]:
        """Averages the report and merges the environments' statistics over ranks.
        Raises NonFiniteLossError on all ranks if one rank's statistics are not
        finite."""
        local = np.array([cpu_t, *report.values()], np.float64)
        gathered = self._group.all_gather(np.concatenate([local, self._env.statistics]))
        numbers = gathered[:, : len(local)]
        statistics = gathered[:, len(local) :]
        require_finite(statistics)
        assert self._statistics is not None
        self._cpu_t_of_others = float(numbers[:, 0].sum()) - cpu_t
        self._statistics = merged_by_all(
            self._statistics, statistics, self._env.moments
        )
        self._env.statistics[:] = self._statistics
        return dict(zip(report, numbers[:, 1:].mean(0).tolist(), strict=True))

    @override
    def cpu_t(self, own_seconds: float) -> float:
        """Adds the other ranks' CPU seconds as of the last training event."""
        return own_seconds + self._cpu_t_of_others

    @override
    def report(self, seconds: float) -> dict[str, float]:
        waited = self._group.seconds
        self._group.seconds = 0.0
        if seconds > 0:
            return {"sync_share": waited / seconds}
        return {}

    @override
    def state_dict(self) -> StateDict:
        exchanged = self._group.seconds if self.pace.is_virtual else 0.0
        return {**super().state_dict(), "exchanged": exchanged}

    @override
    def resume(self) -> None:
        """Waits during the pause do not count for `sync_share`."""
        self._group.seconds = self._paused_at

    @override
    def pause(self) -> None:
        self._paused_at = self._group.seconds

    @override
    def commit_barrier(self) -> None:
        self._group.barrier()

    @override
    def final_state(self, copy: Callable[[], StateDict], finished: bool) -> StateDict:
        """Raises LabError if the ranks' networks differ, which must never happen."""
        if finished:
            self.before_end()
        if finished or self.always_equal:
            digests = self._group.all_gather_bytes(self.digest())
            if len(set(digests)) > 1:
                raise LabError(
                    "the networks of the ranks differ: "
                    + ", ".join(
                        f"rank {r} has {d.hex()[:8]}" for r, d in enumerate(digests)
                    )
                )
        self._saving[self._group.rank] = 1
        return copy()

    def networks(self) -> list[Tensor]:
        """Weights and running statistics of the networks and their targets, flat."""
        flats = [optimizer.flat for optimizer in self._train_state.optimizers.values()]
        return [
            tensor
            for network in (*flats, *self._train_state.targets)
            for tensor in (network.vector, network.statistics)
        ]

    def digest(self) -> bytes:
        """A hash of the state that is equal on all ranks at the end. It covers
        networks, the environments' statistics, and optimizer states if `always_equal`.
        The statistics are those after the last training event: they diverge while ranks
        act."""
        assert self._statistics is not None
        digest = hashlib.sha256()
        tensors = self.networks()
        if self.always_equal:
            optimizers = self._train_state.optimizers.values()
            tensors += chain.from_iterable(
                optimizer.state_tensors() for optimizer in optimizers
            )
        for tensor in tensors:
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        digest.update(self._statistics.tobytes())
        return digest.digest()


@final
class AllReduceStrategy(RankStrategy):
    """A rank that averages every gradient over all ranks."""

    def __init__(self, status_board: StatusBoard, group: ProcessGroup) -> None:
        super().__init__(status_board, group)
        self._syncs: list[AllReduceSync] = []

    @override
    def make_sync(self, network: str) -> GradientSync:
        self._syncs.append(AllReduceSync(self._group, network, self.pace))
        return self._syncs[-1]

    @override
    def refresh(self) -> None:
        for sync in self._syncs:
            sync.share = self._ballot.sample_share
