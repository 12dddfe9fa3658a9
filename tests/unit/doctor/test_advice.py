"""Every advice of the doctor is tried, on specs of every algorithm and mode."""

import json
import re

import numpy as np
import pytest

from slm_lab.core.errors import SpecError
from slm_lab.core.recorded import value_at
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
OPTION = re.compile(r"\b(lower|raise|set) ((?:agent|env|meta)\.[a-z_.]+)( \"?\w+\"?)?")
GIVEN = {
    "agent.net.clip_grad_val": 0.5,
    "agent.net.lr_scheduler_spec": {"name": "LinearToZero"},
    "env.max_t": 200,
    "env.reward_scale": 0.5,
    "meta.log_frequency": 100,
}
"""Values for keys that are to be set, where the advice does not name one."""


def shipped(name):
    """The file with a spec of this name, and the spec."""
    for file in shipped_files():
        if file.suffix == ".json" and name in json.loads(file.read_text()):
            return file, load_spec(str(file), name, warn=False)
    raise LookupError(name)


def is_accepted(file, spec, advice):
    """Whether a run of the spec accepts each change that the advice names; how many
    there are."""
    options = OPTION.findall(advice)
    for verb, named, word in options:
        key = named.rstrip(".")
        old = value_at(spec.to_json(), key)
        if verb == "set":
            new = json.loads(word) if word in (" true", " false") else GIVEN.get(key)
            new = (
                word.strip(' "')
                if new is None and word.strip() not in ("to", "a")
                else new
            )
            if key.endswith("lr_scheduler_spec.frame"):
                new = spec.env.max_frame
            if key.endswith("lr_scheduler_spec"):
                new = {**new, "frame": spec.env.max_frame}
        else:
            new = (
                old / 2
                if verb == "lower"
                else min(old * 2, 0.999)
                if 0.5 < old < 1
                else old * 2
            )
            new = int(new) if isinstance(old, int) else new
        try:
            load_spec(str(file), spec.name, (f"{key}={json.dumps(new)}",), warn=False)
        except SpecError as error:
            raise AssertionError(
                f"{verb} {key} from {old} to {new}: {error}"
            ) from error
    return len(options)


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_accepts_every_change_that_the_doctor_advises(name):
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
            tried += is_accepted(file, spec, finding.advice)
            assert finding.advice
    assert tried > 10


def test_the_advice_on_dead_units_is_accepted():
    file, spec = shipped("ppo_cartpole")
    (finding,) = dead_relus([0.9])
    assert is_accepted(file, spec, finding.advice) == 2
