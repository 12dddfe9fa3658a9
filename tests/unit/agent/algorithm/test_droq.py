"""Dropout in critics: DroQ, which is REDQ by its keys."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from slm_lab.spec.load import load_spec
from slm_lab.spec.parse import parse
from tests.support import ppo, seeded
from tests.unit.agent.algorithm.batches import (
    CONTINUOUS,
    OneBatch,
    learner_of,
    transitions,
)

PROBABILITY = 0.25
NET = {
    "type": "MLPNet",
    "hid_layers": [8, 6],
    "hid_layers_activation": "tanh",
    "optim_spec": {"name": "SGD", "lr": 0.1},
    "update_type": "polyak",
    "polyak_coef": 0.25,
}
DROPS = {"critic_dropout": PROBABILITY, "critic_layer_norm": True}
WIDTHS = (8, 6, 8, 6)
"""Of the hidden layers of both critics."""


def spec_with(name="REDQ", net=DROPS, critic_net=None, **algorithm):
    nets = {"agent__net": {**NET, **net}}
    if critic_net is not None:
        nets["agent__critic_net"] = {**NET, **critic_net}
    return ppo(
        agent__algorithm={"name": name, "gamma": 0.9, "num_critics": 2, **algorithm},
        agent__memory={"name": "Replay", "batch_size": 4, "max_size": 100},
        env__name="Pendulum-v1",
        **nets,
    )


def learner_with(**keys):
    return learner_of(spec_with(fixed_alpha=0.2, policy_delay=2, **keys))


def values(nets, obs, action, masks):
    """Q of each critic by hand: linear, dropout, layer norm, tanh."""
    both = torch.cat([obs, action], -1)
    parts = list(masks.float().split(WIDTHS, -1))
    results = []
    for net in nets:
        x = both
        norms = [norm for norm in net.norms if isinstance(norm, nn.LayerNorm)]
        for linear, norm in zip(net.hidden, norms, strict=True):
            x = norm(linear(x) * parts.pop(0) / (1 - PROBABILITY)).tanh()
        results.append(net.heads[0](x).squeeze(-1))
    return results


def same_draws(learner):
    """What the next update of the learner draws."""
    state = learner.generator.get_state()
    draws = learner.draw(4)
    learner.generator.set_state(state)
    return draws


def test_critics_and_their_targets_learn_with_masks_of_their_own():
    learner = learner_with()
    learner.target_networks["target_network"].target.vector.mul_(-0.5)
    batch = transitions(CONTINUOUS)
    draws = same_draws(learner)
    critic = learner.critic
    with torch.no_grad():
        following = learner.policy.of(
            learner.actor.policy(batch.next_obs),
            lambda action: torch.min(
                *values(critic.targets, batch.next_obs, action, draws.next_masks)
            ),
            draws.next_noise,
        )
        y = batch.reward + batch.discount * (following.value + 0.2 * following.entropy)
        q = values(critic.nets, batch.obs, batch.action, draws.masks)
    expected = sum((batch.weight * (value - y) ** 2).mean() for value in q)
    assert not torch.equal(draws.masks, draws.next_masks)
    source = OneBatch(batch)
    report = learner.learn(source, 0)
    assert report["value_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert_close(source.error, y - q[0])


def test_the_actor_climbs_the_mean_of_critics_with_masks_too():
    learner = learner_with()
    batch = transitions(CONTINUOUS)
    learner.learn(OneBatch(batch), 0)
    draws = same_draws(learner)
    params = learner.actor.policy(batch.obs)
    report = learner._update(batch, 0).report
    mean = learner.policy.of(
        params,
        lambda action: (
            sum(values(learner.critic.nets, batch.obs, action, draws.actor_masks)) / 2
        ),
        draws.noise,
    )
    loss = -(mean.value + 0.2 * mean.entropy).mean()
    assert report["policy_loss"] == pytest.approx(loss.item(), rel=1e-5)


def test_masks_are_drawn_for_the_actor_only_when_it_learns():
    learner = learner_with()
    first = learner.draw(4)
    assert first.masks.shape == (4, sum(WIDTHS))
    assert first.actor_masks is None
    learner.opt_step += 1
    second = learner.draw(4)
    assert second.actor_masks.shape == (4, sum(WIDTHS))
    assert not torch.equal(second.masks, first.masks)


def test_outside_of_updates_critics_have_no_dropout():
    learner = learner_with()
    batch = transitions(CONTINUOUS)
    learner.learn(OneBatch(batch), 0)
    everything = torch.ones(4, sum(WIDTHS)) * (1 - PROBABILITY)
    with torch.no_grad():
        q = learner.critic.q_values(batch.obs, batch.action)
        plain = values(learner.critic.nets, batch.obs, batch.action, everything)
        again = learner.critic.target(batch.obs, batch.action)
        assert_close(q, plain)
        assert_close(again, learner.critic.target(batch.obs, batch.action))


def test_without_dropout_nothing_is_drawn_for_it():
    learner = learner_with(net={})
    generator = seeded(0)
    generator.set_state(learner.generator.get_state())
    draws = learner.draw(4)
    assert_close(draws.next_noise, torch.randn(4, 1, generator=generator))
    assert torch.equal(learner.generator.get_state(), generator.get_state())
    assert draws.masks is draws.next_masks is draws.actor_masks is None


DROQ = {"critic_dropout": 0.01, "critic_layer_norm": True}
OWN = {"dropout": 0.01, "layer_norm": True}


@pytest.mark.parametrize(
    ("net", "critic_net", "meant", "meant_critic", "note"),
    [
        ({}, None, DROQ, None, "critic_dropout 0.01 and critic_layer_norm true"),
        (
            {"critic_dropout": 0.1},
            None,
            {**DROQ, "critic_dropout": 0.1},
            None,
            "critic_layer_norm true",
        ),
        (
            {},
            {"dropout": 0.1},
            {},
            {**OWN, "dropout": 0.1},
            "critic_layer_norm true",
        ),
    ],
)
def test_droq_is_redq_with_two_critics_that_have_dropout_and_layer_norm(
    net, critic_net, meant, meant_critic, note
):
    named = spec_with("DroQ", net, critic_net)
    del named["agent"]["algorithm"]["num_critics"]
    parsed = parse("s", named)
    expected = parse("s", spec_with("REDQ", meant, meant_critic))
    assert parsed.problems == []
    assert parsed.spec == expected.spec
    (line,) = parsed.renamed
    assert line.startswith('agent.algorithm.name "DroQ" means REDQ, with num_critics 2')
    assert line.endswith(note)


def test_the_shipped_specs_have_the_keys_of_the_name():
    for name in ("droq_hopper", "droq_pendulum"):
        spec = load_spec(f"benchmark/redq/{name}.json", name)
        agent = spec.agent
        assert agent.algorithm.name == "REDQ"
        assert agent.algorithm.num_critics == 2
        assert agent.net.for_role("critic").dropout == 0.01
        assert agent.net.for_role("critic").layer_norm
        assert agent.net.for_role("actor").dropout == 0
