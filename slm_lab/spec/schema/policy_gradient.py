"""Policy gradients on data of the current policy: REINFORCE, actor-critic, PPO, V-MPO,
and self-imitation on top of them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.algorithm import (
    OF_POLICIES,
    SHORT_EVENTS,
    SYMLOG,
    MinibatchLearningSpec,
    OnPolicyLearningSpec,
)
from slm_lab.spec.schema.block import key_error
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.rules import NoEffect, Refused
from slm_lab.spec.schema.schedule import (
    MAY_CHANGE,
    ChangingBlock,
    Coefficient,
    NonNegative,
    constant,
)

NORMALIZED_TARGETS = (
    "value targets scaled to mean 0 and standard deviation 1, estimated from about "
    "the last million; a deviation below 1e-4 is not scaled up further"
)


class ReinforceSpec(OnPolicyLearningSpec):
    """Monte-Carlo policy gradient (Williams 1992)."""

    PDTYPES = OF_POLICIES
    CRITIC = "none"
    HAS_TARGETS = False
    HAS_VALUE_LOSS = False

    center_return: bool = Field(
        False, description="subtract the mean return of the batch"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight of the entropy"
    )
    policy_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the policy loss"
    )


class ActorCriticSpec(OnPolicyLearningSpec):
    """Advantage actor-critic, A2C and A3C (arXiv:1602.01783), with GAE or n-step
    returns; without both, plain returns. Advantages are not standardised."""

    HAS_ADVANTAGES = True
    PDTYPES = OF_POLICIES
    CRITIC = "may_share"
    HAS_TARGETS = False
    KEEPS_STEPS_ON_DEVICE = True

    lam: Annotated[float | None, MAY_CHANGE] = Field(
        None, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)"
    )
    num_step_returns: Annotated[Count | None, bounds.STEPS_OF_TARGET] = Field(
        None, description="n of n-step returns"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight of the entropy"
    )
    policy_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the policy loss"
    )
    val_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the value loss"
    )
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


class PPOSpec(MinibatchLearningSpec):
    """Proximal policy optimisation (arXiv:1707.06347)."""

    HAS_ADVANTAGES = True
    PDTYPES = OF_POLICIES
    CRITIC = "may_share"
    HAS_TARGETS = False
    KEEPS_STEPS_ON_DEVICE = True
    ALIASES: ClassVar[Mapping[str, str]] = {"clip_val_loss": "clip_vloss"}
    LEGACY: ClassVar[Mapping[str, str]] = {
        "training_frequency": "PPO trains every time_horizon steps"
    }

    lam: Annotated[float, MAY_CHANGE] = Field(
        0.95, ge=0, le=1, description="λ of GAE (arXiv:1506.02438)"
    )
    clip_eps_spec: NonNegative = Field(
        constant(0.2), description="clipping range ε of the probability ratio"
    )
    entropy_coef_spec: Coefficient = Field(
        constant(0.0), description="weight c₂ of the entropy"
    )
    val_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight c₁ of the value loss"
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
    target_kl: Annotated[float | None, MAY_CHANGE] = Field(
        None,
        gt=0,
        description="ends the epochs before a step at an approximate KL beyond 1.5 "
        "times it, nats",
    )
    rpo_alpha: Annotated[
        float,
        MAY_CHANGE,
        Refused(
            "adds noise to the mean of Normal actions, and those are "
            "{own.action_pdtype}; set action_pdtype to Normal, or remove rpo_alpha",
            unless="has_normal_actions",
        ),
    ] = Field(
        0.0,
        ge=0,
        description="α of robust policy optimisation (arXiv:2212.07536): each gradient "
        "step adds uniform noise in ± α to the mean of Normal actions; bounded actions "
        "are in [−1, 1]",
    )

    @property
    def has_normal_actions(self) -> bool:
        """Whether continuous actions are normally distributed, each by itself."""
        return self.action_pdtype in ("default", "Normal")

    @property
    @override
    def mean_noise(self) -> float:
        return self.greatest("rpo_alpha")

    @field_validator("normalize_advantages", mode="before")
    @classmethod
    def _standardize_if_true(cls, value: Any) -> Any:
        if isinstance(value, bool):
            if value:
                return "standardize"
            return None
        return value


class VMPOSpec(MinibatchLearningSpec):
    """V-MPO, on-policy maximum a posteriori policy optimisation (arXiv:1909.12238). It
    raises the likelihood of the better half of the actions, weighted by their
    advantages. A bound limits the change of the policy."""

    HAS_ADVANTAGES = True
    PDTYPES = OF_POLICIES
    CRITIC = "may_share"
    HAS_TARGETS = False

    lam: Annotated[float, MAY_CHANGE] = Field(
        1.0,
        ge=0,
        le=1,
        description="λ of GAE (arXiv:1506.02438); 1 as published: returns to the end "
        "of the rollout",
    )
    eps_eta: Annotated[float, MAY_CHANGE] = Field(
        0.1,
        gt=0,
        description="ε_η: how far the weights of actions may be from equal ones, nats",
    )
    eps_alpha: Annotated[float, MAY_CHANGE] = Field(
        0.01,
        gt=0,
        description="ε_α: bound on KL(π_old ‖ π), nats; of Normal actions ε_αμ, the "
        "bound of a change of the mean",
    )
    eps_alpha_cov: Annotated[
        float,
        MAY_CHANGE,
        NoEffect("{own.action_pdtype} has no covariance", unless="has_sigma"),
    ] = Field(
        1e-4,
        gt=0,
        description="ε_αΣ: bound on KL(π_old ‖ π) by a change of the covariance of "
        "Normal actions, nats",
    )
    eta_init: float = Field(
        1.0, ge=1e-8, le=1e8, description="initial temperature η of the advantages"
    )
    alpha_init: float = Field(
        1.0, ge=1e-8, le=1e8, description="initial multiplier α of each bound"
    )
    dual_lr: float | None = Field(
        None, gt=0, description="learning rate of ln η and ln α; null: the actor's"
    )
    val_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the value loss"
    )
    normalize_v_targets: bool = Field(False, description=NORMALIZED_TARGETS)

    @override
    def with_larger_rates(self, times: float) -> Self:
        if self.dual_lr is None:
            return self
        return self.model_copy(update={"dual_lr": self.dual_lr * times})


class ImitatingSpec(ChangingBlock):
    """The keys of self-imitation learning."""

    LEARNS_SEQUENCES: ClassVar[bool] = False

    @classmethod
    @override
    def changing_keys(cls) -> list[str]:
        """All but γ: a memory keeps the returns of past episodes."""
        return [key for key in super().changing_keys() if key != "gamma"]

    sil_policy_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the imitation policy loss"
    )
    sil_val_loss_coef: Annotated[float, MAY_CHANGE] = Field(
        1.0, ge=0, description="weight of the imitation value loss"
    )
    training_batch_iter: Annotated[Count, bounds.STEPS_OF_EVENT] = Field(
        1, description="replay batches per training event"
    )
    training_iter: Annotated[Count, bounds.STEPS_OF_EVENT, SHORT_EVENTS] = Field(
        1, description="gradient steps per replay batch"
    )

    @property
    def event_steps(self) -> int:
        """Gradient steps of a training event on the replay memory."""
        return self.training_iter * self.training_batch_iter

    @property
    def has_long_events(self) -> bool:
        """Whether a training event has more gradient steps than a run can wait for."""
        return self.event_steps > bounds.STEPS_OF_EVENT.number


class SILSpec(ImitatingSpec, ActorCriticSpec):
    """Self-imitation learning on top of ActorCritic (arXiv:1806.05635)."""

    TWIN = "ActorCritic"


class PPOSILSpec(ImitatingSpec, PPOSpec):
    """Self-imitation learning on top of PPO."""

    TWIN = "PPO"
