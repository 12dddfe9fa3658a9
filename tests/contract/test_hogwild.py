"""Under Hogwild! a replica on another device follows the global network."""

import pytest
import torch

from slm_lab.parallel.hogwild import strategy as hogwild
from slm_lab.parallel.hogwild.strategy import HogwildStrategy
from slm_lab.testing.sessions import assert_same_run, run_session, whole_run
from tests.contract.table import FIRST, cases


@pytest.mark.parametrize("row", [case for case in cases() if case.id in FIRST])
def test_a_refreshed_replica_equals_the_global_network(
    row, tmp_path_factory, tmp_path, monkeypatch
):
    """A second vector on the CPU stands for one on a GPU."""
    spec = row.with_shared_optimizers().spec
    whole = whole_run(tmp_path_factory, spec)
    monkeypatch.setattr(hogwild, "is_on_cpu", lambda optimizer: False)
    session = run_session(spec, tmp_path, hogwild="shared")
    for name, optimizer in session.agent.learner.train_state.optimizers.items():
        shared = session.strategy._state.networks[name]
        assert optimizer.flat.vector.data_ptr() != shared.vector.data_ptr()
        assert torch.equal(optimizer.flat.vector, shared.vector)
    assert_same_run(session, whole, without=HogwildStrategy.columns)
