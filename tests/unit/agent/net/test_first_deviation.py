"""A σ that is free of the observation, and distributions that have none."""

import logging

import numpy as np
import pytest
import torch
from gymnasium import spaces

from slm_lab.agent.distribution.family import distribution_family
from slm_lab.agent.from_spec.networks import build_policy_value
from slm_lab.agent.net.value_transform import ValueTransform
from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.spec.load import parse_spec
from tests.support import ppo

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize(
    ("space", "pdtype", "warns"),
    [
        (BOX, "default", False),
        (BOX, "Beta", True),
        (spaces.Discrete(3), "default", True),
    ],
)
def test_a_first_deviation_that_changes_nothing_is_reported(
    space, pdtype, warns, caplog
):
    spec = parse_spec("s", ppo(agent__net__log_std_init=-1.0)).agent
    family = distribution_family(space, pdtype)
    transform = ValueTransform(False, normalize=False)
    caplog.clear()  # the warnings about the spec alone
    with caplog.at_level(logging.WARNING):
        build_policy_value(
            spec=spec,
            family=family,
            layout=ObservationLayout((4,), FLOAT32),
            transform=transform,
            generator=torch.Generator().manual_seed(0),
        )
    line = (
        "agent.net.log_std_init = -1 changes nothing: the action distribution has no σ"
    )
    assert caplog.messages == [line] * warns
