"""What workers of a simulation share."""

import pytest

from slm_lab.parallel.virtual.simulation import Simulation
from slm_lab.spec.schema.meta import MetaSpec


def meta(mode, workers, costs):
    simulate = {"costs": costs, "contention": 0.1}
    return MetaSpec.model_validate(
        {"distributed": mode, "max_session": workers, "simulate": simulate}
    )


@pytest.mark.parametrize(
    ("mode", "workers"),
    [(False, 4), ("shared", 4), ("synced", 4), ("all_reduce", 4), ("actor_learner", 3)],
)
def test_each_further_worker_slows_all_others(mode, workers):
    """Four processes: a learner is one, beside its actors."""
    simulation = Simulation.of(meta(mode, workers, {"acting": [1.0]}), seed=0)
    assert simulation.slowdown == pytest.approx(1.3)


def test_there_is_none_before_its_costs_are_known():
    assert Simulation.of(meta("synced", 4, None), seed=0) is None
