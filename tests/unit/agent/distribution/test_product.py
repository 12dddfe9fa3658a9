"""Actions with several parts: their distribution, and what trains with it."""

import math
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch.testing import assert_close

from slm_lab.agent.distribution.exploration import Generators, exploration_policy
from slm_lab.agent.distribution.family import distribution_family
from slm_lab.agent.fast.distributions import array_family
from slm_lab.core.actions import MixedActions
from slm_lab.core.errors import LabError
from tests.learning.probe_envs import ActionInTuple, register_probes
from tests.support import (
    actor_critic,
    parse,
    ppo,
    randn,
    reinforce,
    rows,
    run_session,
    seeded,
    vmpo,
)

register_probes()

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
ALL = MixedActions(
    [
        BOX,
        spaces.Discrete(2),
        spaces.MultiBinary(2),
        spaces.MultiDiscrete([2, 3]),
    ]
)
WRITTEN = MixedActions([BOX, spaces.Discrete(3), spaces.Box(-1.0, 1.0, (1,))])


def test_log_probability_and_entropy_are_the_sums_over_the_parts_by_hand():
    family = distribution_family(
        MixedActions([spaces.Box(-1.0, 1.0, (1,)), spaces.Discrete(2)]), "default"
    )
    # the logits of the choice come first, ln σ last: p = (¼, ¾), μ = 1, σ = 2
    params = torch.tensor([[0.0, math.log(3), 1.0, math.log(2)]])
    policy = family(params)
    # at one σ above the mean, and the second choice
    action = torch.tensor([[3.0, 1.0]])
    normal = -0.5 - math.log(2) - 0.5 * math.log(2 * math.pi)
    assert_close(policy.log_prob(action), torch.tensor([normal + math.log(0.75)]))
    of_normal = 0.5 + 0.5 * math.log(2 * math.pi) + math.log(2)
    of_choice = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert_close(policy.entropy(), torch.tensor([of_normal + of_choice]))
    assert_close(policy.mode(), torch.tensor([[1.0, 1.0]]))


def test_the_parameters_are_the_logits_of_choices_then_others_then_every_scale():
    family = distribution_family(ALL, "default")
    params = [part.params for part in family.parts]
    assert params == [
        (slice(7, 9), slice(11, 13)),
        (slice(0, 2),),
        (slice(9, 11),),
        (slice(2, 7),),
    ]
    assert family.param_dim == 13
    assert family.action_shape == (7,)
    assert_close(family.initial_scale(-0.5), torch.full((2,), -0.5))


def test_a_product_is_its_parts_side_by_side():
    family = distribution_family(ALL, "default")
    params = randn(6, 13)
    policy = family(params)
    action = policy.sample(seeded(0))
    generator = seeded(0)
    parts = [part.family(part.params_in(params)) for part in family.parts]
    drawn = [part.sample(generator) for part in parts]
    columns = [draw.reshape(6, -1).float() for draw in drawn]
    assert torch.equal(action, torch.cat(columns, -1))
    log_prob = sum(part.log_prob(draw) for part, draw in zip(parts, drawn, strict=True))
    assert_close(policy.log_prob(action), log_prob)
    assert_close(policy.entropy(), sum(part.entropy() for part in parts))
    old = family(randn(6, 13, seed=1))
    mean_kl, scale_kl = policy.kl_from(old).T
    pairs = zip(policy.parts, old.parts, strict=True)
    kl = [part.kl_from(before) for part, before in pairs]
    assert_close(mean_kl, sum(of_part[:, 0] for of_part in kl))
    assert_close(scale_kl, kl[0][:, 1])


@pytest.mark.parametrize("policy", ["default", "random"])
def test_the_recorded_log_probability_is_that_of_the_drawn_action(policy):
    family = distribution_family(ALL, "default")
    params = randn(200, 13).numpy()
    draw = exploration_policy(policy, family, ALL)
    action, log_prob = draw(params, 0.0, Generators(0))
    assert action.shape == (200, 7)
    assert action.dtype == np.float32
    if policy == "random":
        assert all(row in ALL for row in action)
        # 2 numbers in [−1, 1], 2 choices, 4 of bits, 2 · 3 of choices
        expected = torch.full((200,), -math.log(4 * 2 * 4 * 6))
    else:
        expected = family(torch.from_numpy(params)).log_prob(torch.from_numpy(action))
    assert_close(torch.from_numpy(log_prob), expected, rtol=1e-4, atol=1e-4)


def test_exploration_among_n_actions_is_refused_for_actions_with_parts():
    family = distribution_family(ALL, "default")
    with pytest.raises(LabError, match=r"chooses one of n actions.*MixedActions"):
        exploration_policy("epsilon_greedy", family, ALL)


def test_random_parts_need_two_bounds():
    space = MixedActions([spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,))])
    family = distribution_family(space, "default")
    with pytest.raises(LabError, match=r'"random": needs actions with two bounds'):
        exploration_policy("random", family, space)


def test_gradients_of_a_product_are_those_of_autograd():
    family = distribution_family(WRITTEN, "default")
    params = randn(5, family.param_dim).requires_grad_()
    old = randn(5, family.param_dim, seed=1)
    policy = family(params)
    action = policy.sample(seeded(0)).detach()
    make = array_family(family)
    assert make is not None
    written = make(params.detach().numpy(), action)
    weight = randn(5, seed=2)
    kl = policy.kl_from(family(old)).mean(0)
    divergence = written.divergence_from(old.numpy())
    of_kl = np.array([0.3, 0.7], np.float32)
    pairs = (
        (policy.log_prob(action) @ weight, written.log_prob_gradient(weight.numpy())),
        (policy.entropy().sum(), written.entropy_gradient(np.float32(1))),
        (kl @ torch.from_numpy(of_kl), divergence.gradient(of_kl)),
    )
    assert_close(torch.from_numpy(written.log_prob), policy.log_prob(action).detach())
    assert_close(torch.from_numpy(written.entropy), policy.entropy().detach())
    assert_close(torch.from_numpy(divergence.mean), kl.detach())
    for loss, gradient in pairs:
        (expected,) = torch.autograd.grad(loss, params, retain_graph=True)
        assert_close(torch.from_numpy(gradient), expected)


def test_a_product_with_a_part_that_is_not_written_out_learns_by_torch():
    assert array_family(distribution_family(ALL, "default")) is None


IN_TUPLES = {
    "CartPole-v1": 500,
    "ProbeMatchChoices-v0": None,
    "ProbeMatchBits-v0": None,
    "ProbeReachPoint-v0": None,
}


def in_tuple(name, **kwargs):
    return ActionInTuple(gymnasium.make(name, max_episode_steps=-1, **kwargs))


for name, limit in IN_TUPLES.items():
    gymnasium.register(
        f"InTuple/{name}", partial(in_tuple, name), max_episode_steps=limit
    )

ALIKE = [
    *((make, "CartPole-v1") for make in (ppo, actor_critic, reinforce, vmpo)),
    *((ppo, name) for name in list(IN_TUPLES)[1:]),
    (vmpo, "ProbeReachPoint-v0"),
]


@pytest.mark.parametrize(("make", "name"), ALIKE)
def test_a_product_of_one_part_trains_exactly_as_that_part(make, name, tmp_path):
    def train(env):
        data = make(
            env__name=env,
            env__vectorization_mode="sync",
            env__max_frame=400,
            agent__net__log_std_init=-0.5 if name == "ProbeReachPoint-v0" else None,
        )
        return run_session(parse(data), tmp_path / env.replace("/", "_"))

    plain = train(name)
    product = train(f"InTuple/{name}")
    assert product.agent.learner.family.parts
    assert rows(product).equals(rows(plain))
    for net, flat in plain.agent.learner.flats.items():
        assert torch.equal(product.agent.learner.flats[net].vector, flat.vector)
