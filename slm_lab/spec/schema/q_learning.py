"""Algorithms that learn action values of discrete actions."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.algorithm import (
    MinibatchLearningSpec,
    NSteps,
    OnPolicyLearningSpec,
    ReplayLearningSpec,
)
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.rules import Limit
from slm_lab.spec.schema.schedule import MAY_CHANGE

OF_Q_VALUES = frozenset({"default", "Argmax", "Categorical"})


class SARSASpec(OnPolicyLearningSpec):
    """On-policy temporal-difference learning of Q, with ε-greedy or Boltzmann
    exploration."""

    ACTS_ON_Q = True
    LEARNS_SEQUENCES = False
    PDTYPES = OF_Q_VALUES
    CRITIC = "none"
    HAS_TARGETS = False

    num_step_returns: NSteps = 1


class PQNSpec(MinibatchLearningSpec):
    """Parallel Q-learning (arXiv:2407.04811): targets by λ-returns, without a replay
    memory and without a target network. Set layer_norm of its net."""

    ACTS_ON_Q = True
    PDTYPES = OF_Q_VALUES
    CRITIC = "none"
    HAS_TARGETS = False

    lam: Annotated[float, MAY_CHANGE] = Field(
        0.65, ge=0, le=1, description="λ of the λ-returns"
    )


class DQNBaseSpec(ReplayLearningSpec):
    """The common keys of the Q-learning algorithms."""

    ACTS_ON_Q = True
    PDTYPES = OF_Q_VALUES
    CRITIC = "none"
    HAS_TARGETS = True
    HAS_NOISE = True

    num_step_returns: Annotated[
        NSteps,
        Limit(
            sign="=",
            of=1,
            text=" with a RecurrentNet: its state is known after every single step",
            when="net.is_recurrent",
        ),
    ] = 1

    @property
    @override
    def steps_of_return(self) -> int:
        return self.num_step_returns


class VanillaDQNSpec(DQNBaseSpec):
    """Q-learning with a replay memory, without a target network."""

    HAS_TARGETS = False


class DQNSpec(DQNBaseSpec):
    """Q-learning with a target network (Mnih et al. 2015)."""


class DoubleDQNSpec(DQNBaseSpec):
    """Double Q-learning (arXiv:1509.06461)."""


class MunchausenDQNSpec(DQNBaseSpec):
    """DQN with a bonus for what its policy is sure of (arXiv:2007.14430). Its policy
    π = softmax(Q / τ) makes the target; it acts as DQN does."""

    LEARNS_SEQUENCES = False

    num_step_returns: Annotated[
        NSteps,
        Limit(sign="=", of=1, text=": the bonus of later steps would be left out"),
    ] = 1
    munchausen_alpha: float = Field(
        0.9, ge=0, le=1, description="α: the weight of the bonus; 0: soft DQN"
    )
    munchausen_tau: float = Field(
        0.03, gt=0, description="τ: the temperature of the policy, in units of return"
    )
    munchausen_clip: float = Field(
        -1.0, lt=0, description="l_0: the smallest τ log π(a|s) that counts"
    )


class DistributionalSpec(DQNBaseSpec):
    """The common keys of C51, QRDQN and IQN, which learn the distribution of the
    return."""

    LEARNS_SEQUENCES = False
    HAS_VALUE_LOSS = False

    @property
    def num_levels(self) -> tuple[int, int] | None:
        """The numbers of quantiles whose probabilities are drawn for each transition,
        in the prediction and in its target. None if the outputs are fixed."""
        return None

    double: bool = Field(
        False,
        description="the online network chooses the next action, as in DoubleDQN",
    )


class C51Spec(DistributionalSpec):
    """Categorical Q-learning (arXiv:1707.06887): probabilities of fixed returns."""

    num_atoms: Annotated[int, bounds.WIDTH] = Field(
        51, ge=2, description="returns whose probabilities are learned"
    )
    v_min: float = Field(-10.0, description="the smallest of these returns")
    v_max: Annotated[float, Limit(sign=">", of="v_min")] = Field(
        10.0, description="the largest of these returns; returns beyond are cut"
    )

    @property
    @override
    def returns(self) -> tuple[str, Mapping[str, float]]:
        arguments = {"size": self.num_atoms, "low": self.v_min, "high": self.v_max}
        return "categorical", arguments


class QRDQNSpec(DistributionalSpec):
    """Quantile-regression Q-learning (arXiv:1710.10044): returns of fixed
    probabilities."""

    num_quantiles: Annotated[Count, bounds.WIDTH] = Field(
        200, description="quantiles of the return"
    )
    kappa: float = Field(
        1.0,
        ge=0,
        description="κ of the Huber loss of a quantile: quadratic up to here, then "
        "linear",
    )

    @property
    @override
    def returns(self) -> tuple[str, Mapping[str, float]]:
        return "quantile", {"size": self.num_quantiles, "kappa": self.kappa}


class IQNSpec(DistributionalSpec):
    """Implicit quantile networks (arXiv:1806.06923): the net puts out the quantile of
    any probability τ that it is asked for. In training τ is drawn. Actions are chosen
    by the mean of quantiles at fixed τ."""

    num_quantiles: Annotated[Count, bounds.WIDTH] = Field(
        32, description="K: quantiles whose mean is Q, at τ = (i + ½) / K"
    )
    num_samples: Annotated[Count, bounds.WIDTH] = Field(
        64, description="N: quantiles of a prediction, at τ drawn for each transition"
    )
    num_target_samples: Annotated[Count, bounds.WIDTH] = Field(
        64, description="N′: quantiles of its target, at τ of their own"
    )
    embedding_size: Annotated[Count, bounds.WIDTH] = Field(
        64, description="n: cosines of τ that the net sees"
    )
    kappa: float = Field(
        1.0,
        ge=0,
        description="κ of the Huber loss of a quantile: quadratic up to here, then "
        "linear",
    )

    @property
    @override
    def returns(self) -> tuple[str, Mapping[str, float]]:
        return "quantile", {"size": self.num_quantiles, "kappa": self.kappa}

    @property
    @override
    def num_cosines(self) -> int:
        return self.embedding_size

    @property
    @override
    def num_levels(self) -> tuple[int, int]:
        return self.num_samples, self.num_target_samples
