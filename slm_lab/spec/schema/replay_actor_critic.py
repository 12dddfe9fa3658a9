"""Algorithms with an actor and critics that learn from replay: soft actor-critic, REDQ,
TQC, CrossQ and TD3."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.algorithm import (
    SYMLOG,
    ActionPolicy,
    NSteps,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.block import error_line, raise_errors
from slm_lab.spec.schema.fields import AutoOrNumber, Count, Int
from slm_lab.spec.schema.rules import Limit, Needed, NoEffect, Refused
from slm_lab.spec.schema.schedule import MAY_CHANGE, NonNegative, constant

OF_SAC = frozenset({"default", "Normal", "Categorical", "GumbelSoftmax"})
OF_A_TUNED_ALPHA = NoEffect(
    "bounds a tuned α, but fixed_alpha is set", when="algorithm.fixed_alpha"
)


class ReplayActorCriticSpec(ReplayLearningSpec):
    """The common keys of algorithms with an actor and critics that learn from
    replay."""

    LEARNS_SEQUENCES = False
    NEEDS_BOUNDS = True
    CRITIC = "apart"
    DRAWS_MASKS = True

    DELAYS_TARGETS: ClassVar[bool] = False
    """Whether target networks follow only with the actor."""
    CLIMBED: ClassVar[Literal["smallest", "mean", "first"]] = "smallest"
    """Which of the critics' values of continuous actions the actor maximises."""

    random_warmup: bool = Field(
        True,
        description="act uniformly at random until training begins, if "
        "training_start_step > 0",
    )
    num_step_returns: NSteps = 1
    num_critics: Annotated[Count, bounds.CRITICS] = Field(
        2, description="critics; the smallest of their values counts"
    )
    policy_delay: Annotated[Count, bounds.FRAMES] = Field(
        1, description="critic updates per actor update"
    )
    symlog: bool = Field(False, description=SYMLOG)
    spectral_norm: bool = Field(
        False, description="spectral normalisation of the critics"
    )

    @property
    @override
    def steps_of_return(self) -> int:
        return self.num_step_returns

    @property
    def target_critics(self) -> int | None:
        """How many critics, drawn at random, an update bootstraps from; None: all."""
        return None


class EntropyRegularisedSpec(ReplayActorCriticSpec):
    """The common keys of SoftActorCritic, REDQ, TQC and CrossQ."""

    PDTYPES = OF_SAC

    target_entropy: Annotated[AutoOrNumber, MAY_CHANGE] = Field(
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
    fixed_alpha: NonNegative | None = Field(
        None, description="fixed α, not tuned: a number, or a schedule"
    )
    log_alpha_min: Annotated[float, bounds.LOG_ALPHA, OF_A_TUNED_ALPHA] = Field(
        -20.0, description="minimum ln α"
    )
    log_alpha_max: Annotated[
        float, Limit(sign=">", of="log_alpha_min"), OF_A_TUNED_ALPHA
    ] = Field(
        2.0,
        description="maximum ln α; below 0, α begins at its exponential instead of at "
        "1",
    )
    entropy_penalty_coef: Annotated[float, MAY_CHANGE] = Field(
        0.0,
        ge=0,
        description="weight of the penalty on changes of the entropy, "
        "arXiv:2209.10081; only for discrete actions",
    )

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

    @property
    @override
    def entropy_penalty(self) -> float:
        return self.entropy_penalty_coef

    @property
    @override
    def greatest_entropy_penalty(self) -> float:
        return self.greatest("entropy_penalty_coef")

    @override
    def with_larger_rates(self, times: float) -> Self:
        if self.alpha_lr is None:
            return self
        return self.model_copy(update={"alpha_lr": self.alpha_lr * times})


class SoftActorCriticSpec(EntropyRegularisedSpec):
    """Soft actor-critic (arXiv:1812.05905), for continuous and discrete actions."""

    HAS_TARGETS = True


class REDQSpec(EntropyRegularisedSpec):
    """REDQ (arXiv:2101.05982): many critics, of which each update bootstraps from a
    few, and many updates per frame."""

    HAS_TARGETS = True
    CLIMBED = "mean"

    num_critics: Annotated[Count, bounds.CRITICS] = Field(10, description="critics N")
    num_target_critics: Annotated[Count, Limit(sign="<=", of="num_critics")] = Field(
        2,
        description="critics M, drawn anew for each update, whose smallest target "
        "counts",
    )
    policy_delay: Annotated[Count, bounds.FRAMES] = Field(
        20, description="critic updates per actor update"
    )

    @property
    @override
    def target_critics(self) -> int | None:
        return self.num_target_critics


class TQCSpec(EntropyRegularisedSpec):
    """Truncated quantile critics (arXiv:2005.04269): each critic predicts quantiles of
    the return, and targets leave out the largest of all. For continuous actions."""

    PDTYPES = frozenset({"default", "Normal"})
    HAS_TARGETS = True
    HAS_VALUE_LOSS = False
    CLIMBED = "mean"

    num_critics: Annotated[Count, bounds.CRITICS] = Field(5, description="critics N")
    num_quantiles: Annotated[Count, bounds.WIDTH] = Field(
        25, description="quantiles of the return that each critic predicts"
    )
    quantiles_dropped: Annotated[Int, Limit(sign="<", of="num_quantiles")] = Field(
        2,
        ge=0,
        description="quantiles per critic that targets leave out: of all critics' "
        "together the largest num_critics × quantiles_dropped",
    )
    symlog: Annotated[
        bool,
        Refused(
            "is for critics that predict a mean, and TQC predicts quantiles; remove it"
        ),
    ] = Field(False, description="must be false")

    @property
    @override
    def returns(self) -> tuple[str, Mapping[str, float]]:
        return "quantile", {"size": self.num_quantiles, "kappa": 1.0}


class CrossQSpec(EntropyRegularisedSpec):
    """CrossQ (arXiv:1902.05605): no target networks, batch-normalised critics."""

    ALWAYS_NORMALISES = True
    HAS_TARGETS = False
    DRAWS_MASKS = False


class TD3Spec(ReplayActorCriticSpec):
    """Twin delayed deep deterministic policy gradient (arXiv:1802.09477), for
    continuous actions. With `num_critics` 1, `policy_delay` 1 and `target_noise` 0 it
    is DDPG (arXiv:1509.02971)."""

    IS_DETERMINISTIC = True
    CLIMBED = "first"
    PDTYPES = frozenset({"default", "Deterministic"})
    HAS_TARGETS = True
    DELAYS_TARGETS = True

    action_policy: ActionPolicy = Field(
        "gaussian",
        description="how actions are chosen; gaussian: with normal noise of standard "
        "deviation explore_var_spec, in [−1, 1]; default: without noise",
    )
    explore_var_spec: Annotated[
        NonNegative | None,
        Needed("{own.action_policy} needs it", when="algorithm.explores"),
        NoEffect(
            'action_policy "{own.action_policy}" has no exploration variable',
            unless="algorithm.explores",
        ),
    ] = Field(constant(0.1), description="standard deviation of the noise on actions")
    policy_delay: Annotated[Count, bounds.FRAMES] = Field(
        2, description="critic updates per update of actor and target networks"
    )
    target_noise: Annotated[float, MAY_CHANGE] = Field(
        0.2,
        ge=0,
        description="standard deviation of the noise on the target actor's actions",
    )
    target_noise_clip: Annotated[
        float,
        MAY_CHANGE,
        NoEffect("target_noise is 0", unless="algorithm.smooths_targets"),
    ] = Field(0.5, gt=0, description="largest noise on the target actor's actions")

    @property
    def smooths_targets(self) -> bool:
        """Whether the target actor's actions have noise at any time."""
        return self.greatest("target_noise") > 0
