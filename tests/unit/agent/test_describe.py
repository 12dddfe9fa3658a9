"""What the error of a loss that is not finite says about the environment's values."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from slm_lab.agent.batch import describe_on_error
from slm_lab.core.errors import NonFiniteLossError


@dataclass
class Steps:
    """A batch."""

    obs: Tensor
    reward: Tensor


def message(obs, reward):
    batch = Steps(torch.tensor(obs), torch.tensor(reward))
    with pytest.raises(NonFiniteLossError) as caught, describe_on_error(batch):
        raise NonFiniteLossError("the loss is inf")
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("obs", "reward", "cause"),
    [
        ([0.0, 1.0], [1.0, 0.0], ""),
        (
            [0.0],
            [1.0, -1e30],
            ": the environment gave rewards of up to 1e+30; scale them by "
            "env.reward_scale or env.normalize_reward",
        ),
        (
            [0.0],
            [1.0, float("inf")],  # also what 3e39 is in float32
            ": the environment gave rewards that are not finite, or beyond float32: "
            "scale those by env.reward_scale or env.normalize_reward",
        ),
        (
            [0.0],
            [float("nan"), 1e30],
            ": the environment gave rewards that are not finite",
        ),
        (
            [float("inf")],
            [1.0],
            ": the environment gave observations that are not finite",
        ),
        (
            [-3e20],
            [1.0],
            ": the environment gave observations of up to 3e+20; scale them by "
            "env.normalize_obs",
        ),
        ([1e30], [float("nan")], ": the environment gave rewards that are not finite"),
        ([], [1.0], ""),
    ],
)
def test_the_error_names_the_values_that_are_not_finite_or_large_and_the_key(
    obs, reward, cause
):
    assert message(obs, reward) == f"the loss is inf{cause}"
