"""`agent.algorithm`: one model per algorithm, with the keys of SLM Lab's files. A model
also has the facts that the rest of the lab asks of an algorithm before it is built."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.fields import Count, Frames
from slm_lab.spec.schema.memory import (
    NOT_ONE_SAMPLE,
    ONE_SEQUENCE,
    Family,
    MemorySpec,
    OnPolicyBatchReplaySpec,
    ReplaySpec,
)
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.rules import (
    ANY,
    Limit,
    Needed,
    NoEffect,
    Refused,
    Suspicious,
)
from slm_lab.spec.schema.schedule import MAY_CHANGE, ChangingBlock, NonNegative

ActionPdtype: TypeAlias = Literal[
    "default",
    "Normal",
    "Beta",
    "LogNormal",
    "MultivariateNormal",
    "Deterministic",
    "Categorical",
    "Argmax",
    "GumbelSoftmax",
    "MultiCategorical",
    "Bernoulli",
    "Product",
]
ActionPolicy: TypeAlias = Annotated[
    Literal["default", "random", "epsilon_greedy", "boltzmann", "gaussian"],
    Refused(
        "is for discrete actions, but action_pdtype is {own.action_pdtype}",
        when="algorithm.explores_choices",
        unless="may_be_discrete",
        value=ANY,
    ),
    Refused(
        "is for discrete actions; {algorithm.name} explores by gaussian",
        when=("algorithm.explores_choices", "IS_DETERMINISTIC"),
        value=ANY,
    ),
    Refused(
        "adds noise to a deterministic actor; {algorithm.name} draws from a "
        "distribution: use default",
        value="gaussian",
        unless="IS_DETERMINISTIC",
    ),
    Suspicious(
        "takes the best action every time, so nothing is explored; use "
        "epsilon_greedy or boltzmann with an explore_var_spec, or a noisy net",
        when="is_greedy",
        unless="blocks.has_noisy_net",
        value=ANY,
    ),
]
"""How actions are chosen. A model that has another default keeps the rules."""
Critic: TypeAlias = Literal["none", "may_share", "apart"]
"""No critic; a critic that may share the actor's body; a separate critic."""
NSteps = Annotated[
    Count, bounds.STEPS_OF_TARGET, Field(description="n of n-step targets")
]

CONTINUOUS = frozenset({"Normal", "Beta", "LogNormal", "MultivariateNormal"})
DISCRETE = frozenset({"Categorical", "Argmax", "GumbelSoftmax"})
OF_POLICIES = CONTINUOUS | {
    "default",
    "Categorical",
    "GumbelSoftmax",
    "MultiCategorical",
    "Bernoulli",
    "Product",
}
EXPLORING_CHOICES = frozenset({"epsilon_greedy", "boltzmann"})
"""Action policies with an exploration variable, for n discrete actions."""
EXPLORING = EXPLORING_CHOICES | {"gaussian"}
"""Action policies with an exploration variable."""
SYMLOG = "values learned as sign(x) ln(1 + |x|), arXiv:2301.04104"
WITHOUT_SIGMA = DISCRETE | {"MultiCategorical", "Bernoulli", "Beta", "Deterministic"}
"""Action distributions without an initial standard deviation."""

REPLAYED_STEPS = 8
"""Default steps of an unroll for replay algorithms, which have no rollout length."""

SOME_FRAMES = 256
"""Frames of each environment in which an on-policy algorithm learns, if nothing says
when."""

BEFORE_THE_END = ", or the run ends before anything is learned"
BY_THE_RATIO = NoEffect(
    "meta.actor_learner.train_ratio sets the number of gradient steps",
    when="meta.replaces_ratio",
)
BY_THE_EXACT_RATIO = NoEffect(
    "meta.actor_learner.train_ratio sets the number of gradient steps",
    when="meta.sets_ratio",
)
ONE_WITH_A_RATIO = Limit(
    sign="=",
    of=1,
    text=" with update_to_data, which sets the number of gradient steps alone",
    when="algorithm.update_to_data",
)
SHORT_EVENTS = Refused(
    "× training_batch_iter = {own.event_steps:,} gradient steps; it "
    + bounds.STEPS_OF_EVENT.message,
    when="algorithm.has_long_events",
    value=ANY,
)


class AlgorithmSpec(ChangingBlock):
    """The keys and facts of every algorithm."""

    MEMORY: ClassVar[Family | None] = None
    """The family of memories it learns from; None: any, or no memory."""

    MEMORY_MODEL: ClassVar[type[MemorySpec]] = MemorySpec
    """The base model of its memories, for part of a family."""

    PDTYPES: ClassVar[frozenset[str] | None] = None
    """The action distributions it supports; None: all."""

    NEEDS_NET: ClassVar[bool] = True

    NEEDS_BOUNDS: ClassVar[bool] = False
    """Whether continuous actions must be bounded on both sides."""

    CRITIC: ClassVar[Critic | None] = None
    """Its critic; None (a plug-in): unknown."""

    HAS_TARGETS: ClassVar[bool | None] = None
    """Whether it has target networks; None (a plug-in): unknown."""

    LEARNS: ClassVar[bool] = True
    """False: it takes no memory and no net."""

    TWIN: ClassVar[str] = ""
    """The algorithm that it extends by imitation of past episodes. It has a replay
    memory of its own for them. "" without imitation."""

    IS_DETERMINISTIC: ClassVar[bool] = False
    """Whether its actor puts out one action, not a distribution."""

    ACTS_ON_Q: ClassVar[bool] = False
    """Whether it takes the action of the greatest Q."""

    ALWAYS_NORMALISES: ClassVar[bool] = False
    """Whether its nets are normalised without a key of theirs."""

    HAS_ADVANTAGES: ClassVar[bool] = False
    """Whether it has state values and advantages, which a correction corrects."""

    LEARNS_SEQUENCES: ClassVar[bool] = True
    """Whether it can learn recurrent nets."""

    HAS_NOISE: ClassVar[bool] = False
    """Whether it draws the noise of noisy nets for acting and for gradient steps."""

    DRAWS_MASKS: ClassVar[bool] = False
    """Whether it draws the masks of its critics' dropout for gradient steps."""

    HAS_VALUE_LOSS: ClassVar[bool] = True
    """Whether the loss of a net's `loss_spec` trains it."""

    RECORDS_STEPS: ClassVar[bool] = True
    """Whether a GPU can replay its gradient steps as CUDA graphs."""

    KEEPS_STEPS_ON_DEVICE: ClassVar[bool] = False
    """Whether it can act and learn on steps that are tensors on a GPU, without the
    host."""

    UNROLLS: ClassVar[type[MemorySpec] | None] = None
    """The base model of memories that actors' unrolls fill; None: unknown, so that no
    actors can feed it."""

    ROLLOUT_KEY: ClassVar[str | None] = None
    """The key of the steps of a rollout; None for algorithms without rollouts."""

    TOTALS: ClassVar[Mapping[str, bool]] = {
        "time_horizon": True,
        "training_start_step": False,
    }
    """The keys that hold sizes in total over all ranks; whether each must be a multiple
    of their number."""

    SAMPLES: ClassVar[tuple[str, ...]] = ("minibatch_size",)
    """Samples of a gradient step, in total over all ranks with meta.scale "strong"."""

    name: Annotated[
        str,
        Refused(
            "imitates whole past episodes, but the actors of distributed "
            '"{meta.mode.word}" send unrolls of a fixed length; use {own.TWIN}',
            when=("meta.mode.has_learner", "TWIN"),
            value=ANY,
        ),
        Refused(
            'learns nothing, and distributed "{meta.mode.word}" is for a learner; set '
            "distributed to false",
            when="meta.mode.has_learner",
            unless="LEARNS",
            value=ANY,
        ),
        Refused(
            'distributed "{meta.mode.word}" does not know what it learns from: the '
            "model of its keys, {own.__class__.__name__}, is none of PPOSpec, "
            "OnPolicyLearningSpec and ReplayLearningSpec; derive it from one of them, "
            "or set distributed to false",
            when="meta.mode.has_learner",
            unless="blocks.has_actors",
            value=ANY,
        ),
    ] = Field(description="algorithm")
    action_pdtype: ActionPdtype = Field(
        "default", description="distribution of actions; default: by the action space"
    )
    action_policy: ActionPolicy = Field(
        "default",
        description="how actions are chosen; default: sampled from the distribution; "
        "random: uniformly; epsilon_greedy: the likeliest, or with probability ε any; "
        "boltzmann: sampled with weights p^(1/τ)",
    )
    explore_var_spec: Annotated[
        NonNegative | None,
        Needed("{own.action_policy} needs it", when="algorithm.explores"),
        NoEffect(
            'action_policy "{own.action_policy}" has no exploration variable',
            unless="algorithm.explores",
        ),
    ] = Field(
        None, description="ε of epsilon_greedy, or the temperature τ of boltzmann"
    )
    gamma: Annotated[float | None, MAY_CHANGE] = Field(
        None, ge=0, le=1, description="discount γ, per environment step"
    )

    @classmethod
    def learns_from(cls, memory: type[MemorySpec]) -> bool:
        """Whether it can learn from a memory of this model."""
        fits = (
            memory.FAMILY is None or cls.MEMORY is None or memory.FAMILY == cls.MEMORY
        )
        return fits and (memory.FAMILY is None or issubclass(memory, cls.MEMORY_MODEL))

    @property
    def explores(self) -> bool:
        """Whether its policy has an exploration variable."""
        return self.action_policy in EXPLORING

    @property
    def explores_choices(self) -> bool:
        """Whether its policy explores by a choice among n actions."""
        return self.action_policy in EXPLORING_CHOICES

    @property
    def is_greedy(self) -> bool:
        """Whether it always takes the action of the greatest Q."""
        is_plain = self.action_policy == "default"
        return (
            self.ACTS_ON_Q and is_plain and self.action_pdtype in ("default", "Argmax")
        )

    @property
    def may_be_discrete(self) -> bool:
        """Whether its distribution may be for n discrete actions."""
        return self.action_pdtype in DISCRETE | {"default"}

    @property
    def has_one_net(self) -> bool:
        """Whether it has a net and no critic."""
        return self.CRITIC == "none"

    @property
    def has_separate_critics(self) -> bool:
        """Whether its critics share nothing with the actor."""
        return self.CRITIC == "apart"

    @property
    def has_sigma(self) -> bool:
        """Whether its actions may have a standard deviation."""
        return self.action_pdtype not in WITHOUT_SIGMA and not self.IS_DETERMINISTIC

    @property
    def steps_of_return(self) -> int:
        """The steps that a replay memory joins to one transition."""
        return 1

    @property
    def replays(self) -> bool:
        """Whether it draws batches from a replay memory, at its own frequency."""
        return False

    @property
    def frames_between_resets(self) -> int | None:
        """The frames of the trial's clock from one reset of its networks to the next;
        None without resets."""
        return None

    @property
    def returns(self) -> tuple[str, Mapping[str, float]] | None:
        """The kind of distribution of the return that it learns, and its arguments;
        None if it learns the mean alone."""
        return None

    @property
    def num_cosines(self) -> int | None:
        """The number of cosines by which a net sees the probability of the quantile
        that it puts out. None if its outputs are fixed."""
        return None

    @property
    def needs_embedding(self) -> bool:
        """Whether its net must have an embedding of the observation."""
        return self.num_cosines is not None

    @property
    def entropy_penalty(self) -> float:
        """The weight of a penalty on changes of the entropy of discrete actions."""
        return 0.0

    @property
    def greatest_entropy_penalty(self) -> float:
        """The greatest weight of this penalty over the run."""
        return 0.0

    @property
    def mean_noise(self) -> float:
        """The bound of noise on the mean of continuous actions while it learns."""
        return 0.0

    def first_stored(self, meta: MetaSpec) -> int:
        """The fewest transitions that a replay memory holds when training begins."""
        return 0

    def rollout_length(self) -> int:
        """Steps of each environment that it collects before it learns from them. The
        number is 8 if it learns from single steps or short sequences."""
        return REPLAYED_STEPS

    def unroll_length(self, meta: MetaSpec) -> int:
        """Steps of each environment in one unroll of an actor."""
        length = meta.actor_learner.unroll_length
        if length is None:
            return self.rollout_length()
        return length

    def frames_of_event(self, num_envs: int, meta: MetaSpec) -> int:
        """The frames that one training event of an on-policy algorithm learns from.
        They are the frames of a rollout, or of all unrolls of the event. They are
        unknown if training_frequency counts episodes."""
        if not meta.mode.has_learner:
            return self.rollout_length() * num_envs
        unrolls = meta.actor_learner.learn_queue
        return unrolls * self.unroll_length(meta) * num_envs

    def first_learning_frame(
        self, counts_steps: bool, num_envs: int, meta: MetaSpec
    ) -> int | None:
        """Frames before the first training event; None if unknown. `counts_steps` tells
        a memory of steps from one of episodes."""
        if self.ROLLOUT_KEY is None or not counts_steps:
            return None
        return self.frames_of_event(num_envs, meta)

    def frames_of_events(self, count: int, num_envs: int, meta: MetaSpec) -> int:
        """Frames up to some `count` training events, for a short run that tests all
        parts of a spec."""
        return count * SOME_FRAMES * num_envs

    def frames_between_events(self, num_envs: int) -> int | None:
        """The fewest frames between two training events on a replay memory; None
        without one."""
        return None

    def steps_of_rollout(self, frames: int) -> int:
        """Gradient steps of a training event on a rollout of so many frames, if a key
        sets them; else 0."""
        return 0

    def trains_by_frequency(self, meta: MetaSpec) -> bool:
        """Whether `training_frequency` schedules training on a replay memory, not a
        ratio or a free learner."""
        return False

    def for_learner(self, meta: MetaSpec) -> Self:
        """The algorithm with the gradient steps that `meta.actor_learner.train_ratio`
        sets."""
        return self

    def for_rank(self, num_envs: int | None) -> Self:
        """The algorithm with shares of a rank, cut to what it can learn from. Without
        `num_envs` nothing is cut."""
        return self

    def with_steps_per_frame(self, times: int) -> Self:
        """The algorithm with so many times the gradient steps per frame."""
        return self

    def with_larger_rates(self, times: float) -> Self:
        """The algorithm with larger learning rates of its own."""
        return self

    def samples_ratio(self, share: Self, count: int) -> float:
        """The samples in a gradient step of `count` ranks, divided by the samples in a
        step of a single process. `share` is the algorithm with a rank's share."""
        return count


class RandomSpec(AlgorithmSpec):
    """Uniformly random actions: the baseline of normalised scores."""

    NEEDS_NET = False
    LEARNS = False

    training_frequency: Annotated[Count | None, bounds.FRAMES] = Field(
        None, description="has no effect"
    )


class PlugInSpec(AlgorithmSpec):
    """The keys of a plug-in without a model of its keys."""

    gamma: float = Field(
        0.99, ge=0, le=1, description="discount γ, per environment step"
    )
    training_frequency: Annotated[Count, bounds.FRAMES] = Field(
        1, description="steps between training events"
    )


class LearningSpec(AlgorithmSpec):
    """An algorithm that learns."""

    gamma: Annotated[float, MAY_CHANGE] = Field(
        ge=0, le=1, description="discount γ, per environment step"
    )


class OnPolicyLearningSpec(LearningSpec):
    """An algorithm that learns from data of its current policy."""

    MEMORY = "on_policy"
    UNROLLS = OnPolicyBatchReplaySpec
    RECORDS_STEPS = False
    ROLLOUT_KEY = "training_frequency"
    SAMPLES = (*AlgorithmSpec.SAMPLES, "training_frequency")

    training_frequency: Annotated[Count, bounds.ROLLOUT] = Field(
        1,
        description="steps of each environment between training events; with "
        "OnPolicyReplay and OnPolicyCrossEntropy: episodes",
    )

    @override
    def rollout_length(self) -> int:
        return self.training_frequency

    @override
    def frames_of_events(self, count: int, num_envs: int, meta: MetaSpec) -> int:
        some = SOME_FRAMES * num_envs
        if not meta.mode.has_learner:
            return count * some
        return count * max(some, self.frames_of_event(num_envs, meta))


class MinibatchLearningSpec(LearningSpec):
    """An algorithm that learns from rollouts of its current policy, in epochs of
    minibatches."""

    MEMORY = "on_policy"
    MEMORY_MODEL = OnPolicyBatchReplaySpec
    UNROLLS = OnPolicyBatchReplaySpec
    ROLLOUT_KEY = "time_horizon"

    time_horizon: Annotated[Count, bounds.ROLLOUT] = Field(
        description="T, steps of each environment per rollout"
    )
    minibatch_size: Annotated[
        Count,
        bounds.BATCH,
        NOT_ONE_SAMPLE,
        Limit(
            sign="<=",
            of=("algorithm.time_horizon", "env.num_envs"),
            text=", the frames of one rollout",
            unless=("meta.mode.has_learner", "env.has_agents"),
        ),
        Limit(
            sign="<=",
            of=(
                "meta.actor_learner.learn_queue",
                "blocks.unroll_length",
                "env.num_envs",
            ),
            text=", the frames that one training event learns from",
            when="blocks.has_actors",
            unless="env.has_agents",
        ),
    ] = Field(
        64,
        description="transitions per gradient step B; a single remaining one joins "
        "the last batch",
    )
    training_epoch: Annotated[Count, bounds.EPOCHS] = Field(
        4, description="passes over a rollout K"
    )

    @override
    def rollout_length(self) -> int:
        return self.time_horizon

    @override
    def first_learning_frame(
        self, counts_steps: bool, num_envs: int, meta: MetaSpec
    ) -> int | None:
        return self.frames_of_event(num_envs, meta)

    @override
    def frames_of_events(self, count: int, num_envs: int, meta: MetaSpec) -> int:
        return count * self.frames_of_event(num_envs, meta)

    @override
    def steps_of_rollout(self, frames: int) -> int:
        return math.ceil(frames / self.minibatch_size) * self.training_epoch

    @override
    def for_rank(self, num_envs: int | None) -> Self:
        if num_envs is None:
            return self
        minibatch = min(self.minibatch_size, self.time_horizon * num_envs)
        return self.model_copy(update={"minibatch_size": minibatch})

    @override
    def samples_ratio(self, share: Self, count: int) -> float:
        return count * share.minibatch_size / self.minibatch_size


class ReplayLearningSpec(LearningSpec):
    """An algorithm that learns from a replay memory."""

    MEMORY = "replay"
    UNROLLS = ReplaySpec

    training_frequency: Annotated[
        Count,
        bounds.FRAMES,
        Limit(
            sign="<=",
            of="env.max_frame",
            text=BEFORE_THE_END,
            when="blocks.trains_by_frequency",
        ),
        BY_THE_RATIO,
        NoEffect("update_to_data sets when to train", when="algorithm.update_to_data"),
    ] = Field(
        1,
        description="stored transitions between training events; at most one event "
        "per step",
    )
    training_start_step: Annotated[
        Frames,
        bounds.FRAMES,
        Limit(sign="<", of="env.max_frame", text=BEFORE_THE_END),
        Limit(
            sign=">=",
            of=("net.sequence_length", "env.num_envs"),
            called="seq_len × num_envs",
            text=ONE_SEQUENCE,
            when=("net.is_recurrent", "algorithm.ACTS_ON_Q"),
            unless="blocks.begins_with_sequences",
        ),
    ] = Field(0, ge=0, description="stored transitions before the first training event")
    training_iter: Annotated[
        Count,
        bounds.STEPS_OF_EVENT,
        SHORT_EVENTS,
        ONE_WITH_A_RATIO,
        BY_THE_EXACT_RATIO,
    ] = Field(1, description="gradient steps per sampled batch")
    training_batch_iter: Annotated[
        Count, bounds.STEPS_OF_EVENT, ONE_WITH_A_RATIO, BY_THE_RATIO
    ] = Field(1, description="sampled batches per training event")
    update_to_data: Annotated[float | None, BY_THE_RATIO] = Field(
        None,
        gt=0,
        le=bounds.STEPS_PER_FRAME,
        description="gradient steps per frame, kept exactly",
    )
    reset_frequency: Annotated[
        Frames | None,
        bounds.FRAMES,
        Limit(sign="<", of="env.max_frame", text=", or no reset comes"),
        Limit(
            sign=">",
            of="training_start_step",
            text=", or networks that have learned nothing are reset",
        ),
        Suspicious(
            "soon after a reset the recent returns are still those of the networks "
            "before; the best agent is saved by them; set meta.rigorous_eval",
            unless="meta.rigorous_eval",
        ),
    ] = Field(
        None,
        ge=1,
        description="frames between resets (arXiv:2205.07802): networks, optimizers, α "
        "and target networks begin anew, the memory stays; null: no resets",
    )

    @property
    @override
    def replays(self) -> bool:
        return True

    @property
    @override
    def frames_between_resets(self) -> int | None:
        return self.reset_frequency

    @override
    def first_learning_frame(
        self, counts_steps: bool, num_envs: int, meta: MetaSpec
    ) -> int | None:
        """Frames stored when the first gradient step is due. `num_envs` frames come at
        a time, and one of them must be a multiple of `training_frequency`."""
        if meta.mode.has_ranks:
            return None

        def stored(frames: int) -> int:
            return math.ceil(frames / num_envs) * num_envs

        start = stored(max(self.training_start_step, 1))
        if meta.trains_freely:
            return start
        ratio = self.for_learner(meta).update_to_data
        if ratio is not None:
            return stored(self.training_start_step + math.ceil(1 / ratio - 1e-9))
        events_before = (start - num_envs) // self.training_frequency
        return stored((events_before + 1) * self.training_frequency)

    @override
    def frames_of_events(self, count: int, num_envs: int, meta: MetaSpec) -> int:
        frames = 16 * max(self.training_frequency, num_envs)
        if meta.mode.has_learner:
            frames = max(frames, num_envs * self.unroll_length(meta))
        return self.training_start_step + count * frames

    @override
    def frames_between_events(self, num_envs: int) -> int:
        if self.update_to_data is None:
            steps = self.training_frequency // num_envs
        else:
            steps = math.floor(1 / (self.update_to_data * num_envs))
        return max(1, steps) * num_envs

    @override
    def first_stored(self, meta: MetaSpec) -> int:
        if not self.trains_by_frequency(meta):
            return self.training_start_step
        return max(self.training_start_step, self.training_frequency)

    @property
    def event_steps(self) -> int:
        """Gradient steps of a training event."""
        return self.training_iter * self.training_batch_iter

    @property
    def has_long_events(self) -> bool:
        """Whether a training event has more gradient steps than a run can wait for."""
        return self.event_steps > bounds.STEPS_OF_EVENT.number

    @override
    def trains_by_frequency(self, meta: MetaSpec) -> bool:
        exact = self.for_learner(meta).update_to_data is not None
        return not exact and not meta.trains_freely

    @override
    def for_learner(self, meta: MetaSpec) -> Self:
        if not meta.replaces_ratio:
            return self
        if meta.trains_freely:
            keys: dict[str, object] = {
                "update_to_data": None,
                "training_frequency": 1,
                "training_batch_iter": 1,
            }
            return self.model_copy(update=keys)
        # Each batch that the ratio counts is one gradient step.
        keys = {
            "update_to_data": meta.actor_learner.train_ratio,
            "training_iter": 1,
            "training_batch_iter": 1,
        }
        return self.model_copy(update=keys)

    @override
    def with_steps_per_frame(self, times: int) -> Self:
        if self.update_to_data is not None:
            keys: dict[str, float] = {"update_to_data": self.update_to_data * times}
        else:
            keys = {"training_batch_iter": self.training_batch_iter * times}
        return self.model_copy(update=keys)
