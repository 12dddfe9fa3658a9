"""TD3 and DDPG against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from slm_lab.agent.algorithm.expectation import smoothed
from slm_lab.agent.distribution.exploration import Generators, gaussian
from tests.support import ppo
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import CONTINUOUS, OneBatch, transitions

TAU = 0.25


def learner_of(critic_net=None, **algorithm):
    net = {
        "type": "MLPNet",
        "hid_layers": [8],
        "hid_layers_activation": "tanh",
        "optim_spec": {"name": "SGD", "lr": 0.1},
        "update_type": "polyak",
        "polyak_coef": TAU,
    }
    own = {}
    if critic_net is not None:
        own = {"agent__critic_net": {**net, **critic_net}}
    return batches.learner_of(
        ppo(
            agent__algorithm={"name": "TD3", "gamma": 0.9, **algorithm},
            agent__memory={"name": "Replay", "batch_size": 4, "max_size": 100},
            agent__net=net,
            env__name="Pendulum-v1",
            **own,
        )
    )


def nets(flat, count):
    """The nets of a flat vector, each of one hidden layer of tanh, as functions."""
    size = len(flat.views) // count

    def net(views):
        weight, bias, head_weight, head_bias = views
        return lambda x: linear(linear(x, weight, bias).tanh(), head_weight, head_bias)

    return [net(flat.views[i * size : (i + 1) * size]) for i in range(count)]


def critic_values(flat, count, obs, action):
    both = torch.cat([obs, action], -1)
    return [net(both).squeeze(-1) for net in nets(flat, count)]


def moved_apart(learner):
    """The learner with targets that differ from its networks."""
    for network in learner.target_networks.values():
        network.target.vector.mul_(-0.5)
    return learner


@pytest.mark.parametrize(
    ("count", "noise", "clip"), [(2, 0.2, 0.5), (2, 3.0, 0.5), (1, 0.0, 0.5)]
)
def test_critics_learn_the_least_target_value_of_the_smoothed_target_action(
    count, noise, clip
):
    """y = r + γ min_i Q̂_i(s', clip(π̂(s') + clip(σ ε, ±c), ±1)); the loss sums all
    critics."""
    learner = moved_apart(
        learner_of(num_critics=count, target_noise=noise, target_noise_clip=clip)
        if noise
        else learner_of(num_critics=count, target_noise=noise)
    )
    batch = transitions(CONTINUOUS)
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    drawn = (noise * torch.randn(4, 1, generator=generator)).clamp(-clip, clip)
    targets = learner.target_networks
    with torch.no_grad():
        (actor,) = nets(targets["actor_target"].target, 1)
        action = (actor(batch.next_obs).tanh() + drawn).clamp(-1, 1)
        critic_target = targets["target_network"].target
        following = critic_values(critic_target, count, batch.next_obs, action)
        y = batch.reward + batch.discount * torch.stack(following).amin(0)
        q = critic_values(learner.flats["critic"], count, batch.obs, batch.action)
        expected = sum((batch.weight * (values - y) ** 2).mean() for values in q)
    source = OneBatch(batch)
    report = learner.learn(source, 0)
    assert report["value_loss"] == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(source.error, y - q[0])
    assert "entropy" not in report
    assert "alpha" not in report


def test_the_actor_climbs_the_first_critic():
    learner = learner_of(policy_delay=1)
    batch = transitions(CONTINUOUS)
    actor_flat = learner.flats["actor"]
    before = actor_flat.vector.clone()
    report = learner.learn(OneBatch(batch), 0)
    after = actor_flat.vector.clone()
    actor_flat.vector.copy_(before)  # the critics' step is first
    views = [view.detach().requires_grad_() for view in actor_flat.views]
    weight, bias, head_weight, head_bias = views
    hidden = linear(batch.obs, weight, bias).tanh()
    action = linear(hidden, head_weight, head_bias).tanh()
    q = critic_values(learner.flats["critic"], 2, batch.obs, action)[0]
    loss = -q.mean()
    loss.backward()
    assert report["policy_loss"] == pytest.approx(loss.item(), rel=1e-5)
    grad = torch.cat([view.grad.flatten() for view in views])
    torch.testing.assert_close(after, before - 0.1 * grad)


def test_actor_and_targets_follow_once_in_two_steps():
    learner = learner_of()
    targets = [network.target for network in learner.target_networks.values()]
    assert set(learner.target_networks) == {"actor_target", "target_network"}
    before = [flat.vector.clone() for flat in (learner.flats["actor"], *targets)]
    learner.learn(OneBatch(transitions(CONTINUOUS)), 0)
    now = [flat.vector for flat in (learner.flats["actor"], *targets)]
    assert all(map(torch.equal, now, before))
    learner.learn(OneBatch(transitions(CONTINUOUS)), 0)
    assert not any(map(torch.equal, now, before))
    onlines = [learner.flats["actor"].vector]
    onlines += [
        learner.flats[{"actor_target": "actor"}.get(name, "critic")].vector
        for name in learner.target_networks
    ]
    for start, target, online in zip(before[1:], now[1:], onlines[1:], strict=True):
        torch.testing.assert_close(target, start + TAU * (online - start))


def test_the_target_actor_follows_as_the_critics_own_net_says():
    learner = learner_of(policy_delay=1, critic_net={"polyak_coef": 0.5})
    actor = learner.flats["actor"].vector
    start = actor.clone()
    learner.learn(OneBatch(transitions(CONTINUOUS)), 0)
    target = learner.target_networks["actor_target"].target.vector
    torch.testing.assert_close(target, (start + actor) / 2)


def test_noise_on_target_actions_is_normal_and_clipped():
    policy = smoothed(0.2, 0.3)
    noise = policy.draw((50_000, 2), torch.Generator().manual_seed(0))
    assert noise.abs().max() == pytest.approx(0.3)
    inside = noise[noise.abs() < 0.3]
    assert inside.std() == pytest.approx(0.1485, abs=0.003)  # of a cut normal
    assert (noise.abs() == 0.3).float().mean() == pytest.approx(0.1336, abs=0.005)


def test_exploration_is_normal_noise_in_the_bounds():
    params = np.array([[0.0, 0.5], [3.0, -3.0]], np.float32)
    generators = Generators(0)
    draws = np.stack([gaussian(params, 0.1, generators)[0] for _ in range(20_000)])
    assert np.abs(draws).max() <= 1.0
    np.testing.assert_allclose(draws[:, 0].mean(0), np.tanh(params[0]), atol=0.003)
    np.testing.assert_allclose(draws[:, 0].std(0), 0.1, atol=0.003)
    action, log_prob = gaussian(params, 0.0, generators)
    np.testing.assert_array_equal(action, np.tanh(params))
    np.testing.assert_array_equal(log_prob, 0.0)
