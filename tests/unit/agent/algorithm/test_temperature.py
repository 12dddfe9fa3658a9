"""Where the temperature of soft actor-critic begins, and what bounds it."""

import math

import pytest
import torch

from tests.support import soft
from tests.unit.agent.algorithm.batches import learner_of


@pytest.mark.parametrize(
    ("greatest", "first"), [(2.0, 1.0), (0.0, 1.0), (-1.0, math.exp(-1.0)), (-3.5, math.exp(-3.5))]
)
def test_the_temperature_begins_at_one_or_at_its_greatest_value(greatest, first):
    learner = learner_of(soft("SoftActorCritic", agent__algorithm__log_alpha_max=greatest))
    assert learner.temperature.at(0) == pytest.approx(first)


@pytest.mark.parametrize(
    "optim",
    [
        {"name": "Adam", "weight_decay": 0.1},
        {"name": "AdamW"},
        {"name": "SGD", "weight_decay": 0.1},
        {"name": "Rprop"},
    ],
)
def test_a_temperature_at_its_target_stays_there_whatever_the_weights_decay(optim):
    keys = {"agent__net__optim_spec": {**optim, "lr": 0.1}, "agent__algorithm__log_alpha_min": -9.0}
    temperature = learner_of(soft("SoftActorCritic", **keys)).temperature
    temperature.optimizer.flat.vector.fill_(-5.0)
    target = torch.full((4,), 0.98 * math.log(2))  # of two actions
    for _ in range(100):
        temperature.update(target)
    assert temperature.at(0) == pytest.approx(math.exp(-5.0))
