"""Numbers of every algorithm, memory and net may be schedules."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from slm_lab.agent.algorithm.algorithm import Learner
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.core.errors import LabError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.testing.sessions import difference, rows
from tests.contract.parts_table import decay
from tests.contract.table import (
    A2C,
    BY_PRIORITY,
    DQN,
    PPO,
    PPOSIL,
    PQN,
    REINFORCE,
    SAC,
    SARSA,
    SIL,
    TD3,
    TWO_ACTIONS,
    VMPO,
    keys_of_net,
    past,
)
from tests.support import run_session

POLYAK = keys_of_net(update_type="polyak", polyak_coef=0.05)
IMITATION = past("OnPolicyBatchReplay")
SPECS = {
    "PPO": PPO(target_kl=1e-4, lam=0.9, minibatch_size=8),
    "RPO": PPO(TWO_ACTIONS, rpo_alpha=0.5, bounded=False),
    "Reinforce": REINFORCE(policy_loss_coef=0.7),
    "ActorCritic": A2C(lam=0.9),
    "SARSA": SARSA(),
    "PQN": PQN(),
    "VMPO": VMPO(TWO_ACTIONS, bounded=False),
    "DQN": DQN(POLYAK, BY_PRIORITY, num_step_returns=3),
    "SoftActorCritic": SAC(
        POLYAK, target_entropy=0.3, entropy_penalty_coef=0.2, num_step_returns=2
    ),
    "TD3": TD3(TWO_ACTIONS, POLYAK, target_noise_clip=0.3),
    "SIL": SIL(IMITATION, training_frequency=16),
    "PPOSIL": PPOSIL(IMITATION, target_kl=1e-5),
}
"""Specs in which numbers that may change have an effect; a number of 0 has none."""


def changing_numbers() -> Iterator[Any]:
    """Each spec with each of its numbers that may change, as pytest parameters."""
    for name, row in SPECS.items():
        agent = row.spec.agent
        parts = (agent.algorithm, agent.memory, agent.net)
        for block, keys in zip(("algorithm", "memory", "net"), parts, strict=True):
            for key in keys.changing_keys():
                number = dict(keys)[key]
                if not number:
                    continue
                if name not in ("DQN", "SoftActorCritic", "TD3") and block == "net":
                    continue  # without target networks
                path = ("agent", block, key)
                yield pytest.param(row, path, number, id=f"{name}-{key}")


def test_every_number_that_may_change_is_tried():
    tried = {path.values[1][-1] for path in changing_numbers()}
    models = (
        *ALGORITHMS.models(AlgorithmSpec).values(),
        *MEMORIES.models(MemorySpec).values(),
        *NETS.models(NetSpec).values(),
    )
    assert tried == {key for model in models for key in model.changing_keys()}


def run_with(row, folder, path, value):
    """A Session of the row with this value at a path."""
    data = copy.deepcopy(row.data)
    *blocks, key = path
    block = reduce(getitem, blocks, data)
    block[key] = value
    return run_session(replace(row, data=data).spec, folder)


@pytest.mark.parametrize(("row", "path", "number"), [*changing_numbers()])
def test_a_number_trains_as_its_constant_schedule_and_otherwise_than_a_changing_one(
    row, path, number, tmp_path
):
    plain = run_with(row, tmp_path / "plain", path, number)
    constant = run_with(row, tmp_path / "constant", path, decay(number, number))
    assert difference(plain, constant) == ""
    changing = run_with(row, tmp_path / "changing", path, decay(number, number / 4))
    assert difference(plain, changing) != ""
    assert len(rows(changing)) == len(rows(plain))


def test_a_learner_that_cannot_change_its_numbers_refuses_a_schedule():
    class Fixed(Learner):
        metric_names = ()

        def learn(self, batch, frame):
            return {}

    with pytest.raises(LabError, match=r"agent\.algorithm\.gamma: Fixed cannot change"):
        Fixed(TrainState({})).take_numbers({"gamma": 0.9})
