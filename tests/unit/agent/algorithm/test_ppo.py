"""PPO against numbers worked out by hand, and each of its keys."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.algorithm.minibatches import minibatch_sizes
from slm_lab.agent.algorithm.policy_parts import CriticParts
from slm_lab.agent.algorithm.ppo import moved_against_noise
from slm_lab.agent.batch import Rollout
from slm_lab.agent.distribution.distributions import DiagonalNormal
from slm_lab.core.errors import NonFiniteLossError
from slm_lab.session.experience import observed
from tests.support import ppo, randn, seeded
from tests.unit.agent.algorithm import batches


def build(**changes):
    return batches.build(ppo(**changes))


def collect(agent, env):
    """Steps until the memory is full."""
    obs = env.reset()
    while not agent.memory.ready():
        act = agent.act(obs, 0)
        step = env.step(act.action)
        agent.observe(observed(obs, act, step))
        obs = step.obs


ONE_STEP = {
    "agent__algorithm__training_epoch": 1,
    "agent__algorithm__normalize_advantages": None,
}


def rollout(learner):
    """Four episodes of one step, by an earlier policy and critic.

    So a return is the reward, and an advantage is the reward less the recorded value.
    """
    generator = torch.Generator().manual_seed(0)
    obs = torch.randn(4, 1, 4, generator=generator)
    action = torch.tensor([[0], [1], [1], [0]])
    with torch.no_grad():
        params, now = learner.network.forward(obs[:, 0])
    log_prob = params.log_softmax(-1)[range(4), action[:, 0]]
    value = now - torch.tensor([1.0, 0.1, -0.1, 0.0])
    return Rollout(
        obs=obs,
        action=action,
        log_prob=(log_prob - torch.tensor([0.5, -0.5, 0.1, 0.0]))[:, None],
        value=value[:, None],
        reward=(value + torch.tensor([1.0, -1.0, 2.0, 0.5]))[:, None],
        terminated=torch.ones(4, 1, dtype=torch.bool),
        truncated=torch.zeros(4, 1, dtype=torch.bool),
        bootstrap_obs=obs[-1],
        bootstrap_t=torch.tensor([3]),
        bootstrap_n=torch.tensor([0]),
        version=torch.zeros(4, 1, dtype=torch.int64),
    )


def test_one_update_reports_the_losses_of_the_paper():
    learner = build(**ONE_STEP)[0].learner
    batch = rollout(learner)
    with torch.no_grad():
        logits, value = (
            t.double().numpy() for t in learner.network.forward(batch.obs[:, 0])
        )
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    log_p = np.log(p[range(4), batch.action[:, 0]])
    ratio = np.exp(log_p - batch.log_prob[:, 0].double().numpy())
    advantage = np.array([1.0, -1.0, 2.0, 0.5])
    objective = np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
    entropy = -(p * np.log(p)).sum(-1).mean()
    value_loss = ((value - batch.reward[:, 0].double().numpy()) ** 2).mean()

    report = learner.learn(batch, 0)

    assert report["policy_loss"] == pytest.approx(-objective.mean(), rel=1e-5)
    assert report["value_loss"] == pytest.approx(value_loss, rel=1e-5)
    assert report["entropy"] == pytest.approx(entropy, rel=1e-5)
    total = -objective.mean() - 0.01 * entropy + 0.5 * value_loss
    assert report["loss"] == pytest.approx(total, rel=1e-5)
    assert report["clip_fraction"] == 0.5
    assert report["approx_kl"] == pytest.approx(
        (ratio - 1 - np.log(ratio)).mean(), rel=1e-4
    )


def test_value_clipping_takes_the_worse_loss():
    learner = build(**ONE_STEP, agent__algorithm__clip_vloss=True)[0].learner
    batch = rollout(learner)
    with torch.no_grad():
        value = learner.network.raw_value(batch.obs[:, 0])
        old = batch.value[:, 0]
        target = batch.reward[:, 0]
    clipped = old + (value - old).clamp(-0.2, 0.2)
    expected = torch.max((value - target) ** 2, (clipped - target) ** 2).mean().item()
    assert expected != pytest.approx(((value - target) ** 2).mean().item())
    assert learner.learn(batch, 0)["value_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shared", [False, True])
def test_the_value_loss_moves_the_actor_only_where_the_body_is_shared(shared):
    agent, _ = build(agent__net__shared=shared)
    learner = agent.learner
    obs = randn(4, 4)
    with torch.no_grad():
        before = learner.network.policy(obs)
    params, value = learner.network.forward(obs)
    learner.network.step(params.sum() * 0, ((value - 1) ** 2).mean())
    with torch.no_grad():
        after = learner.network.policy(obs)
    assert torch.equal(before, after) is not shared


def test_every_sample_is_used_once_per_epoch():
    agent, env = build(agent__algorithm__minibatch_size=24)
    collect(agent, env)
    seen = []
    evaluate = agent.learner.evaluate

    def noted(obs, action):
        seen.append(obs)
        return evaluate(obs, action)

    agent.learner.evaluate = noted
    agent.learn(0)
    assert [len(obs) for obs in seen] == [24, 24, 16] * 2
    epochs = torch.cat(seen[:3]), torch.cat(seen[3:])
    assert not torch.equal(*epochs)
    for epoch in epochs:
        assert torch.equal(epoch.sort(0).values, epochs[0].sort(0).values)


@pytest.mark.parametrize(
    ("size", "most", "sizes"),
    [
        (65, 64, [65]),
        (129, 64, [64, 65]),
        (66, 64, [64, 2]),
        (64, 64, [64]),
        (1, 64, [1]),
        (3, 1, [1, 1, 1]),
        (7, 2, [2, 2, 3]),
    ],
)
def test_no_sample_is_a_minibatch_alone_unless_it_is_meant_to_be(size, most, sizes):
    assert minibatch_sizes(size, most) == sizes


NETS = {
    "written_out": {
        "type": "MLPNet",
        "hid_layers": [8],
        "hid_layers_activation": "tanh",
    },
    "by_autograd": {
        "type": "MLPNet",
        "hid_layers": [8],
        "hid_layers_activation": "selu",
    },
    "recurrent": {
        "type": "RecurrentNet",
        "fc_hid_layers": [8],
        "rnn_hidden_size": 8,
        "seq_len": 4,
    },
}


def learned(steps, **changes):
    """The learner after at most so many minibatches of one rollout, and the KL of
    each."""
    agent, env = build(**changes)
    learner = agent.learner
    kls = []
    minibatches = learner._minibatches
    step = learner.step

    def noted(*inputs):
        update = step(*inputs)
        kls.append(update.report["approx_kl"])
        return update

    learner._minibatches = lambda samples: islice(minibatches(samples), steps)
    learner.step = noted
    collect(agent, env)
    agent.learn(0)
    return learner, kls


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_no_step_is_taken_on_a_minibatch_beyond_the_target_kl(net):
    """The weights are those of a twin that is stopped by hand before this minibatch."""
    keys = {
        "agent__algorithm__training_epoch": 30,
        "agent__algorithm__minibatch_size": 32,
        "agent__net": {**net, "optim_spec": {"name": "GlobalAdam", "lr": 0.005}},
    }
    bound, kls = learned(60, agent__algorithm__target_kl=0.001, **keys)
    *before, last = kls
    assert 1 < len(before) < 59
    assert max(before) <= 1.5 * 0.001 < last
    assert bound.opt_step == len(before)
    twin, _ = learned(len(before), **keys)
    for name, flat in twin.flats.items():
        assert torch.equal(flat.vector, bound.flats[name].vector)


def test_schedules_follow_the_frame_clock():
    spec = {
        "name": "linear_decay",
        "start_val": 0.2,
        "end_val": 0.1,
        "start_step": 0,
        "end_step": 1000,
    }
    agent, env = build(
        agent__algorithm__clip_eps_spec=spec,
        agent__net__lr_scheduler_spec={"name": "LinearToZero", "frame": 1000},
    )
    collect(agent, env)
    report = agent.learn(500)
    assert report["clip_eps"] == pytest.approx(0.15)
    assert report["lr"] == pytest.approx(0.5e-3)
    assert report["entropy_coef"] == pytest.approx(0.0075)


def test_the_behaviour_is_recorded_when_acting():
    """Log-probabilities, values and versions in the rollout are those of the acting
    weights."""
    agent, env = build()
    collect(agent, env)
    rollout = agent.learner.network.valued(agent.memory.take())
    with torch.no_grad():
        params, value = agent.learner.network.forward(rollout.obs.flatten(0, 1))
    log_prob = params.log_softmax(-1).gather(-1, rollout.action.view(-1, 1)).flatten()
    assert_close(rollout.log_prob.flatten(), log_prob)
    assert_close(rollout.value.flatten(), value)
    assert (rollout.version == 0).all()
    agent.learner.learn(rollout, 0)
    agent.actor.version = agent.learner.version
    assert agent.act(env.reset(), 0).version == 1


def spoil(memory, name):
    """Replaces what the environment gave in one step."""
    state = memory.state_dict()
    state["arrays"][name][3, 1] = math.nan
    memory.load_state_dict(state)


def test_a_loss_that_is_not_finite_is_reported_with_the_ranges_of_its_batch():
    agent, env = build()
    collect(agent, env)
    spoil(agent.memory, "reward")
    before = {n: f.vector.clone() for n, f in agent.learner.flats.items()}
    with pytest.raises(NonFiniteLossError) as caught:
        agent.learn(0)
    assert "reward (16, 4) min 1 mean 1 max 1, 1 values not finite" in str(caught.value)
    assert (
        str(caught.value)
        .splitlines()[0]
        .endswith(": the environment gave rewards that are not finite")
    )
    for name, flat in agent.learner.flats.items():
        assert torch.equal(flat.vector, before[name])


def test_the_cause_of_a_loss_that_is_not_finite_is_reported_first():
    agent, env = build()
    collect(agent, env)
    spoil(agent.memory, "obs")
    with pytest.raises(
        NonFiniteLossError, match="the environment gave observations that are not"
    ):
        agent.learn(0)
    agent, env = build()
    collect(agent, env)
    agent.learner.flats["actor"].vector[0] = math.nan
    with pytest.raises(NonFiniteLossError) as caught:
        agent.learn(0)
    assert "environment" not in str(caught.value)


def test_noise_on_the_mean_is_uniform_within_its_bounds():
    noise = -moved_against_noise(torch.zeros(4000, 2), 0.5, seeded(0))
    assert noise.abs().max() <= 0.5
    assert noise.mean().item() == pytest.approx(0.0, abs=0.02)
    assert noise.std().item() == pytest.approx(1 / math.sqrt(12), abs=0.01)


def test_an_action_moved_against_noise_has_its_density_under_the_moved_mean():
    """N(a; μ + z, σ), written out: 1/(σ √2π) exp(−½ ((a − μ − z)/σ)²)."""
    mean = torch.tensor([[0.5, -1.0]])
    log_std = torch.tensor([[0.0, math.log(2.0)]])
    action = torch.tensor([[1.0, 0.0]])
    noise = -moved_against_noise(torch.zeros(1, 2), 0.5, seeded(3))
    moved = moved_against_noise(action, 0.5, seeded(3))
    first, second = noise[0].tolist()
    scaled = (1.0 - 0.5 - first), (0.0 + 1.0 - second) / 2.0
    expected = -0.5 * (scaled[0] ** 2 + scaled[1] ** 2)
    expected -= math.log(2.0) + math.log(2 * math.pi)
    log_prob = DiagonalNormal(mean, log_std).log_prob(moved)
    assert log_prob.item() == pytest.approx(expected, rel=1e-5)


CONTINUOUS = {
    "env__name": "Pendulum-v1",
    "agent__algorithm__minibatch_size": 32,
    "agent__algorithm__training_epoch": 2,
}


def seen_actions(**changes):
    """The actions of a rollout, and those of every minibatch by observation."""
    agent, env = build(**CONTINUOUS, **changes)
    collect(agent, env)
    rollout = agent.memory.take()
    learner = agent.learner
    evaluate = learner.evaluate
    minibatches = []

    def noted(obs, action):
        minibatches.append(dict(zip(map(tuple, obs.tolist()), action, strict=True)))
        return evaluate(obs, action)

    learner.evaluate = noted
    report = learner.learn(rollout, 0)
    obs = map(tuple, rollout.obs.flatten(0, 1).tolist())
    return (
        dict(zip(obs, rollout.action.flatten(0, 1), strict=True)),
        minibatches,
        report,
    )


def test_every_step_of_robust_optimisation_draws_noise_of_its_own():
    taken, minibatches, report = seen_actions(agent__algorithm__rpo_alpha=0.25)
    assert len(minibatches) == 4
    epochs = [minibatches[0] | minibatches[1], minibatches[2] | minibatches[3]]
    noise = [
        torch.stack([taken[key] - epoch[key] for key in taken]) for epoch in epochs
    ]
    assert all(drawn.abs().min() > 0 and drawn.abs().max() <= 0.25 for drawn in noise)
    assert (noise[0] != noise[1]).all()
    assert report["approx_kl"] > 0


def test_without_noise_the_actions_are_those_that_were_taken():
    taken, minibatches, _ = seen_actions()
    for minibatch in minibatches:
        assert all(torch.equal(minibatch[key], taken[key]) for key in minibatch)


@pytest.mark.parametrize("alpha", [0.0, 0.25])
def test_formulas_and_autograd_agree_on_noise_on_the_mean(alpha):
    """Both see the same minibatches of the same rollout."""
    vectors = []
    for by_autograd in (False, True):
        agent, env = build(**CONTINUOUS, agent__algorithm__rpo_alpha=alpha)
        collect(agent, env)
        if by_autograd:
            learner = agent.learner
            learner.evaluate = CriticParts(
                learner.network, learner.family, learner.value_loss_fn
            ).evaluate
        agent.learn(0)
        vectors.append([flat.vector for flat in agent.learner.flats.values()])
    for written, by_torch in zip(*vectors, strict=True):
        assert_close(written, by_torch, rtol=1e-4, atol=1e-5)
