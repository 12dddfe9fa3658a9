"""TQC's truncation and losses, against numbers worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.net.return_distribution import truncated
from tests.support import ppo, seeded
from tests.unit.agent.algorithm.batches import (
    CONTINUOUS,
    OneBatch,
    learner_of,
    transitions,
)


def learner_with(**algorithm):
    return learner_of(
        ppo(
            agent__algorithm={
                "name": "TQC",
                "gamma": 0.9,
                "fixed_alpha": 0.5,
                "num_critics": 2,
                "num_quantiles": 2,
                "quantiles_dropped": 1,
                **algorithm,
            },
            agent__memory={"name": "Replay", "batch_size": 4, "max_size": 100},
            agent__net={
                "type": "MLPNet",
                "hid_layers": [8],
                "hid_layers_activation": "tanh",
                "optim_spec": {"name": "SGD", "lr": 0.1},
                "update_type": "polyak",
                "polyak_coef": 0.25,
            },
            env__name="Pendulum-v1",
        )
    )


def with_constants(nets, rows):
    """Lets each net put out its row of quantiles everywhere."""
    for critic, row in zip(nets, rows, strict=True):
        for parameter in critic.parameters():
            parameter.data.zero_()
        critic.net.heads[0].bias.data.copy_(torch.tensor(row))


def with_entropies(learner, batch):
    """The entropies of the next action in the next update."""
    generator = seeded(0)
    generator.set_state(learner.generator.get_state())
    noise = torch.randn(4, 1, generator=generator)
    with torch.no_grad():
        params = learner.actor.policy(batch.next_obs)
        return learner.policy.of(params, lambda _: torch.zeros(4), noise).entropy


def test_the_largest_quantiles_of_all_critics_together_are_dropped():
    quantiles = [
        torch.tensor([[1.0, 9.0, 8.0], [3.0, 2.0, 1.0]]),
        torch.tensor([[5.0, -2.0, 7.0], [6.0, 5.0, 4.0]]),
    ]
    kept = truncated(quantiles, dropped=1)
    assert_close(kept, torch.tensor([[-2.0, 1.0, 5.0, 7.0], [1.0, 2.0, 3.0, 4.0]]))
    assert truncated(quantiles, dropped=0).shape == (2, 6)


def test_the_loss_of_one_transition_equals_numbers_worked_out_by_hand():
    """Target quantiles −2, 1, 7, 5 without the two largest, and r = −1, γ = 0.5 without
    entropy: samples −2 and −0.5. Quantiles 0 and −0.25 at τ = 1/4 and 3/4.

        u of 0:      −2, −0.5;        weights 3/4;  L = 1.5, 0.125
        u of −0.25:  −1.75, −0.25;    weights 1/4;  L = 1.25, 0.03125
    """
    learner = learner_with(fixed_alpha=0.0)
    with_constants(learner.critic.targets, [[1.0, 7.0], [5.0, -2.0]])
    with_constants(learner.critic.nets, [[0.0, -0.25], [0.0, -0.25]])
    batch = transitions(CONTINUOUS)
    batch.reward.fill_(-1.0)
    batch.discount.fill_(0.5)
    batch.weight.fill_(1.0)
    source = OneBatch(batch)
    report = learner.learn(source, 0)
    of_first = 0.75 * (1.5 + 0.125) / 2
    of_second = 0.25 * (1.25 + 0.03125) / 2
    assert report["value_loss"] == pytest.approx(2 * (of_first + of_second))
    assert report["q_value"] == pytest.approx(-0.125)
    assert_close(source.error, torch.full((4,), -1.25 + 0.125))


def test_all_critics_learn_from_the_same_soft_quantiles_with_the_weights_of_samples():
    learner = learner_with(num_critics=3, num_quantiles=4, num_step_returns=3)
    batch = transitions(CONTINUOUS)
    entropy = with_entropies(learner, batch)
    rows = torch.arange(12.0).view(3, 4).tolist()
    with_constants(learner.critic.targets, rows)
    kept = torch.arange(9.0)  # of 12 the three largest are dropped
    targets = batch.reward + batch.discount * (kept[:, None] + 0.5 * entropy)
    levels = (0.125, 0.375, 0.625, 0.875)
    expected = torch.zeros(4)
    for quantiles in learner.critic.distributions(batch.obs, batch.action):
        for level, quantile in zip(levels, quantiles.detach().unbind(-1), strict=True):
            error = targets - quantile
            huber = torch.nn.functional.huber_loss(
                quantile.expand(9, 4), targets, reduction="none"
            )
            expected += ((level - (error < 0).float()).abs() * huber).mean(0)
    report = learner.learn(OneBatch(batch), 0)
    wanted = (batch.weight * expected).mean().item()
    assert report["value_loss"] == pytest.approx(wanted, rel=1e-5)


def test_the_actor_climbs_the_mean_of_the_quantiles_of_all_critics():
    learner = learner_with(num_critics=3, num_quantiles=4)
    batch = transitions(CONTINUOUS)
    both = torch.cat([batch.obs, batch.action], -1)
    with torch.no_grad():
        value = learner.critic.actor_value(batch.obs, batch.action)
        outputs = [critic.net(both)[0] for critic in learner.critic.nets]
    assert_close(value, torch.cat(outputs, -1).mean(-1))


def test_targets_begin_equal_and_follow_every_step():
    learner = learner_with()
    online = learner.flats["critic"].vector
    target = learner.target_networks["target_network"].target.vector
    assert torch.equal(online, target)
    before = target.clone()
    learner.learn(OneBatch(transitions(CONTINUOUS)), 0)
    assert_close(target, 0.25 * online + 0.75 * before)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"quantiles_dropped": 2}, r"must be < num_quantiles \(2\)"),
        ({"symlog": True}, "TQC predicts quantiles; remove it"),
    ],
)
def test_what_truncation_or_quantiles_do_not_allow_is_refused(keys, message):
    with pytest.raises(Exception, match=message):
        learner_with(**keys)
