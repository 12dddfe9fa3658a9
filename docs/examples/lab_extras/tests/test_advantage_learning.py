"""Advantage learning computes what its paper says, and keeps the contract of the
lab."""

import torch
from lab_extras.advantage_learning import advantage_learning_target
from torch.testing import assert_close

from slm_lab.testing import AlgorithmCase, AlgorithmContract

AGENT = {
    "algorithm": {
        "name": "AdvantageLearning",
        "action_policy": "epsilon_greedy",
        "explore_var_spec": {
            "name": "linear_decay",
            "start_val": 1.0,
            "end_val": 0.1,
            "start_step": 0,
            "end_step": 200,
        },
        "gamma": 0.9,
        "alpha": 0.5,
        "training_frequency": 4,
        "training_start_step": 16,
    },
    "memory": {"name": "Replay", "batch_size": 8, "max_size": 200},
    "net": {
        "type": "MLPNet",
        "hid_layers": [8],
        "hid_layers_activation": "relu",
        "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
        "update_type": "polyak",
        "update_frequency": 1,
        "polyak_coef": 0.1,
    },
}
SPEC = {"agent": AGENT, "env": {"name": "CartPole-v1", "num_envs": 4}}


def test_the_target_is_that_of_the_paper() -> None:
    """In the first state action 0 is 2 worse than the best, in the second it is the
    best, in the third it is 1 worse."""
    q = torch.tensor([[1.0, 3.0], [2.0, 0.5], [-1.0, 0.0]])
    backup = torch.tensor([4.0, 5.0, 6.0])
    target = advantage_learning_target(backup, q, torch.tensor([0, 0, 0]), alpha=0.5)
    assert_close(target, torch.tensor([3.0, 5.0, 5.5]))


def test_the_best_action_keeps_its_target_and_without_alpha_all_do() -> None:
    q = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
    backup = q.mean(-1)
    best = q.argmax(-1)
    assert_close(advantage_learning_target(backup, q, best, alpha=0.9), backup)
    worst = q.argmin(-1)
    assert_close(advantage_learning_target(backup, q, worst, alpha=0.0), backup)


class TestAdvantageLearning(AlgorithmContract):
    cases = {"discrete": AlgorithmCase(SPEC)}
