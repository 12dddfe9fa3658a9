"""Munchausen DQN, IQN and noisy layers in a gradient step."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.net.noise import NoisyLinear
from slm_lab.agent.net.return_distribution import outputs_of
from tests.unit.agent.algorithm.batches import OneBatch, agent_of, transitions

MEMORY = {"name": "Replay", "batch_size": 4, "max_size": 100}


def learner(name, net=None, **keys):
    """A learner whose target network differs from its network."""
    made = agent_of({"name": name, **keys}, MEMORY, **(net or {})).learner
    with torch.no_grad():
        made.network.target_network.target.vector.mul_(-0.7)
    return made


def test_the_munchausen_target_is_that_of_the_paper():
    """Written out: r + α [τ log π(a|s)] + γ Σ π(a'|s') (Q(s', a') − τ log π(a'|s'))."""
    alpha, tau, lowest = 0.9, 0.25, -0.17
    dqn = learner(
        "MunchausenDQN",
        munchausen_alpha=alpha,
        munchausen_tau=tau,
        munchausen_clip=lowest,
    )
    batch = transitions()
    with torch.no_grad():
        q = dqn.network.target_q(batch.obs).double().numpy()
        next_q = dqn.network.target_q(batch.next_obs).double().numpy()
        target = dqn.target(batch, dqn.draw(4)).numpy()
    bounded = []
    for row, action in enumerate(batch.action.tolist()):
        weights = np.exp(q[row] / tau)
        log_policy = tau * np.log(weights[action] / weights.sum())
        bounded.append(log_policy < lowest)
        policy = np.exp(next_q[row] / tau) / np.exp(next_q[row] / tau).sum()
        soft = (policy * (next_q[row] - tau * np.log(policy))).sum()
        expected = batch.reward[row].item() + alpha * max(log_policy, lowest)
        expected += batch.discount[row].item() * soft
        assert target[row] == pytest.approx(expected, rel=1e-5)
    assert set(bounded) == {True, False}


def test_without_its_bonus_and_cold_munchausen_dqn_is_dqn():
    cold = learner("MunchausenDQN", munchausen_alpha=0.0, munchausen_tau=1e-4)
    plain = learner("DQN")
    batch = transitions()
    with torch.no_grad():
        assert_close(
            cold.target(batch, cold.draw(4)),
            plain.target(batch, plain.draw(4)),
            rtol=1e-3,
            atol=1e-3,
        )


@pytest.mark.parametrize("double", [False, True])
def test_a_step_of_iqn_has_levels_of_its_own_for_each_quantile(double):
    """The action is chosen by the fixed levels, its quantiles are at drawn ones."""
    keys = {"num_quantiles": 5, "num_samples": 3, "num_target_samples": 4}
    iqn = learner("IQN", double=double, **keys)
    twin = learner("IQN", double=double, **keys)
    batch = transitions()
    draws = twin.draw(4)
    assert draws.levels.shape == (4, 3)
    assert draws.next_levels.shape == (4, 4)
    assert not draws.levels.unique().numel() < 12
    network = twin.network
    with torch.no_grad():
        chooser = network.q if double else network.target_q
        best = chooser(batch.next_obs).argmax(-1)
        following = network.target_distributions(batch.next_obs, draws.next_levels)
        target = batch.reward[:, None] + batch.discount[:, None] * outputs_of(
            following, best
        )
        outputs = network.distributions(batch.obs, draws.levels)
        predicted = outputs_of(outputs, batch.action)
        error = target[:, None, :] - predicted[:, :, None]
        huber = torch.where(error.abs() <= 1, error**2 / 2, error.abs() - 0.5)
        weight = (draws.levels[:, :, None] - (error < 0).float()).abs()
        losses = (weight * huber).mean(-1).sum(-1)
    source = OneBatch(batch)
    report = iqn.learn(source, 0)
    assert report["loss"] == pytest.approx((losses * batch.weight).mean().item())
    assert_close(source.error, losses)
    assert not torch.equal(iqn.draw(4).levels, draws.levels)


NOISY = {"noisy": True, "hid_layers": [8, 8]}


def quiet(made):
    """The learner with σ = 0, so that noise changes nothing."""
    with torch.no_grad():
        for net in (made.network.module, made.network.target):
            for part in net.modules():
                if isinstance(part, NoisyLinear):
                    part.sigma_weight.zero_()
                    part.sigma_bias.zero_()
    return made


@pytest.mark.parametrize("name", ["VanillaDQN", "DQN", "DoubleDQN", "C51", "IQN"])
def test_a_step_without_sigma_is_that_of_the_means(name):
    batch = transitions()
    noisy = quiet(learner(name, NOISY)).learn(OneBatch(batch), 0)
    plain = learner(name, {"hid_layers": [8, 8]}).learn(OneBatch(batch), 0)
    if name != "IQN":  # its levels are other ones
        assert noisy["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    else:
        assert noisy["loss"] != plain["loss"]


@pytest.mark.parametrize("name", ["DQN", "DoubleDQN"])
def test_a_step_has_three_independent_noises(name):
    """Of Q(s, a), of the choice of the next action, and of the target: ξ, ξ″ and ξ′."""
    made = learner(name, NOISY)
    twin = learner(name, NOISY)
    batch = transitions()
    draws = twin.draw(4)
    network = twin.network
    with torch.no_grad():
        with network.noise.applied(draws.noise):
            q = network.q(batch.obs).gather(-1, batch.action[:, None])[:, 0]
        with network.noise.applied(draws.next_noise):
            best = network.q(batch.next_obs).argmax(-1)
        with network.target_noise.applied(draws.target_noise):
            target_q = network.target_q(batch.next_obs)
    next_value = target_q.amax(-1)
    if name == "DoubleDQN":
        next_value = target_q.gather(-1, best[:, None])[:, 0]
    error = batch.reward + batch.discount * next_value - q
    source = OneBatch(batch)
    made.learn(source, 0)
    assert_close(source.error, error)
    assert not torch.equal(made.draw(4).noise, draws.noise)


def test_every_environment_acts_by_noise_of_its_own_and_greedy_acts_have_none():
    agent = agent_of({"name": "DQN"}, MEMORY, num_envs=2, noisy_sigma=5.0, **NOISY)
    obs = np.tile(np.array([[0.1, -0.2, 0.3, 0.4]], np.float32), (512, 1))
    first = agent.act(obs, 0).action
    second = agent.act(obs, 0).action
    assert 0.1 < first.mean() < 0.9
    assert not np.array_equal(first, second)
    greedy = agent.actor.act_greedily(obs)
    assert len(set(greedy.tolist())) == 1
    assert np.array_equal(agent.actor.act_greedily(obs), greedy)
