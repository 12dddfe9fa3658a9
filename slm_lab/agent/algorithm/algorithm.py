"""Actor and learner, which every algorithm consists of, what they are built from, and
a training event on replay."""

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.algorithm.correction import VTrace
from slm_lab.agent.algorithm.report import GradientStep, Report, Update, mean_report
from slm_lab.agent.algorithm.resets import Resets
from slm_lab.agent.batch import Act, Transitions, TransitionSource, describe_on_error
from slm_lab.agent.distribution.family import DistributionFamily
from slm_lab.agent.memory.memory import ReplayConfig
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import StepReport, TrainState
from slm_lab.agent.optim.process_group import ProcessGroup
from slm_lab.agent.recurrent_state import RecurrentLayout
from slm_lab.core.errors import LabError
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.state import HasState, SavedFields, fields_state, load_fields
from slm_lab.core.types import Array, BoolArray, Column, StateDict
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec

SpecT = TypeVar("SpecT", bound=AlgorithmSpec)
BatchT = TypeVar("BatchT", contravariant=True)


class Actor(HasState):
    """Acts. Holds the policy, its generator and its recurrent state."""

    version: int
    """Learner updates that the weights have seen; recorded with every act."""
    explore_var: float | None
    """The exploration variable of the last act (ε or τ); None if there is none."""
    module: nn.Module | None = None
    """The policy's network, whose first output has the parameters of the distribution
    of actions; None if there is no network."""
    family: DistributionFamily | None = None
    """The distribution of actions, from the first output of `module`; None without
    one."""
    is_recurrent: bool = False
    """Whether an action depends on earlier observations of the episode."""

    @abstractmethod
    def act(self, obs: Array, frame: int) -> Act:
        """Actions for observations (N, *obs_shape) at the trial's clock `frame`."""

    @abstractmethod
    def act_greedily(self, obs: Array) -> Array:
        """The most likely actions, (N, *action_shape); samples nothing."""

    def begin(self, num_envs: int) -> None:
        """Starts new episodes in `num_envs` environments."""

    def end_episodes(self, ended: BoolArray) -> None:
        """Resets the recurrent state of the episodes (N,) that have ended."""

    def memory_obs(self, obs: Array) -> Array:
        """Observations as a memory stores them, with the recurrent state if there is
        one."""
        return obs


class Learner(SavedFields, Generic[BatchT]):
    """Updates the weights from batches. Holds networks, optimizers and its own
    generator. It saves `train_state`, the networks with their optimizers, the two
    counters, and its target networks by name. `own_fields` adds what else the next
    update depends on."""

    saved: ClassVar = {
        "train_state": "train_state",
        "opt_step": "opt_step",
        "version": "version",
    }
    own_fields: ClassVar[Mapping[str, str]] = {}
    """Fields that the next update depends on, such as a generator, in the form of
    `saved`."""
    own_optional: ClassVar[Collection[str]] = ()
    """Keys of `own_fields` that a state may lack, as in `optional`."""

    spec: Any
    """The keys of the algorithm."""
    reads_spec: ClassVar[bool] = False
    """Whether each training event reads its numbers from `spec`, so that they may
    change over the run."""

    resets: Resets | None = None
    """Lets its networks begin anew from time to time; None: they never do."""

    step: GradientStep | None = None
    """The gradient step that `learn` calls, if a GPU may replay it as a CUDA graph."""

    def __init__(
        self,
        train_state: TrainState,
        target_networks: Mapping[str, TargetNetwork] | None = None,
    ) -> None:
        self.train_state = train_state
        self.target_networks = dict(target_networks or {})
        train_state.targets = tuple(
            network.target for network in self.target_networks.values()
        )
        self.flats: Mapping[str, FlatParameters] = train_state.flats
        self.opt_step = 0
        """Gradient steps taken: the second clock of a run."""
        self.version = 0
        """Training events done: the version of the policy."""

    @property
    @abstractmethod
    def metric_names(self) -> tuple[str | Column, ...]:
        """The columns this algorithm reports beyond those that every row has.
        `metrics/row.py` documents each column."""

    @abstractmethod
    def learn(self, batch: BatchT, frame: int) -> Report:
        """One training event at the trial's clock `frame`; returns the report for the
        row. Raises NonFiniteLossError before a loss that is not finite touches any
        weight. On a GPU it raises nothing, and the caller finds the loss by
        `train_state.check`."""

    def stepped(self, step: StepReport) -> dict[str, float | Tensor]:
        """Counts a training event of one gradient step; returns the columns about the
        step."""
        self.opt_step += 1
        self.version += 1
        return {
            "loss": step.loss,
            "grad_norm": step.grad_norm,
            "lr": self.train_state.lr,
        }

    def take_numbers(self, numbers: Mapping[str, float]) -> None:
        """Takes the values that scheduled keys of its algorithm have from now on.
        Raises LabError if it does not read them from its `spec`."""
        if self.reads_spec:
            self.spec = self.spec.with_numbers(numbers)
            return
        keys = ", ".join(f"agent.algorithm.{key}" for key in numbers)
        raise LabError(
            f"{keys}: {type(self).__name__} cannot change it over the run; give a "
            "number in place of the schedule"
        )

    def own_state(self) -> StateDict:
        """Other state that the next update depends on: the `own_fields`."""
        return fields_state(self, self.own_fields, self.own_optional)

    def load_own_state(self, state: StateDict) -> None:
        """Restores `own_state`."""
        load_fields(self, self.own_fields, state, self.own_optional)

    def weights_replaced(self) -> None:
        """Updates copies of the weights, after the weights were replaced from
        outside."""
        for network in self.target_networks.values():
            network.copy_online()

    @override
    def state_dict(self) -> StateDict:
        parts = {name: part.state_dict() for name, part in self._own_parts().items()}
        return {**super().state_dict(), "own": self.own_state() | parts}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for name, part in self._own_parts().items():
            part.load_state_dict(state["own"][name])
        self.load_own_state(state["own"])

    def _own_parts(self) -> dict[str, HasState]:
        """Its parts beside the networks that it trains."""
        parts: dict[str, HasState] = {**self.target_networks}
        if self.resets is not None:
            parts["resets"] = self.resets
        return parts


@dataclass(frozen=True)
class AgentSeeds:
    """Independent seeds for the generators of one agent."""

    init: int
    action: int
    sampling: int


@dataclass(frozen=True)
class BuildContext:
    """The arguments from which an algorithm is built."""

    spec: AgentSpec
    layout: ObservationLayout
    """The observations as the agent gets them."""
    action_space: gymnasium.Space[Any]
    num_envs: int
    seeds: AgentSeeds
    correction: VTrace | None = None
    """Corrects rollouts of a policy older than the learner's; None takes them as
    fresh."""
    steps_on_device: bool = False
    """Whether the environment's steps are tensors on the networks' device."""

    @property
    def has_mask(self) -> bool:
        """Whether observations tell which actions are allowed."""
        return self.layout.mask is not None

    def algorithm(self, kind: type[SpecT]) -> SpecT:
        """The keys of the algorithm, which are of this model."""
        spec = self.spec.algorithm
        assert isinstance(spec, kind)
        return spec


class AgentParts(NamedTuple):
    """The parts that an algorithm contributes to an agent, and the layout of its
    memory."""

    actor: Actor
    learner: Learner[Any]
    horizon: int
    """Steps of each environment between two training events; unused with `replay`."""
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[np.generic]
    replay: ReplayConfig | None = None
    """The replay of an off-policy algorithm; None for others."""
    recurrent: RecurrentLayout | None = None
    """The recurrent state of its networks; None without one."""


def seeded_generator(seed: int) -> torch.Generator:
    """A CPU generator with this seed."""
    return torch.Generator().manual_seed(seed)


class Trained(Protocol):
    """Networks that a training event changes."""

    def train(self, mode: bool) -> None:
        """Whether normalisation layers use and update batch statistics."""


def train_on_minibatches(
    learner: Learner[Any], network: Trained, updates: Iterable[Update]
) -> dict[str, float | Tensor]:
    """Takes the gradient steps of a training event on a rollout, until one is left out.
    Returns the mean report."""
    reports: list[Report] = []
    network.train(True)
    for update in updates:
        reports.append(update.report)
        if update.was_left_out:
            break
        learner.opt_step += 1
    network.train(False)
    learner.version += 1
    return {**mean_report(reports), "lr": learner.train_state.lr}


MOST_UNREAD = 64
"""The most batches that the host keeps before it asks a GPU whether a step has
failed."""


def _agreed_counts(source: TransitionSource, group: ProcessGroup) -> tuple[int, int]:
    """The batches of this event, and the transitions stored so far. They are the same
    on all ranks, which take every gradient step together. Ranks whose agents leave
    store different numbers, so that the means over ranks count."""
    num_batches = source.num_batches
    num_stored = source.num_stored
    if group.size == 1 or not source.ranks_differ:
        return num_batches, num_stored
    owed = source.num_owed
    if owed is None:
        owed = num_batches
    counts = np.array([num_stored, owed, owed - num_batches], np.float64)
    # Every rank owes at least one batch, so that the mean grows by at least one.
    stored, now, before = (group.all_gather(counts).sum(0) // group.size).tolist()
    return int(now) - int(before), int(stored)


def train_on_replay(
    learner: Learner[TransitionSource],
    source: TransitionSource,
    frame: int,
    steps_per_batch: int,
    update: Callable[[Transitions], Update],
) -> Report:
    """Resets the networks if a reset is due, then takes gradient steps on the batches
    that are due. At last the target networks may follow, with the τ of this frame.
    Returns the mean report. Raises NonFiniteLossError with the statistics of the batch
    that caused it."""
    if learner.resets is not None and learner.resets.reset(learner.train_state, frame):
        learner.weights_replaced()
    learner.train_state.set_frame(frame)
    for network in learner.target_networks.values():
        network.set_frame(frame)
    reports: list[Report] = []
    seen: deque[tuple[Tensor, Transitions]] = deque(maxlen=MOST_UNREAD)
    failed = learner.train_state.failed
    num_batches, num_stored = _agreed_counts(source, learner.train_state.group)
    for num_left in reversed(range(num_batches)):
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
            if num_left % MOST_UNREAD == 0 and failed.item():
                first_failed = next(batch for flag, batch in seen if flag.item())
                with describe_on_error(first_failed):
                    learner.train_state.check()
        if done.error is not None:
            source.update_priorities(batch.index, done.error)
    for network in learner.target_networks.values():
        network.update_after_event(num_stored)
    learner.version += 1
    return {
        **mean_report(reports),
        "update_to_data": learner.opt_step / source.num_trained_on,
        "lr": learner.train_state.lr,
    }
