"""REDQ's choice of critics, against numbers worked out by hand."""

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.fast.choose import write_out_steps
from tests.support import ppo, seeded, soft
from tests.unit.agent.algorithm.batches import (
    CONTINUOUS,
    OneBatch,
    learner_of,
    transitions,
)

OBS = torch.linspace(-1, 1, 12).view(4, 3)
ACTION = torch.linspace(-0.5, 0.5, 4).view(4, 1)


def critics_of(**algorithm):
    keys = {f"agent__algorithm__{key}": value for key, value in algorithm.items()}
    spec = soft("REDQ", env__name="Pendulum-v1", **keys)
    return learner_of(spec).critic


def values_of(nets):
    both = torch.cat([OBS, ACTION], -1)
    return torch.stack([net(both)[0].squeeze(-1) for net in nets])


def test_the_target_is_the_smallest_of_the_critics_that_are_drawn():
    critics = critics_of(num_critics=4)
    with torch.no_grad():
        values = values_of(critics.targets)
        target = critics.target(OBS, ACTION, torch.tensor([3, 1]))
    torch.testing.assert_close(target, torch.min(values[3], values[1]))


@pytest.mark.parametrize(("spectral_norm", "computed"), [(False, 2), (True, 4)])
def test_on_a_cpu_only_the_drawn_targets_compute_unless_a_forward_changes_them(
    monkeypatch, spectral_norm, computed
):
    critics = critics_of(num_critics=4, spectral_norm=spectral_norm)
    calls = []

    def noting(number, forward):
        def note(x):
            calls.append(number)
            return forward(x)

        return note

    for number, net in enumerate(critics.targets):
        monkeypatch.setattr(net, "forward", noting(number, net.forward))
    subset = torch.tensor([3, 1])
    with torch.no_grad():
        target = critics.target(OBS, ACTION, subset)
        chosen = list(calls)
        # as on a GPU, where all compute
        monkeypatch.setattr(torch.Tensor, "is_cpu", False)
        by_all = critics.target(OBS, ACTION, subset)
    assert len(chosen) == computed
    if not spectral_norm:
        assert chosen == [3, 1]
        assert torch.equal(target, by_all)


def test_the_actor_climbs_the_mean_of_all_critics():
    critics = critics_of(num_critics=4)
    with torch.no_grad():
        value = critics.actor_value(OBS, ACTION)
        torch.testing.assert_close(value, values_of(critics.nets).mean(0))


def test_drawn_critics_differ_and_each_is_drawn_equally_often():
    critics = critics_of(num_critics=5)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([critics.draw_subset(generator) for _ in range(5_000)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    shares = drawn.flatten().bincount(minlength=5) / 5_000
    torch.testing.assert_close(shares, torch.full((5,), 0.4), atol=0.03, rtol=0)


def test_nothing_is_drawn_where_all_critics_count():
    critics = critics_of(num_critics=3, num_target_critics=3)
    assert critics.draw_subset(torch.Generator()) is None


def test_more_critics_in_the_target_than_there_are_are_refused():
    with pytest.raises(Exception, match=r"must be <= num_critics \(2\)"):
        critics_of(num_critics=2, num_target_critics=3)


def learner_with(env="Pendulum-v1", **algorithm):
    return learner_of(
        ppo(
            agent__algorithm={
                "name": "REDQ",
                "gamma": 0.9,
                "fixed_alpha": 0.2,
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
            env__name=env,
        )
    )


def with_constant_targets(learner, values):
    """The learner with target networks that put out these values everywhere."""
    for net, value in zip(learner.critic.targets, values, strict=True):
        for parameter in net.parameters():
            parameter.data.zero_()
        net.heads[0].bias.data.fill_(value)
    return learner


def test_all_critics_learn_the_value_of_the_drawn_ones():
    """y = r + γ (min over the subset + α H); the loss sums all critics."""
    values = [5.0, -2.0, 7.0, 1.0]
    learner = with_constant_targets(learner_with(num_critics=4, policy_delay=2), values)
    batch = transitions(CONTINUOUS)
    generator = seeded(0)
    generator.set_state(learner.generator.get_state())
    noise = torch.randn(4, 1, generator=generator)
    drawn = torch.randperm(4, generator=generator)[:2].tolist()
    least = min(values[number] for number in drawn)
    with torch.no_grad():
        following = learner.policy.of(
            learner.actor.policy(batch.next_obs), lambda _: torch.zeros(4), noise
        )
        y = batch.reward + batch.discount * (least + 0.2 * following.entropy)
        q = learner.critic.q_values(batch.obs, batch.action)
        expected = sum((batch.weight * (value - y) ** 2).mean() for value in q)
    source = OneBatch(batch)
    report = learner.learn(source, 0)
    assert report["value_loss"] == pytest.approx(expected.item(), rel=1e-5)
    assert_close(source.error, y - q[0])
    assert "policy_loss" not in report  # the first of two steps


def test_the_written_out_actor_has_the_gradient_of_autograd():
    learner = learner_with(num_critics=3, policy_delay=1)
    batch = transitions(CONTINUOUS)
    noise = torch.randn(4, 1, generator=seeded(5))
    write_out_steps(learner)
    flat = learner.flats["actor"]
    gradients = []
    for objective in (learner.actor_objective, learner.torch_actor_objective):
        flat.grad.zero_()
        with learner.critic.frozen():
            result = objective(batch, noise, 0.2)
            result.loss.backward()
        gradients.append((flat.grad.clone(), torch.tensor(result.loss.item())))
    assert learner.actor_objective is not learner.torch_actor_objective
    assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_targets_follow_every_step_and_the_actor_once_in_the_delay():
    learner = learner_with(num_critics=3, policy_delay=3)
    target = learner.target_networks["target_network"].target.vector
    actor = learner.flats["actor"].vector
    moves = []
    for _ in range(3):
        before = target.clone(), actor.clone()
        learner.learn(OneBatch(transitions(CONTINUOUS)), 0)
        moves.append(
            (not torch.equal(target, before[0]), not torch.equal(actor, before[1]))
        )
    assert moves == [(True, False), (True, False), (True, True)]
