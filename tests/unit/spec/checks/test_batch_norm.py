"""Batch normalisation in a spec whose batches hold one sample."""

import pytest

from slm_lab.spec.parse import parse
from tests.support import actor_critic, ppo, q_learning, sarsa, soft
from tests.unit.spec.spec_data import ARC

BATCH_NORMALISED = {
    "batch_norm": lambda net: net | {"batch_norm": True},
    "renorm": lambda net: net | {"batch_norm": "renorm"},
    "of the critic": lambda net: net | {"critic_batch_norm": True},
    "in an arc": lambda net: (
        {key: net[key] for key in ("optim_spec",)}
        | {"type": "TorchArcNet", "arc": with_layer("LazyBatchNorm1d")}
    ),
}
FIT = {
    "PPO": ppo(agent__algorithm__minibatch_size=1),
    "ActorCritic": actor_critic(
        agent__memory={"name": "OnPolicyBatchReplay"},
        agent__algorithm__training_frequency=1,
        env__num_envs=1,
    ),
    "SARSA": sarsa(
        agent__memory={"name": "OnPolicyBatchReplay"},
        agent__algorithm__training_frequency=1,
        env__num_envs=1,
    ),
    "DQN": q_learning("DQN", agent__memory__batch_size=1),
    "SoftActorCritic": soft("SoftActorCritic", agent__memory__batch_size=1),
}
PATHS = {
    "PPO": "agent.algorithm.minibatch_size",
    "ActorCritic": "agent.algorithm.training_frequency",
    "SARSA": "agent.algorithm.training_frequency",
    "DQN": "agent.memory.batch_size",
    "SoftActorCritic": "agent.memory.batch_size",
}


def with_layer(name):
    first, *rest = ARC["modules"]["body"]["Sequential"]
    return {**ARC, "modules": {"body": {"Sequential": [first, {name: None}, *rest]}}}


def paths(raw):
    return [problem.path for problem in parse("s", raw).problems]


@pytest.mark.parametrize("name", FIT)
@pytest.mark.parametrize("how", BATCH_NORMALISED)
def test_batches_of_one_sample_are_refused_only_with_batch_normalisation(name, how):
    raw = FIT[name]
    assert paths(raw) == []
    net = BATCH_NORMALISED[how](raw["agent"]["net"])
    assert paths({**raw, "agent": {**raw["agent"], "net": net}}) == [PATHS[name]]


def test_more_than_one_sample_is_enough():
    raw = actor_critic(agent__algorithm__training_frequency=1, env__num_envs=2)
    raw["agent"]["net"]["batch_norm"] = True
    assert paths(raw) == []
