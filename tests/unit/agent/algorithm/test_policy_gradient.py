"""ActorCritic and Reinforce against numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support import actor_critic, reinforce
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import learner_of

GAMMA = 0.99


def rollout():
    value = torch.tensor([[1.0, 2.0], [0.5, 1.5], [1.0, 0.0]])
    return replace(batches.rollout(), value=value)


def returns_by_hand(kind: str, cut: float, last0: float, last1: float) -> np.ndarray:
    """(3, 2) targets; `cut`, `last0`, `last1` are V of the three bootstrap states."""
    value = rollout().value.double().numpy()
    if kind == "plain":
        return np.array(
            [
                [1.0 + GAMMA * 2.0, 0.0 + GAMMA * cut],
                [2.0, 1.0 + GAMMA * (1.0 + GAMMA * last1)],
                [0.5 + GAMMA * last0, 1.0 + GAMMA * last1],
            ]
        )
    if kind == "one_step":
        return np.array(
            [
                [1.0 + GAMMA * 0.5, 0.0 + GAMMA * cut],
                [2.0, 1.0 + GAMMA * 0.0],
                [0.5 + GAMMA * last0, 1.0 + GAMMA * last1],
            ]
        )
    delta = returns_by_hand("one_step", cut, last0, last1) - value
    decay = GAMMA * 0.95
    advantage = delta.copy()
    advantage[0, 0] += decay * delta[1, 0]
    advantage[1, 1] += decay * delta[2, 1]
    return advantage + value


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("gae", {"lam": 0.95}),
        ("one_step", {"lam": None, "num_step_returns": 1}),
        ("plain", {"lam": None}),
    ],
)
def test_actor_critic_reports_the_losses_of_each_kind_of_return(kind, keys):
    changes = {f"agent__algorithm__{key}": value for key, value in keys.items()}
    learner = learner_of(actor_critic(**changes))
    batch = rollout()
    with torch.no_grad():
        obs = batch.obs.flatten(0, 1)
        logits, value = (t.double().numpy() for t in learner.network.forward(obs))
        bootstrap = learner.network.value(batch.bootstrap_obs).double().tolist()
    returns = returns_by_hand(kind, *bootstrap)
    advantage = (returns - batch.value.double().numpy()).flatten()
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = log_p[range(6), batch.action.flatten()]
    policy_loss = -(chosen * advantage).mean()
    value_loss = ((value - returns.flatten()) ** 2).mean()
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()

    report = learner.learn(batch, frame=1000)

    assert report["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-6)
    assert report["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert report["entropy"] == pytest.approx(entropy, rel=1e-4)
    assert report["entropy_coef"] == pytest.approx(0.005)
    total = policy_loss - 0.005 * entropy + 0.5 * value_loss
    assert report["loss"] == pytest.approx(total, rel=1e-4)
    assert (learner.opt_step, learner.version) == (1, 1)


@pytest.mark.parametrize("center_return", [False, True])
def test_reinforce_reports_the_loss_by_hand(center_return):
    learner = learner_of(reinforce(agent__algorithm__center_return=center_return))
    batch = rollout()
    with torch.no_grad():
        logits = learner.network.policy(batch.obs.flatten(0, 1)).double().numpy()
    returns = np.array(
        [[1.0 + GAMMA * 2.0, 0.0], [2.0, 1.0 + GAMMA * 1.0], [0.5, 1.0]]
    ).flatten()
    if center_return:
        returns -= returns.mean()
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    policy_loss = -(log_p[range(6), batch.action.flatten()] * returns).mean()
    entropy = -(np.exp(log_p) * log_p).sum(-1).mean()

    report = learner.learn(batch, frame=0)

    assert report["policy_loss"] == pytest.approx(policy_loss, rel=1e-4, abs=1e-6)
    assert report["loss"] == pytest.approx(
        policy_loss - 0.01 * entropy, rel=1e-4, abs=1e-6
    )
