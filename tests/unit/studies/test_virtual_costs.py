"""Whose work is measured for a training in virtual time."""

import pytest

from slm_lab.spec.load import parse_spec
from slm_lab.studies.virtual_costs import one_of_many
from tests.unit.spec.spec_data import PPO, changed


@pytest.mark.parametrize(("workers", "horizon"), [(1, 64), (4, 16)])
def test_a_rank_is_measured_with_its_share_of_the_rollout(workers, horizon):
    raw = changed(
        PPO,
        agent__algorithm__time_horizon=64,
        meta__distributed="all_reduce",
        meta__max_session=workers,
        meta__max_run=1,
    )
    alone = one_of_many(parse_spec("s", raw))
    assert alone.agent.algorithm.time_horizon == horizon
    assert alone.meta.max_session == 1
