"""Dropout is for the critics of learners that draw its masks."""

import pytest

from tests.support import ppo, q_learning, soft
from tests.unit.spec.problems import assert_problem

OF_CRITIC = {"agent__net__critic_dropout": 0.1}
OF_BOTH = {"agent__net__dropout": 0.1}
HYDRA = {"type": "HydraMLPNet", "hid_layers": [[8], [6], [5]]}
IMAGES = {"type": "ResNet", "update_type": "polyak", "polyak_coef": 0.01}
OWN = {"type": "MLPNet", "hid_layers": [8], "dropout": 0.1}
NO_MASKS = "agent.net.{} = 0.1: {} draws no masks of dropout; …; remove it"
OF_ACTOR = "agent.net.{} = 0.1: the actor of {} has no dropout; set critic_dropout, …"
TAKEN = (
    "agent.net.critic_dropout = 0.1: is for the fully connected layers of MLPNet, "
    "ConvNet and ResNet; remove it"
)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        *(
            (soft(name, **OF_CRITIC), None)
            for name in ("SoftActorCritic", "REDQ", "TQC", "TD3")
        ),
        (soft("REDQ", agent__critic_net=OWN), None),
        (soft("REDQ", agent__net={**IMAGES, "critic_dropout": 0.1}), None),
        (soft("REDQ", agent__net={**HYDRA, "critic_dropout": 0.1}), TAKEN),
        (soft("REDQ", **OF_BOTH), OF_ACTOR.format("dropout", "REDQ")),
        (
            soft("TD3", agent__net__actor_dropout=0.1),
            OF_ACTOR.format("actor_dropout", "TD3"),
        ),
        (soft("CrossQ", **OF_CRITIC), NO_MASKS.format("critic_dropout", "CrossQ")),
        (ppo(**OF_CRITIC), NO_MASKS.format("critic_dropout", "PPO")),
        (q_learning("DQN", **OF_BOTH), NO_MASKS.format("dropout", "DQN")),
        (soft("REDQ", agent__net__critic_dropout=1.0), "… must be < 1"),
        (
            soft("REDQ", agent__algorithm__critic_dropout=0.1),
            "agent.algorithm.critic_dropout = 0.1: unknown key; use agent.net.critic_…",
        ),
    ],
)
def test_dropout_is_refused_where_nothing_draws_its_masks(raw, problem):
    assert_problem(raw, problem)
