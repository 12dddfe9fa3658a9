"""SARSA and the DQN family against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.algorithm.algorithm import Learner
from slm_lab.agent.net.dueling import dueling_q
from slm_lab.agent.net.target_network import TargetNetwork
from slm_lab.agent.optim.flat import FlatParameters
from tests.support import q_learning
from tests.unit.agent.algorithm.batches import (
    GAMMA,
    OneBatch,
    agent_of,
    dqn,
    learner_of,
    rollout,
    transitions,
)


def shifted_target(network):
    """Online and target networks that differ, so that the test sees which one is
    used."""
    with torch.no_grad():
        network.target_network.target.vector.mul_(-0.7)


def next_values(name, network, next_obs):
    q = network.q(next_obs).numpy()
    target_q = network.target_q(next_obs).numpy()
    return {
        "VanillaDQN": q.max(-1),
        "DQN": target_q.max(-1),
        "DoubleDQN": target_q[np.arange(4), q.argmax(-1)],
    }[name]


@pytest.mark.parametrize("name", ["VanillaDQN", "DQN", "DoubleDQN"])
def test_the_loss_is_the_weighted_squared_error_of_the_target(name):
    network = dqn(name).learner.network
    batch = transitions()
    learner = dqn(name).learner
    shifted_target(network)
    shifted_target(learner.network)
    with torch.no_grad():
        q = network.q(batch.obs).numpy()[np.arange(4), batch.action.numpy()]
        target = batch.reward.numpy() + batch.discount.numpy() * next_values(
            name, network, batch.next_obs
        )
    source = OneBatch(batch)
    report = learner.learn(source, 0)
    expected = (batch.weight.numpy() * (q - target) ** 2).mean()
    assert report["loss"] == pytest.approx(expected, rel=1e-5)
    assert report["q_value"] == pytest.approx(q.mean(), rel=1e-5)
    np.testing.assert_allclose(source.error.numpy(), target - q, rtol=1e-4, atol=1e-6)
    assert torch.equal(source.index, batch.index)
    assert report["update_to_data"] == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("keys", "stored", "moves"),
    [
        # Frames of the Session after each event; whether the target network is updated
        # in it.
        (
            {"update_type": "replace", "update_frequency": 10},
            [4, 9, 12, 19, 20],
            [0, 0, 1, 0, 1],
        ),
        ({"update_type": "replace"}, [4, 8], [1, 1]),
        ({"update_type": "polyak", "polyak_coef": 0.5}, [4, 8], [1, 1]),
        (
            {"update_type": "polyak", "polyak_coef": 0.5, "update_frequency": 8},
            [4, 8, 12, 16],
            [0, 1, 0, 1],
        ),
    ],
)
def test_the_target_network_is_updated_when_the_spec_says(keys, stored, moves):
    learner = dqn("DQN", **keys).learner
    online = learner.flats["q"]
    target = learner.network.target_network.target
    for frame, moved in zip(stored, moves, strict=True):
        source = OneBatch(transitions())
        source.num_stored = frame
        before = target.vector.clone()
        learner.learn(source, 0)
        tau = 1.0
        if keys["update_type"] != "replace":
            tau = keys["polyak_coef"]
        after = before
        if moved:
            after = before.lerp(online.vector, tau)
        assert_close(target.vector, after)


def test_polyak_averaging_updates_after_every_gradient_step(monkeypatch):
    keys = {"update_type": "polyak", "polyak_coef": 0.25}
    learner = dqn("DQN", **keys).learner
    source = OneBatch(transitions())
    source.num_batches = 3
    online = learner.flats["q"].vector
    target = learner.network.target_network.target.vector
    expected = target.clone()
    step = learner.network.step

    def stepping(loss):
        report = step(loss)
        expected.lerp_(online, 0.25)
        return report

    monkeypatch.setattr(learner.network, "step", stepping)
    learner.learn(source, 0)
    assert_close(target, expected)


def test_dueling_values_have_the_value_for_their_mean():
    value = torch.tensor([[2.0]])
    advantage = torch.tensor([[1.0, 3.0, 5.0]])
    assert dueling_q(value, advantage).tolist() == [[0.0, 2.0, 4.0]]


def sarsa_and_its_values(**algorithm):
    """A SARSA learner, Q(s, a) of every step of `rollout()`, and Q(s', a') beyond it.
    By default actions are greedy, so those beyond the rollout are known too."""
    learner = agent_of(
        {"name": "SARSA", "training_frequency": 3, **algorithm},
        {"name": "OnPolicyBatchReplay"},
    ).learner
    batch = rollout()
    with torch.no_grad():
        q_all = learner.network.q(batch.obs.flatten(0, 1)).view(3, 2, 2).numpy()
        beyond = learner.network.q(batch.bootstrap_obs).numpy().max(-1)
    return (
        learner,
        np.take_along_axis(q_all, batch.action.numpy()[..., None], -1)[..., 0],
        beyond,
    )


def test_sarsa_sums_as_many_rewards_as_the_spec_says():
    """Two of them here, or one where an episode or the rollout ends."""
    learner, q, (cut, last0, last1) = sarsa_and_its_values(num_step_returns=2)
    target = np.array(
        [
            [1.0 + GAMMA * 2.0, 0.0 + GAMMA * cut],
            [2.0, 1.0 + GAMMA * 1.0 + GAMMA**2 * last1],
            [0.5 + GAMMA * last0, 1.0 + GAMMA * last1],
        ]
    )
    report = learner.learn(rollout(), 0)
    assert report["loss"] == pytest.approx(((q - target) ** 2).mean(), rel=1e-5)


class TwoTargets(Learner):
    """A learner whose online network two others follow."""

    metric_names = ()

    def learn(self, batch, frame):
        return {}


def followers(seed):
    """A learner with two networks that follow one at different speeds."""
    network = learner_of(q_learning("DQN")).network
    flat = network.train_state.flats["q"]
    names = {"slow": 0.1, "quick": 0.5}
    targets = {}
    for name, tau in names.items():
        target = FlatParameters(learner_of(q_learning("DQN")).network.module)
        targets[name] = TargetNetwork(flat, target, "polyak", tau=tau)
    learner = TwoTargets(network.train_state, targets)
    flat.vector.add_(seed)
    for target in targets.values():
        target.after_step()
    return learner


def test_a_learner_saves_all_its_target_networks_by_name():
    learner = followers(1.0)
    other = followers(2.0)
    vectors = [each.target.vector for each in learner.target_networks.values()]
    assert not torch.equal(*vectors)
    assert len(learner.train_state.targets) == 2
    other.load_state_dict(learner.state_dict())
    for name, network in learner.target_networks.items():
        loaded = other.target_networks[name].target.vector
        assert torch.equal(loaded, network.target.vector)
    other.weights_replaced()
    for network in other.target_networks.values():
        assert torch.equal(network.target.vector, other.flats["q"].vector)
