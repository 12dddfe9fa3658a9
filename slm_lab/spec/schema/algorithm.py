"""`agent.algorithm`: one model per algorithm, with the keys of SLM Lab's files."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import (
    Block,
    error_line,
    key_error,
    raise_errors,
    spec_error,
)
from slm_lab.spec.schema.fields import AutoOrNumber, Count
from slm_lab.spec.schema.memory import Family, MemorySpec, OnPolicyBatchReplaySpec
from slm_lab.spec.schema.schedule import Coefficient, Constant, NonNegative, constant
from slm_lab.spec.schema.share import Frames

ActionPdtype: TypeAlias = Literal[
    "default",
    "Normal",
    "Beta",
    "LogNormal",
    "MultivariateNormal",
    "Categorical",
    "Argmax",
    "GumbelSoftmax",
    "MultiCategorical",
    "Bernoulli",
]
ActionPolicy: TypeAlias = Literal["default", "random", "epsilon_greedy", "boltzmann"]
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
}
OF_Q_VALUES = frozenset({"default", "Argmax", "Categorical"})
EXPLORING = frozenset({"epsilon_greedy", "boltzmann"})
"""Action policies with an exploration variable, for n discrete actions."""
SYMLOG = "values learned as sign(x) ln(1 + |x|), arXiv:2301.04104"
NORMALIZED_TARGETS = (
    "value targets scaled to mean 0 and standard deviation 1, estimated from about "
    "the last million; a deviation below 1e-4 is not scaled up further"
)
OF_SAC = frozenset({"default", "Normal", "Categorical", "GumbelSoftmax"})


class AlgorithmSpec(Block):
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

    name: str = Field(description="algorithm")
    action_pdtype: ActionPdtype = Field(
        "default", description="distribution of actions; default: by the action space"
    )
    action_policy: ActionPolicy = Field(
        "default",
        description="how actions are chosen; default: sampled from the distribution; "
        "random: uniformly; epsilon_greedy: the likeliest, or with probability ε any; "
        "boltzmann: sampled with weights p^(1/τ)",
    )
    explore_var_spec: NonNegative | None = Field(
        None, description="ε of epsilon_greedy, or the temperature τ of boltzmann"
    )
    gamma: float | None = Field(
        None, ge=0, le=1, description="discount γ, per environment step"
    )

    @classmethod
    def learns_from(cls, memory: type[MemorySpec]) -> bool:
        """Whether it can learn from a memory of this model."""
        fits = (
            memory.FAMILY is None or cls.MEMORY is None or memory.FAMILY == cls.MEMORY
        )
        return fits and (memory.FAMILY is None or issubclass(memory, cls.MEMORY_MODEL))


class RandomSpec(AlgorithmSpec):
    """Uniformly random actions: the baseline of normalised scores."""

    NEEDS_NET = False

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

    gamma: float = Field(ge=0, le=1, description="discount γ, per environment step")


class OnPolicyLearningSpec(LearningSpec):
    """An algorithm that learns from data of its current policy."""

    MEMORY = "on_policy"

    training_frequency: Annotated[Count, bounds.ROLLOUT] = Field(
        1,
        description="steps of each environment between training events; with "
        "OnPolicyReplay and OnPolicyCrossEntropy: episodes",
    )


class ReinforceSpec(OnPolicyLearningSpec):
    """Monte-Carlo policy gradient (Williams 1992)."""

    PDTYPES = OF_POLICIES
    CRITIC = "none"
    HAS_TARGETS = False

    center_return: bool = Field(
        False, description="subtract the mean return of the batch"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight of the entropy"
    )
    policy_loss_coef: float = Field(1.0, ge=0, description="weight of the policy loss")


class SARSASpec(OnPolicyLearningSpec):
    """On-policy temporal-difference learning of Q, with ε-greedy or Boltzmann
    exploration."""

    PDTYPES = OF_Q_VALUES
    CRITIC = "none"
    HAS_TARGETS = False

    num_step_returns: NSteps = 1


class ActorCriticSpec(OnPolicyLearningSpec):
    """Advantage actor-critic, A2C and A3C (arXiv:1602.01783), with GAE or n-step
    returns; without both, plain returns. Advantages are not standardised."""

    PDTYPES = OF_POLICIES
    CRITIC = "may_share"
    HAS_TARGETS = False

    lam: float | None = Field(
        None, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)"
    )
    num_step_returns: Annotated[Count | None, bounds.STEPS_OF_TARGET] = Field(
        None, description="n of n-step returns"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight of the entropy"
    )
    policy_loss_coef: float = Field(1.0, ge=0, description="weight of the policy loss")
    val_loss_coef: float = Field(1.0, ge=0, description="weight of the value loss")
    normalize_v_targets: bool = Field(False, description=NORMALIZED_TARGETS)

    @model_validator(mode="after")
    def _one_kind_of_return(self) -> Self:
        if self.lam is not None and self.num_step_returns is not None:
            message = (
                "is another way to estimate the advantage than lam; set one of them "
                "to null"
            )
            raise key_error("num_step_returns", message, self.num_step_returns)
        return self


class PPOSpec(LearningSpec):
    """Proximal policy optimisation (arXiv:1707.06347)."""

    MEMORY = "on_policy"
    MEMORY_MODEL = OnPolicyBatchReplaySpec
    PDTYPES = OF_POLICIES
    CRITIC = "may_share"
    HAS_TARGETS = False
    ALIASES: ClassVar[Mapping[str, str]] = {"clip_val_loss": "clip_vloss"}
    LEGACY: ClassVar[Mapping[str, str]] = {
        "training_frequency": "PPO trains every time_horizon steps"
    }

    lam: float = Field(0.95, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)")
    clip_eps_spec: NonNegative = Field(
        constant(0.2), description="clipping range ε of the probability ratio"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight c₂ of the entropy"
    )
    val_loss_coef: float = Field(1.0, ge=0, description="weight c₁ of the value loss")
    time_horizon: Annotated[Count, bounds.ROLLOUT] = Field(
        description="T, steps of each environment per rollout"
    )
    minibatch_size: Annotated[Count, bounds.BATCH] = Field(
        64,
        description="transitions per gradient step B; a single remaining one joins "
        "the last batch",
    )
    training_epoch: Annotated[Count, bounds.EPOCHS] = Field(
        4, description="passes over a rollout K"
    )
    normalize_v_targets: bool = Field(False, description=NORMALIZED_TARGETS)
    clip_vloss: bool = Field(
        False, description="also clip the change of the value to ± ε"
    )
    normalize_advantages: Literal["standardize", "percentile"] | None = Field(
        "standardize",
        description="advantages per minibatch: to mean 0 and deviation 1 (true), by "
        "the 5–95 percentile range of returns (arXiv:2301.04104), or unchanged (null, "
        "false)",
    )
    symlog: bool = Field(False, description=SYMLOG)
    target_kl: float | None = Field(
        None,
        gt=0,
        description="ends the epochs before a step at an approximate KL beyond 1.5 "
        "times it, nats",
    )

    @field_validator("normalize_advantages", mode="before")
    @classmethod
    def _true_is_standardize(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "standardize" if value else None
        return value


class ReplayLearningSpec(LearningSpec):
    """An algorithm that learns from a replay memory."""

    MEMORY = "replay"

    training_frequency: Annotated[Count, bounds.FRAMES] = Field(
        1,
        description="stored transitions between training events; at most one event "
        "per step",
    )
    training_start_step: Annotated[Frames, bounds.FRAMES] = Field(
        0, ge=0, description="stored transitions before the first training event"
    )
    training_iter: Annotated[Count, bounds.STEPS_OF_EVENT] = Field(
        1, description="gradient steps per sampled batch"
    )
    training_batch_iter: Annotated[Count, bounds.STEPS_OF_EVENT] = Field(
        1, description="sampled batches per training event"
    )
    update_to_data: float | None = Field(
        None,
        gt=0,
        le=bounds.STEPS_PER_FRAME,
        description="gradient steps per frame, kept exactly",
    )


class DQNBaseSpec(ReplayLearningSpec):
    """The common keys of the Q-learning algorithms."""

    PDTYPES = OF_Q_VALUES
    CRITIC = "none"
    HAS_TARGETS = True

    num_step_returns: NSteps = 1


class VanillaDQNSpec(DQNBaseSpec):
    """Q-learning with a replay memory, without a target network."""

    HAS_TARGETS = False


class DQNSpec(DQNBaseSpec):
    """Q-learning with a target network (Mnih et al. 2015)."""


class DoubleDQNSpec(DQNBaseSpec):
    """Double Q-learning (arXiv:1509.06461)."""


class EntropyRegularisedSpec(ReplayLearningSpec):
    """The common keys of SoftActorCritic and CrossQ."""

    PDTYPES = OF_SAC
    NEEDS_BOUNDS = True
    CRITIC = "apart"

    random_warmup: bool = Field(
        True,
        description="act uniformly at random until training begins, if "
        "training_start_step > 0",
    )
    target_entropy: AutoOrNumber = Field(
        "auto",
        description="target entropy for tuning α, nats; auto: −A, or by the action "
        "count",
    )
    alpha_lr: float | None = Field(
        None,
        gt=0,
        description="learning rate of ln α; null: the actor's. Its optimizer and "
        "schedule are the actor's, too; all other arguments have torch's defaults, "
        "and there is no weight decay",
    )
    fixed_alpha: Constant | None = Field(
        None, description="fixed α, not tuned: a number, or a schedule"
    )
    log_alpha_min: Annotated[float, bounds.LOG_ALPHA] = Field(
        -20.0, description="minimum ln α"
    )
    log_alpha_max: float = Field(
        2.0,
        description="maximum ln α; below 0, α begins at its exponential instead of at "
        "1",
    )
    policy_delay: Annotated[Count, bounds.FRAMES] = Field(
        1, description="critic updates per actor update"
    )
    entropy_penalty_coef: float = Field(
        0.0,
        ge=0,
        description="weight of the penalty on changes of the entropy, "
        "arXiv:2209.10081; only for discrete actions",
    )
    symlog: bool = Field(False, description=SYMLOG)
    spectral_norm: bool = Field(
        False, description="spectral normalisation of the critics"
    )

    @field_validator("log_alpha_max")
    @classmethod
    def _bounds_in_order(cls, value: float, info: Any) -> float:
        least = info.data.get("log_alpha_min")
        if least is not None and value <= least:
            raise spec_error(f"must be > log_alpha_min ({least:g})")
        return value

    @model_validator(mode="after")
    def _tuned_or_fixed(self) -> Self:
        if self.fixed_alpha is None:
            return self
        defaults = {"target_entropy": "auto", "alpha_lr": None}
        message = "tunes α, and fixed_alpha sets it; remove one of the two"
        raise_errors(
            error_line((key,), message, getattr(self, key))
            for key, default in defaults.items()
            if getattr(self, key) != default
        )
        return self


class SoftActorCriticSpec(EntropyRegularisedSpec):
    """Soft actor-critic (arXiv:1812.05905), for continuous and discrete actions."""

    HAS_TARGETS = True


class CrossQSpec(EntropyRegularisedSpec):
    """CrossQ (arXiv:1902.05605): no target networks, batch-normalised critics."""

    HAS_TARGETS = False


class ImitatingSpec(Block):
    """The keys of self-imitation learning."""

    sil_policy_loss_coef: float = Field(
        1.0, ge=0, description="weight of the imitation policy loss"
    )
    sil_val_loss_coef: float = Field(
        1.0, ge=0, description="weight of the imitation value loss"
    )
    training_batch_iter: Annotated[Count, bounds.STEPS_OF_EVENT] = Field(
        1, description="replay batches per training event"
    )
    training_iter: Annotated[Count, bounds.STEPS_OF_EVENT] = Field(
        1, description="gradient steps per replay batch"
    )


class SILSpec(ImitatingSpec, ActorCriticSpec):
    """Self-imitation learning on top of ActorCritic (arXiv:1806.05635)."""


class PPOSILSpec(ImitatingSpec, PPOSpec):
    """Self-imitation learning on top of PPO."""


IMITATING = frozenset({"SIL", "PPOSIL"})
"""Algorithms that keep a replay memory beside their on-policy one."""
