"""V-MPO against numbers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.algorithm.correction import VTrace
from tests.support import vmpo
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import GAMMA, rollout

ETA = 0.5
ALPHA = 3.0
DUAL_LR = 0.1
SMALL = {
    "agent__algorithm__gamma": GAMMA,
    "agent__algorithm__lam": 1.0,
    "agent__algorithm__eta_init": ETA,
    "agent__algorithm__alpha_init": ALPHA,
    "agent__algorithm__dual_lr": DUAL_LR,
    "agent__algorithm__eps_eta": 0.2,
    "agent__algorithm__training_epoch": 1,
    "agent__net__clip_grad_val": None,
    "agent__net__optim_spec": {"name": "SGD", "lr": 0.5},
}


def learner_of(**changes):
    return batches.learner_of(vmpo(**(SMALL | changes)))


def known_rollout():
    return replace(rollout(), value=torch.full((3, 2), 0.5))


def advantages_by_hand(learner):
    """Returns to the end of the rollout less the values recorded, (6,): the first
    environment ends by itself after two steps, the second is cut off after one."""
    beyond = learner.network.value(rollout().bootstrap_obs).numpy()
    returns = np.array(
        [
            [1.0 + GAMMA * 2.0, 0.0 + GAMMA * beyond[0]],
            [2.0, 1.0 + GAMMA * (1.0 + GAMMA * beyond[2])],
            [0.5 + GAMMA * beyond[1], 1.0 + GAMMA * beyond[2]],
        ]
    )
    return (returns - 0.5).reshape(6)


def test_the_first_step_is_that_of_the_losses_of_the_paper():
    """π is π_old then, so that the divergence is zero and α falls."""
    learner = learner_of()
    duals = learner.flats["duals"].vector
    advantage = advantages_by_hand(learner)
    best = np.sort(np.argsort(advantage)[3:])
    exponent = np.exp(advantage[best] / ETA)
    psi = exponent / exponent.sum()
    batch = known_rollout()
    with torch.no_grad():
        params, value = learner.network.forward(batch.obs.flatten(0, 1))
    taken = batch.action.flatten().unsqueeze(-1)
    log_prob = params.log_softmax(-1).gather(-1, taken)[:, 0].double().numpy()
    policy_loss = -(psi * log_prob[best]).sum()
    value_loss = ((value.numpy() - advantage - 0.5) ** 2).mean()

    report = learner.learn(batch, 0)

    assert report["policy_loss"] == pytest.approx(policy_loss, rel=1e-4)
    assert report["value_loss"] == pytest.approx(value_loss, rel=1e-4)
    assert report["loss"] == pytest.approx(policy_loss + 0.5 * value_loss, rel=1e-4)
    assert report["eta"] == pytest.approx(ETA)
    assert report["kl"] == pytest.approx(0.0, abs=1e-6)
    assert report["kl_alpha"] == pytest.approx(ALPHA)
    # by η: ε_η + ln mean exp(Â/η) − Σ ψ Â/η; by ln η that times η
    slope = 0.2 + math.log(exponent.mean()) - (psi * advantage[best]).sum() / ETA
    log_eta = math.log(ETA) - DUAL_LR * ETA * slope
    log_alpha = math.log(ALPHA) - DUAL_LR * ALPHA * 0.01
    assert_close(
        duals, torch.tensor([log_eta, log_alpha]).float(), rtol=1e-4, atol=1e-5
    )
    assert (learner.opt_step, learner.version) == (1, 1)


def test_a_worse_action_is_neither_encouraged_nor_discouraged():
    """The policy of one net moves by actions of the better half alone: changing the
    others changes nothing."""
    vectors = []
    for flipped in (False, True):
        learner = learner_of()
        worst = np.argsort(advantages_by_hand(learner))[:3]
        batch = known_rollout()
        action = batch.action.flatten().clone()
        if flipped:
            action[worst] = 1 - action[worst]
        learner.learn(replace(batch, action=action.view(3, 2)), 0)
        vectors.append(learner.flats["actor"].vector)
    assert torch.equal(*vectors)


def change_of_the_policy(bound):
    """The mean KL(π_old ‖ π) of training events, from the fifth on."""
    learner = learner_of(
        agent__algorithm__eps_alpha=bound,
        agent__algorithm__training_epoch=40,
        agent__net__optim_spec={"name": "GlobalAdam", "lr": 3e-3},
    )
    reports = [learner.learn(known_rollout(), 0) for _ in range(15)]
    return np.mean([report["kl"] for report in reports[5:]])


def test_the_policy_stays_within_its_bound():
    """Without one that matters it goes many times as far."""
    assert change_of_the_policy(2e-4) < 3e-4
    assert change_of_the_policy(1.0) > 2e-3


def test_of_an_older_policy_an_action_counts_by_its_ratio():
    """ρ bounded at 1: an action that the actor took twice as often counts half."""
    agent, _ = batches.build(vmpo(**SMALL), correction=VTrace())
    learner = agent.learner
    batch = known_rollout()
    with torch.no_grad():
        params, _ = learner.network.forward(batch.obs.flatten(0, 1))
    log_p = params.log_softmax(-1).view(3, 2, 2)
    now = log_p.gather(-1, batch.action.unsqueeze(-1))[..., 0]
    ratio = torch.tensor([[0.0, 0.0], [math.log(2.0), 0.0], [0.0, -1.0]])
    samples, _ = learner._prepare(replace(batch, log_prob=now + ratio))
    expected = torch.tensor([0.0, 0.0, -math.log(2.0), 0.0, 0.0, 0.0])
    assert_close(samples.log_rho, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({}, [ETA, ALPHA]),
        ({"env__name": "Pendulum-v1"}, [ETA, ALPHA, ALPHA]),
    ],
)
def test_dual_variables_are_a_vector_of_their_own(changes, start):
    learner = learner_of(**changes)
    assert_close(learner.flats["duals"].vector.exp(), torch.tensor(start))
    assert list(learner.flats) == ["actor", "critic", "duals"]


@pytest.mark.parametrize(
    ("env", "warns"), [("CartPole-v1", True), ("Pendulum-v1", False)]
)
def test_a_bound_without_a_covariance_is_named(env, warns, caplog):
    caplog.clear()
    learner_of(env__name=env, agent__algorithm__eps_alpha_cov=0.01)
    line = (
        "agent.algorithm.eps_alpha_cov = 0.01 changes nothing: the action distribution "
        "has no covariance"
    )
    assert (line in caplog.messages) == warns
