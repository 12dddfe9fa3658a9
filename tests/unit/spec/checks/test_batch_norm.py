"""Batch normalisation in a spec whose batches hold one sample."""

import pytest

from tests.support import actor_critic, ppo, q_learning, sarsa, soft
from tests.unit.spec.problems import assert_problem
from tests.unit.spec.spec_data import ARC, changed

FIRST, *REST = ARC["modules"]["body"]["Sequential"]
NORMALISED = {
    **ARC,
    "modules": {"body": {"Sequential": [FIRST, {"LazyBatchNorm1d": None}, *REST]}},
}
GLOBAL = {"name": "GlobalAdam", "lr": 1e-3}
HOW = {
    "batch_norm": {"net.batch_norm": True},
    "renorm": {"net.batch_norm": "renorm"},
    "of the critic": {"net.critic_batch_norm": True},
    "in an arc": {
        "net": {"type": "TorchArcNet", "arc": NORMALISED, "optim_spec": GLOBAL}
    },
}
ONE_STEP = {"agent__algorithm__training_frequency": 1, "env__num_envs": 1}
ONE_SAMPLE = [
    (ppo(agent__algorithm__minibatch_size=1), "agent.algorithm.minibatch_size"),
    (actor_critic(**ONE_STEP), "agent.algorithm.training_frequency"),
    (sarsa(**ONE_STEP), "agent.algorithm.training_frequency"),
    (q_learning("DQN", agent__memory__batch_size=1), "agent.memory.batch_size"),
    (soft("SoftActorCritic", agent__memory__batch_size=1), "agent.memory.batch_size"),
]


@pytest.mark.parametrize(("raw", "path"), ONE_SAMPLE)
@pytest.mark.parametrize("how", HOW)
def test_batches_of_one_sample_are_refused_only_with_batch_normalisation(
    raw, path, how
):
    assert_problem(raw, None)
    assert_problem(changed(raw, HOW[how]), f"{path} = 1: ")


def test_more_than_one_sample_is_enough():
    raw = actor_critic(agent__algorithm__training_frequency=1, env__num_envs=2)
    assert_problem(changed(raw, net__batch_norm=True), None)
