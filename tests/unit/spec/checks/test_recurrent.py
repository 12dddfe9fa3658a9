"""What a recurrent net can be combined with."""

import pytest

from tests.support import (
    actor_critic,
    ppo,
    pqn,
    q_learning,
    reinforce,
    sarsa,
    soft,
    vmpo,
)
from tests.unit.spec.problems import assert_problem
from tests.unit.spec.spec_data import changed

MLP = ppo()["agent"]["net"]
KEYS = {
    "type": "RecurrentNet",
    "fc_hid_layers": [8],
    "rnn_hidden_size": 8,
    "seq_len": 8,
}


def recurrent(raw):
    net = {
        k: v for k, v in raw["agent"]["net"].items() if k not in ("type", "hid_layers")
    }
    return changed(raw, {"net": {**net, **KEYS}})


def with_recurrent_part(raw):
    encoder = {k: v for k, v in KEYS.items() if k != "burn_in"}
    return changed(raw, {"net.parts": {"obs": encoder}})


PPO = recurrent(ppo())
DQN = recurrent(q_learning("DQN", agent__algorithm__training_start_step=64))
NET = PPO["agent"]["net"]
SINGLE = (
    "agent.net.type = …: … learns from single steps … PPO, VMPO, PQN, "
    "ActorCritic, Reinforce"
)
NEEDED = ">= seq_len × num_envs = … = 32, one sequence"
BY_PRIORITY = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}

ONE_PART = with_recurrent_part(ppo())
REPLAYED_PART = with_recurrent_part(
    q_learning("DQN", agent__algorithm__training_start_step=64)
)
PLACE = "agent.net.parts.obs"
MEMORY_OF_PARTS = [
    *((raw, {}, None) for raw in (ONE_PART, REPLAYED_PART)),
    *(
        (with_recurrent_part(raw), {}, f"{PLACE}.type = …: … learns from single steps")
        for raw in (
            sarsa(),
            soft("SoftActorCritic"),
            soft("CrossQ"),
            q_learning("IQN"),
        )
    ),
    (
        REPLAYED_PART,
        {"memory.storage": "device"},
        "agent.memory.storage = 'device': RecurrentNet prepares",
    ),
    (
        REPLAYED_PART,
        {"memory.batch_size": 20},
        f"agent.memory.batch_size … of {PLACE}.seq_len (8)",
    ),
    (REPLAYED_PART, {"memory.max_size": 24}, f"agent.memory.max_size = 24: …{NEEDED}"),
    (REPLAYED_PART, {"memory": BY_PRIORITY}, "agent.memory.name … use Replay"),
    (REPLAYED_PART, {"net.parts.obs.burn_in": 2}, None),
    (
        REPLAYED_PART,
        {"net.parts.obs.burn_in": 8},
        f"{PLACE}.burn_in = 8: must be < seq_len (8)",
    ),
    (
        ONE_PART,
        {"net.parts.obs.burn_in": 2},
        f"{PLACE}.burn_in = 2: … used once",
    ),
    (ONE_PART, {"critic_net": ONE_PART["agent"]["net"]}, None),
    (ONE_PART, {"critic_net": NET}, None),
    (ONE_PART, {"critic_net": MLP}, "agent.critic_net.parts: … or neither is"),
    (ONE_PART, {"net.critic_parts": {}}, "agent.net.critic_parts: … or neither is"),
    (
        ONE_PART,
        {"net.critic_parts": {"obs": {**KEYS, "seq_len": 4}}},
        "agent.net.critic_parts = 4: must equal that of the actor, 8",
    ),
]

ROWS = [
    *MEMORY_OF_PARTS,
    *(
        (raw, {}, None)
        for raw in (
            PPO,
            DQN,
            recurrent(pqn(agent__net__layer_norm=False)),
            recurrent(vmpo()),
            recurrent(actor_critic()),
            recurrent(reinforce()),
        )
    ),
    *(
        (recurrent(raw), {}, SINGLE)
        for raw in (sarsa(), soft("SoftActorCritic"), soft("CrossQ"))
    ),
    # Replay gives it whole sequences.
    (
        DQN,
        {"memory.storage": "device"},
        "agent.memory.storage = 'device': RecurrentNet prepares",
    ),
    (DQN, {"memory.use_cer": True}, "agent.memory.use_cer = true: adds single steps"),
    (
        DQN,
        {"memory.batch_size": 20},
        "agent.memory.batch_size … of agent.net.seq_len (8)",
    ),
    (DQN, {"memory.max_size": 24}, f"agent.memory.max_size = 24: …{NEEDED}"),
    (
        DQN,
        {"algorithm.training_start_step": 16},
        f"agent.algorithm.training_start_step = 16: …{NEEDED}",
    ),
    (
        DQN,
        {"algorithm.num_step_returns": 3},
        "agent.algorithm.num_step_returns = 3: must be 1 with a RecurrentNet",
    ),
    (DQN, {"memory": BY_PRIORITY}, "agent.memory.name … use Replay"),
    # Actor and critic have a memory both, or neither.
    (PPO, {"critic_net": NET}, None),
    (PPO, {"critic_net": MLP}, "agent.critic_net.type = 'MLPNet': … or neither is"),
    (
        ppo(),
        {"critic_net": NET},
        "agent.critic_net.type = 'RecurrentNet': … or neither is",
    ),
    *(
        (
            base,
            {f"net.{role}_{key}": 2},
            f"agent.net.{role}_{key} = 2: … set {key} instead",
        )
        for base in (PPO, DQN)
        for role in ("actor", "critic")
        for key in ("seq_len", "burn_in")
    ),
    (
        DQN,
        {"net.burn_in": 3, "net.actor_seq_len": 2},
        "agent.net.actor_seq_len = 2: … set seq_len instead",
    ),
    # An agent cannot read backwards, nor learn from no step.
    (
        PPO,
        {"net.bidirectional": True},
        "agent.net.bidirectional = true: … later observations",
    ),
    (DQN, {"net.burn_in": 8}, "agent.net.burn_in = 8: must be < seq_len (8)"),
    (PPO, {"net.burn_in": 2}, "agent.net.burn_in = 2: … used once"),
]


@pytest.mark.parametrize(("base", "changes", "problem"), ROWS)
def test_a_recurrent_net_fits_algorithm_memory_and_critic(base, changes, problem):
    assert_problem(changed(base, changes), problem)
