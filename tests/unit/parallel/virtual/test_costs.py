"""Costs of a simulation: what is measured, and what is drawn."""

import pytest

from slm_lab.parallel.virtual.costs import Draws, MeasuredPace, block_of, costs_of
from slm_lab.session.pace import network_kind


def pace_of(*stretches):
    pace = MeasuredPace()
    for kind, seconds, times in stretches:
        for _ in range(times):
            pace.add(kind, seconds)
    return pace


def test_a_spec_has_the_costs_of_each_network_and_gives_them_back():
    costs = {"acting": (1.0,), "gradient.critic": (2.0, 3.0), "gradient.actor": (4.0,)}
    block = block_of(costs)
    assert block.gradient == {"critic": (2.0, 3.0), "actor": (4.0,)}
    assert costs_of(block) == costs


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (network_kind("gradient", "critic"), 2.0),
        (network_kind("gradient", "actor"), 0.0),
        (network_kind("step", "actor"), 3.0),
        ("memory", 0.0),
    ],
)
def test_a_network_without_costs_of_its_own_has_those_of_all_networks(kind, seconds):
    draws = Draws({"gradient.critic": [2.0], "step": [3.0]}, seed=0)
    assert draws.draw(kind) == seconds


def test_what_was_done_before_learning_does_not_count():
    warm_up = ("acting", 1.0, 100)
    pace = pace_of(warm_up, ("gradient.critic", 5.0, 40), ("acting", 7.0, 40))
    assert set(pace.costs["acting"]) == {7.0}


def test_it_counts_if_too_little_was_done_later():
    """A long rollout, after which the measurement ends while the agent learns."""
    pace = pace_of(("acting", 1.0, 100), ("update", 5.0, 4), ("acting", 7.0, 5))
    assert min(pace.costs["acting"]) < 1.1
    assert max(pace.costs["acting"]) > 6
    assert pace.costs["update"] == [5.0, 5.0, 5.0]
