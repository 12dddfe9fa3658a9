"""Every remedy of the doctor is tried, on specs of every algorithm and mode."""

import json

import numpy as np
import pytest

from slm_lab.core.errors import SpecError
from slm_lab.doctor import learning
from slm_lab.doctor.history import SessionHistory
from slm_lab.doctor.measured import dead_relus
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.spec.load import load_spec
from slm_lab.spec.read import shipped_files
from tests.unit.doctor.test_symptoms import HEALTHY, ILL, R

SPECS = (
    *(
        "ppo_cartpole",
        "ppo_lunar",
        "a2c_gae_acrobot",
        "reinforce_cartpole",
        "sarsa_cartpole",
    ),
    *("dqn_cartpole", "ddqn_per_lunar", "sac_pendulum", "crossq_lunar", "sil_cartpole"),
    *("ppo_sil_cartpole", "a3c_gae_cartpole", "dppo_cartpole", "impala_cartpole"),
    *("async_sac_lunar", "async_ppo_cartpole", "a3c_data_parallel_pong"),
)


def shipped(name):
    """The file with a spec of this name, and the spec."""
    for file in shipped_files():
        if file.suffix == ".json" and name in json.loads(file.read_text()):
            return file, load_spec(str(file), name, warn=False)
    raise LookupError(name)


def check_accepted(file, spec, finding):
    """A run of the spec accepts each remedy, whose key the advice names."""
    for remedy in finding.remedies:
        try:
            load_spec(str(file), spec.name, remedy.settings, warn=False)
        except SpecError as error:
            raise AssertionError(f"{remedy.settings}: {error}") from error
        path, _ = remedy.changes[0]
        assert path in finding.advice


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_accepts_every_remedy_of_the_doctor(name):
    file, spec = shipped(name)
    tried = 0
    for symptom in learning.SYMPTOMS:
        columns = {**{c: np.full(R, np.nan) for c in BASE_COLUMNS}, **HEALTHY}
        columns |= ILL[symptom.__name__][0]
        if symptom is learning.waiting:
            columns |= {
                "actor_wait_share": np.full(R, 0.7),
                "sync_share": np.full(R, 0.7),
            }
        rows = Rows(tuple(columns), np.stack(list(columns.values())))
        for finding in symptom(SessionHistory(rows, spec.to_json(), 1.0)):
            check_accepted(file, spec, finding)
            tried += len(finding.remedies)
            assert finding.advice
    assert tried > 10


def test_the_advice_on_dead_units_is_accepted():
    file, spec = shipped("ppo_cartpole")
    (finding,) = dead_relus([0.9], spec.to_json())
    check_accepted(file, spec, finding)
    assert [remedy.settings[0] for remedy in finding.remedies] == [
        "agent.net.optim_spec.lr=0.0001",
        "agent.net.optim_spec.lr=1e-05",
        'agent.net.hid_layers_activation="tanh"',
    ]
