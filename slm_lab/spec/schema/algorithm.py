"""`agent.algorithm`: one model per algorithm, in the words of SLM Lab's files."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, error_line, spec_error, spec_errors
from slm_lab.spec.schema.fields import AutoOrNumber, Int
from slm_lab.spec.schema.memory import Family, MemorySpec, OnPolicyBatchReplaySpec
from slm_lab.spec.schema.schedule import Coefficient, Constant, NonNegative, constant

ActionPdtype: TypeAlias = Literal[
    "default", "Normal", "Beta", "LogNormal", "MultivariateNormal", "Categorical", "Argmax",
    "GumbelSoftmax", "MultiCategorical", "Bernoulli",
]  # fmt: skip
ActionPolicy: TypeAlias = Literal["default", "random", "epsilon_greedy", "boltzmann"]
Critic: TypeAlias = Literal["none", "may_share", "apart"]
"""There is one network; the critic may have the actor's body; it never has."""

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
"""Action policies that choose among n actions, by an exploration variable."""
OF_SAC = frozenset({"default", "Normal", "Categorical", "GumbelSoftmax"})


class AlgorithmSpec(Block):
    """What every algorithm has."""

    MEMORY: ClassVar[Family | None] = None
    """The family of memories it learns from; None: any, or none at all."""

    MEMORY_MODEL: ClassVar[type[MemorySpec]] = MemorySpec
    """What it learns from, where the family is too wide."""

    PDTYPES: ClassVar[frozenset[str] | None] = None
    """The action distributions it can use; None: all."""

    NEEDS_NET: ClassVar[bool] = True

    NEEDS_BOUNDS: ClassVar[bool] = False
    """Whether continuous actions must be bounded on both sides."""

    CRITIC: ClassVar[Critic | None] = None
    """What critic it has beside its actor; None (a plug-in): not known."""

    HAS_TARGETS: ClassVar[bool | None] = None
    """Whether target networks follow its networks; None (a plug-in): not known."""

    name: str = Field(description="algorithm")
    action_pdtype: ActionPdtype = Field(
        "default", description="distribution of actions; default: by the action space"
    )
    action_policy: ActionPolicy = Field(
        "default",
        description="how actions are drawn from it; default: sampled; random: uniformly; "
        "epsilon_greedy: the likeliest, with ε any; boltzmann: by p^(1/τ)",
    )
    explore_var_spec: NonNegative | None = Field(
        None, description="ε of epsilon_greedy, or the temperature τ of boltzmann"
    )
    gamma: float | None = Field(None, gt=0, le=1, description="discount γ, per environment step")

    @classmethod
    def learns_from(cls, memory: type[MemorySpec]) -> bool:
        """Whether it can learn from a memory with keys of this model."""
        fits = memory.FAMILY is None or cls.MEMORY is None or memory.FAMILY == cls.MEMORY
        return fits and (memory.FAMILY is None or issubclass(memory, cls.MEMORY_MODEL))


class RandomSpec(AlgorithmSpec):
    """Uniformly random actions: the baseline that scores are measured against."""

    NEEDS_NET: ClassVar[bool] = False

    name: str = Field("Random", description="algorithm")
    training_frequency: Annotated[Int | None, bounds.FRAMES] = Field(
        None, ge=1, description="without meaning here"
    )


class PlugInSpec(AlgorithmSpec):
    """The keys of an algorithm that brings no model of its own."""

    gamma: float = Field(0.99, gt=0, le=1, description="discount γ, per environment step")
    training_frequency: Annotated[Int, bounds.FRAMES] = Field(
        1, ge=1, description="steps between training events"
    )


class LearningSpec(AlgorithmSpec):
    """An algorithm that learns."""

    gamma: float = Field(gt=0, le=1, description="discount γ, per environment step")


class OnPolicyLearningSpec(LearningSpec):
    """An algorithm that learns from what its present policy did."""

    MEMORY: ClassVar[Family | None] = "on_policy"

    training_frequency: Annotated[Int, bounds.ROLLOUT] = Field(
        1,
        ge=1,
        description="steps of every environment between training events; with OnPolicyReplay "
        "and OnPolicyCrossEntropy: episodes",
    )


class ReinforceSpec(OnPolicyLearningSpec):
    """Monte-Carlo policy gradient (Williams 1992)."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_POLICIES
    CRITIC: ClassVar[Critic | None] = "none"
    HAS_TARGETS: ClassVar[bool | None] = False

    name: str = Field("Reinforce", description="algorithm")
    center_return: bool = Field(False, description="subtract the mean return of the batch")
    entropy_coef_spec: Coefficient = Field(constant(0.0), description="weight of the entropy")
    policy_loss_coef: float = Field(1.0, ge=0, description="weight of the policy loss")


class SARSASpec(OnPolicyLearningSpec):
    """On-policy temporal difference learning of Q, explored ε-greedily or by Boltzmann."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_Q_VALUES
    CRITIC: ClassVar[Critic | None] = "none"
    HAS_TARGETS: ClassVar[bool | None] = False

    name: str = Field("SARSA", description="algorithm")
    num_step_returns: Annotated[Int, bounds.STEPS_OF_TARGET] = Field(
        1, ge=1, description="n of n-step targets"
    )


class ActorCriticSpec(OnPolicyLearningSpec):
    """Advantage actor-critic, A2C and A3C (arXiv:1602.01783), with GAE or n-step returns; neither:
    plain returns. Advantages are not standardised."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_POLICIES
    CRITIC: ClassVar[Critic | None] = "may_share"
    HAS_TARGETS: ClassVar[bool | None] = False

    name: str = Field("ActorCritic", description="algorithm")
    lam: float | None = Field(None, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)")
    num_step_returns: Annotated[Int | None, bounds.STEPS_OF_TARGET] = Field(
        None, ge=1, description="n of n-step returns"
    )
    entropy_coef_spec: Coefficient = Field(constant(0.0), description="weight of the entropy")
    policy_loss_coef: float = Field(1.0, ge=0, description="weight of the policy loss")
    val_loss_coef: float = Field(1.0, ge=0, description="weight of the value loss")
    normalize_v_targets: bool = Field(
        False,
        description="value targets scaled to mean 0 and standard deviation 1, both of about the "
        "last million",
    )

    @model_validator(mode="after")
    def _one_kind_of_return(self) -> Self:
        if self.lam is not None and self.num_step_returns is not None:
            message = "is another way to estimate the advantage than lam; set one of them to null"
            line = error_line(("num_step_returns",), message, self.num_step_returns)
            raise spec_errors("ActorCriticSpec", [line])
        return self


class PPOSpec(LearningSpec):
    """Proximal policy optimisation (arXiv:1707.06347)."""

    MEMORY: ClassVar[Family | None] = "on_policy"
    MEMORY_MODEL: ClassVar[type[MemorySpec]] = OnPolicyBatchReplaySpec
    PDTYPES: ClassVar[frozenset[str] | None] = OF_POLICIES
    CRITIC: ClassVar[Critic | None] = "may_share"
    HAS_TARGETS: ClassVar[bool | None] = False
    ALIASES: ClassVar[Mapping[str, str]] = {"clip_val_loss": "clip_vloss"}
    LEGACY: ClassVar[Mapping[str, str]] = {
        "training_frequency": "PPO trains every time_horizon steps"
    }

    name: str = Field("PPO", description="algorithm")
    lam: float = Field(0.95, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)")
    clip_eps_spec: NonNegative = Field(
        constant(0.2), description="clipping range ε of the probability ratio"
    )
    entropy_coef_spec: Coefficient = Field(constant(0.0), description="weight c₂ of the entropy")
    val_loss_coef: float = Field(1.0, ge=0, description="weight c₁ of the value loss")
    time_horizon: Annotated[Int, bounds.ROLLOUT] = Field(
        ge=1, description="T, steps of every environment per rollout"
    )
    minibatch_size: Annotated[Int, bounds.BATCH] = Field(
        64, ge=1, description="transitions per gradient step B; a rest of one is added to the last"
    )
    training_epoch: Annotated[Int, bounds.EPOCHS] = Field(
        4, ge=1, description="passes over a rollout K"
    )
    normalize_v_targets: bool = Field(
        False,
        description="value targets scaled to mean 0 and standard deviation 1, both of about the "
        "last million",
    )
    clip_vloss: bool = Field(False, description="clip the change of the value by ε too")
    normalize_advantages: Literal["standardize", "percentile"] | None = Field(
        "standardize",
        description="per minibatch to mean 0 and deviation 1 (true), by the 5–95 percentile range "
        "of returns (arXiv:2301.04104), or not at all (null, false)",
    )
    symlog: bool = Field(
        False, description="values learnt as sign(x) ln(1 + |x|), arXiv:2301.04104"
    )
    target_kl: float | None = Field(
        None, gt=0, description="end the epochs once the approximate KL exceeds it, nats"
    )

    @field_validator("normalize_advantages", mode="before")
    @classmethod
    def _true_is_standardize(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return "standardize" if value else None
        return value


class ReplayLearningSpec(LearningSpec):
    """An algorithm that learns from a replay memory."""

    MEMORY: ClassVar[Family | None] = "replay"

    training_frequency: Annotated[Int, bounds.FRAMES] = Field(
        1, ge=1, description="stored transitions between training events; at most one event a step"
    )
    training_start_step: Annotated[Int, bounds.FRAMES] = Field(
        0, ge=0, description="stored transitions before the first"
    )
    training_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="gradient steps per batch drawn"
    )
    training_batch_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="batches drawn per training event"
    )
    update_to_data: float | None = Field(
        None,
        gt=0,
        le=bounds.STEPS_PER_FRAME,
        description="gradient steps per frame; sets the ratio exactly",
    )


class DQNBaseSpec(ReplayLearningSpec):
    """What the Q-learning algorithms share."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_Q_VALUES
    CRITIC: ClassVar[Critic | None] = "none"
    HAS_TARGETS: ClassVar[bool | None] = True

    num_step_returns: Annotated[Int, bounds.STEPS_OF_TARGET] = Field(
        1, ge=1, description="n of n-step targets"
    )


class VanillaDQNSpec(DQNBaseSpec):
    """Q-learning with a replay memory, without a target network."""

    HAS_TARGETS: ClassVar[bool | None] = False

    name: str = Field("VanillaDQN", description="algorithm")


class DQNSpec(DQNBaseSpec):
    """Q-learning with a target network (Mnih et al. 2015)."""

    name: str = Field("DQN", description="algorithm")


class DoubleDQNSpec(DQNBaseSpec):
    """Double Q-learning (arXiv:1509.06461)."""

    name: str = Field("DoubleDQN", description="algorithm")


class EntropyRegularisedSpec(ReplayLearningSpec):
    """What SoftActorCritic and CrossQ share."""

    PDTYPES: ClassVar[frozenset[str] | None] = OF_SAC
    NEEDS_BOUNDS: ClassVar[bool] = True
    CRITIC: ClassVar[Critic | None] = "apart"

    random_warmup: bool = Field(
        True,
        description="act uniformly at random until training begins, where training_start_step > 0",
    )
    target_entropy: AutoOrNumber = Field(
        "auto", description="entropy that α is tuned for, nats; auto: −A, or by the action count"
    )
    alpha_lr: float | None = Field(
        None, gt=0, description="learning rate of ln α; null: that of the actor"
    )
    fixed_alpha: Constant | None = Field(
        None, description="α, not tuned: a number, or a schedule that anneals it"
    )
    log_alpha_min: float = Field(-20.0, description="least ln α, ≤ 0: α begins at 1")
    log_alpha_max: float = Field(
        2.0, description="greatest ln α; below 0, α begins at e to this power instead of at 1"
    )
    policy_delay: Annotated[Int, bounds.FRAMES] = Field(
        1, ge=1, description="critic updates per actor update"
    )
    entropy_penalty_coef: float = Field(
        0.0,
        ge=0,
        description="weight of the penalty on changes of the entropy, arXiv:2209.10081; refused "
        "for continuous actions",
    )
    symlog: bool = Field(
        False, description="values learnt as sign(x) ln(1 + |x|), arXiv:2301.04104"
    )
    spectral_norm: bool = Field(False, description="spectral normalisation of the critics")

    @field_validator("log_alpha_min")
    @classmethod
    def _a_logarithm(cls, value: float) -> float:
        if value > 0:
            raise spec_error("must be <= 0: it is ln α, and α begins at 1")
        return value

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
        asked = {"target_entropy": "auto", "alpha_lr": None}
        given = {key: getattr(self, key) for key in asked}
        message = "tunes α, and fixed_alpha sets it; remove one of the two"
        wrong = [error_line((k,), message, v) for k, v in given.items() if v != asked[k]]
        if wrong:
            raise spec_errors("EntropyRegularisedSpec", wrong)
        return self


class SoftActorCriticSpec(EntropyRegularisedSpec):
    """Soft actor-critic (arXiv:1812.05905), for continuous and discrete actions."""

    HAS_TARGETS: ClassVar[bool | None] = True

    name: str = Field("SoftActorCritic", description="algorithm")


class CrossQSpec(EntropyRegularisedSpec):
    """CrossQ (arXiv:1902.05605): no target networks, batch-normalised critics."""

    HAS_TARGETS: ClassVar[bool | None] = False

    name: str = Field("CrossQ", description="algorithm")


class SILSpec(ActorCriticSpec):
    """Self-imitation learning on top of ActorCritic (arXiv:1806.05635)."""

    name: str = Field("SIL", description="algorithm")
    sil_policy_loss_coef: float = Field(
        1.0, ge=0, description="weight of the imitation policy loss"
    )
    sil_val_loss_coef: float = Field(1.0, ge=0, description="weight of the imitation value loss")
    training_batch_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="replay batches per training event"
    )
    training_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="gradient steps per replay batch"
    )


class PPOSILSpec(PPOSpec):
    """Self-imitation learning on top of PPO."""

    name: str = Field("PPOSIL", description="algorithm")
    sil_policy_loss_coef: float = Field(
        1.0, ge=0, description="weight of the imitation policy loss"
    )
    sil_val_loss_coef: float = Field(1.0, ge=0, description="weight of the imitation value loss")
    training_batch_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="replay batches per training event"
    )
    training_iter: Annotated[Int, bounds.STEPS_OF_EVENT] = Field(
        1, ge=1, description="gradient steps per replay batch"
    )


IMITATING = frozenset({"SIL", "PPOSIL"})
"""Algorithms that keep a replay memory beside their on-policy one."""
