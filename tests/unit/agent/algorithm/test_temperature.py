"""Where the temperature of soft actor-critic begins, and what bounds it."""

import math

import pytest

from tests.support import soft
from tests.unit.agent.algorithm.test_gradients import learner_of


@pytest.mark.parametrize(
    ("greatest", "first"), [(2.0, 1.0), (0.0, 1.0), (-1.0, math.exp(-1.0)), (-3.5, math.exp(-3.5))]
)
def test_the_temperature_begins_at_one_or_at_its_greatest_value(greatest, first):
    learner = learner_of(soft("SoftActorCritic", agent__algorithm__log_alpha_max=greatest))
    assert learner.temperature.at(0) == pytest.approx(first)
