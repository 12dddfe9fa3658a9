"""Distributions against torch.distributions, and their independence from global
randomness."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as td
from torch.nn.functional import softplus
from torch.testing import assert_close

from slm_lab.agent.distribution.distributions import (
    Bernoulli,
    Beta,
    Categorical,
    DiagonalNormal,
    LogNormal,
    MultiCategorical,
    MultivariateNormal,
    TanhNormal,
)
from slm_lab.agent.distribution.family import (
    FAMILIES,
    distribution_family,
)
from slm_lab.core.actions import MixedActions
from tests.support import seeded

LOW = torch.tensor([-1.0, -1.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 4.0])


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed))


def moved(base, low=LOW, high=None):
    """The torch distribution `base` on (0, ·), shifted to `low` and scaled to
    `high`."""
    width = torch.ones(3) if high is None else high - low
    return td.Independent(
        td.TransformedDistribution(base, td.transforms.AffineTransform(low, width)), 1
    )


def covariance_factor(cholesky: torch.Tensor) -> torch.Tensor:
    """L from its entries, written out for A = 3."""
    a, b, c, x, y, z = cholesky.unbind(-1)
    zero = torch.zeros_like(a)
    rows = [[x.exp(), zero, zero], [a, y.exp(), zero], [b, c, z.exp()]]
    return torch.stack([torch.stack(row, -1) for row in rows], -2)


def pairs():
    """Our distribution, torch's, and actions for both."""
    logits = randn(6, 4) * 2
    mean = randn(6, 3, seed=1)
    log_std = randn(6, 3, seed=2) * 0.5
    std = log_std.exp()
    cholesky = randn(6, 6, seed=3) * 0.5
    fractions = torch.rand(6, 3, generator=seeded(4))
    bits = (randn(6, 3, seed=5) > 0).to(torch.int8)
    choices = torch.tensor([[0, 2], [1, 0], [1, 1], [0, 0], [1, 2], [0, 1]])
    two = randn(6, 2, seed=6)
    three = randn(6, 3, seed=7)
    return {
        "categorical": (
            Categorical(logits),
            td.Categorical(logits=logits),
            torch.tensor([0, 1, 2, 3, 0, 1]),
        ),
        "bernoulli": (
            Bernoulli(mean),
            td.Independent(td.Bernoulli(logits=mean), 1),
            bits,
        ),
        "normal": (
            DiagonalNormal(mean, log_std),
            td.Independent(td.Normal(mean, std), 1),
            mean + 0.3,
        ),
        "multivariate_normal": (
            MultivariateNormal(mean, cholesky),
            td.MultivariateNormal(mean, scale_tril=covariance_factor(cholesky)),
            mean + randn(6, 3, seed=8),
        ),
        "log_normal": (
            LogNormal(mean, log_std, LOW),
            moved(td.LogNormal(mean, std)),
            LOW + fractions + 0.1,
        ),
        "beta": (
            Beta(mean, log_std, LOW, HIGH),
            moved(td.Beta(1 + softplus(mean), 1 + softplus(log_std)), LOW, HIGH),
            LOW + (HIGH - LOW) * fractions,
        ),
        "multi_categorical": (
            MultiCategorical(torch.cat([two, three], -1), [2, 3]),
            (td.Categorical(logits=two), td.Categorical(logits=three)),
            choices,
        ),
    }


PAIRS = pairs()


@pytest.mark.parametrize("name", sorted(set(PAIRS) - {"multi_categorical"}))
def test_log_probabilities_are_those_of_torch(name):
    ours, theirs, action = PAIRS[name]
    expected = theirs.log_prob(
        action.to(torch.float32) if name == "bernoulli" else action
    )
    assert_close(ours.log_prob(action), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["categorical", "bernoulli", "normal", "multivariate_normal"]
)
def test_entropies_are_those_of_torch(name):
    ours, theirs, _ = PAIRS[name]
    assert_close(ours.entropy(), theirs.entropy())


def test_choices_at_once_are_independent_categoricals():
    ours, (first, second), action = PAIRS["multi_categorical"]
    expected = first.log_prob(action[:, 0]) + second.log_prob(action[:, 1])
    assert_close(ours.log_prob(action), expected)
    assert_close(ours.entropy(), first.entropy() + second.entropy())
    modes = torch.stack([first.logits.argmax(-1), second.logits.argmax(-1)], -1)
    assert torch.equal(ours.mode(), modes)


@pytest.mark.parametrize("name", PAIRS)
def test_no_action_is_likelier_than_the_mode(name):
    ours, _, _ = PAIRS[name]
    at_mode = ours.log_prob(ours.mode())
    generator = seeded(0)
    for _ in range(200):
        assert (ours.log_prob(ours.sample(generator)) <= at_mode + 1e-4).all()


@pytest.mark.parametrize("name", PAIRS)
def test_the_entropy_is_the_mean_of_minus_log_p_over_samples(name):
    ours, _, _ = PAIRS[name]
    generator = seeded(0)
    draws = torch.stack([ours.log_prob(ours.sample(generator)) for _ in range(4000)])
    error = draws.std(0) / len(draws) ** 0.5
    assert ((ours.entropy() + draws.mean(0)).abs() < 5 * error + 1e-3).all()


def test_beta_actions_stay_within_their_bounds_and_have_a_density_even_there():
    # α = β = 1: flat, so that samples come near the edges
    raw = torch.full((10_000, 1), -30.0)
    policy = Beta(raw, raw, torch.tensor([-1.0]), torch.tensor([1.0]))
    draws = policy.sample(seeded(0))
    assert ((draws >= -1) & (draws <= 1)).all()
    edges = torch.tensor([[-1.0], [1.0]]).repeat(5000, 1)
    assert_close(policy.log_prob(edges), torch.full((10_000,), 0.5).log())
    assert_close(policy.mode(), torch.zeros(10_000, 1))


SPACES = {
    spaces.Discrete: spaces.Discrete(3),
    spaces.MultiDiscrete: spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary: spaces.MultiBinary(4),
    spaces.Box: spaces.Box(-1.0, 1.0, (2,), np.float32),
    MixedActions: MixedActions(
        [spaces.MultiBinary(2), spaces.Discrete(3), spaces.MultiDiscrete([2, 3])]
    ),
}


@pytest.mark.parametrize(
    ("space", "pdtype"),
    [(space, name) for space, known in FAMILIES.items() for name in known],
)
def test_a_family_draws_actions_of_its_space_from_as_many_outputs_as_it_says(
    space, pdtype
):
    family = distribution_family(SPACES[space], pdtype)
    policy = family(randn(5, family.param_dim))
    actions = policy.sample(seeded(0))
    assert actions.shape == (5, *family.action_shape)
    assert actions.numpy().dtype == family.action_dtype
    assert policy.log_prob(actions).shape == policy.entropy().shape == (5,)
    # their support is larger
    if pdtype not in ("Normal", "MultivariateNormal", "LogNormal"):
        assert all(action in SPACES[space] for action in actions.numpy())
    if family.initial_scale is not None:
        scale = family.initial_scale(-0.5)
        free = torch.cat(
            [randn(5, family.param_dim - len(scale)), scale.expand(5, -1)], -1
        )
        assert family(free).entropy().std() < 1e-6 or pdtype == "LogNormal"


def test_a_log_normal_far_out_stays_finite():
    policy = LogNormal(
        torch.full((4, 1), 500.0), torch.zeros(4, 1), torch.tensor([-1.0])
    )
    actions = policy.sample(seeded(0))
    assert torch.isfinite(actions).all()
    assert torch.isfinite(policy.log_prob(actions)).all()
    assert torch.isfinite(policy.mode()).all()


def of_kind(name, first, second):
    """Our distribution and torch's from parameters (6, 3)."""
    if name == "categorical":
        return Categorical(first), td.Categorical(logits=first)
    if name == "bernoulli":
        return Bernoulli(first), td.Independent(td.Bernoulli(logits=first), 1)
    ours = Beta(first, second, LOW, HIGH)
    theirs = td.Beta(1 + softplus(first), 1 + softplus(second))
    return ours, td.Independent(theirs, 1)


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "beta"])
def test_the_divergence_from_an_older_distribution_is_that_of_torch(name):
    new, torch_new = of_kind(name, randn(6, 3, seed=1), randn(6, 3, seed=2))
    old, torch_old = of_kind(name, randn(6, 3, seed=3), randn(6, 3, seed=4))
    expected = td.kl_divergence(torch_old, torch_new).unsqueeze(-1)
    assert expected.min() > 0
    assert_close(new.kl_from(old), expected, rtol=1e-4, atol=1e-5)


def test_the_divergence_of_choices_at_once_is_the_sum_of_their_divergences():
    new = randn(6, 5, seed=1)
    old = randn(6, 5, seed=2)
    pairs_of_logits = zip(new.split([2, 3], -1), old.split([2, 3], -1), strict=True)
    expected = sum(Categorical(x).kl_from(Categorical(y)) for x, y in pairs_of_logits)
    divergence = MultiCategorical(new, [2, 3]).kl_from(MultiCategorical(old, [2, 3]))
    assert_close(divergence, expected)


NORMALS = {
    "diagonal": (
        DiagonalNormal,
        3,
        lambda mean, scale: td.Independent(td.Normal(mean, scale.exp()), 1),
    ),
    "correlated": (
        MultivariateNormal,
        6,
        lambda mean, scale: td.MultivariateNormal(
            mean, scale_tril=covariance_factor(scale)
        ),
    ),
}


@pytest.mark.parametrize(("kind", "size", "of_torch"), NORMALS.values(), ids=NORMALS)
def test_a_normal_distribution_has_a_divergence_by_its_mean_and_one_by_its_covariance(
    kind, size, of_torch
):
    mean = randn(6, 3, seed=1)
    old_mean = randn(6, 3, seed=2)
    scale = 0.5 * randn(6, size, seed=3)
    old_scale = 0.5 * randn(6, size, seed=4)
    old = of_torch(old_mean, old_scale)
    by_mean = td.kl_divergence(old, of_torch(mean, old_scale))
    by_covariance = td.kl_divergence(old, of_torch(old_mean, scale))
    divergence = kind(mean, scale).kl_from(kind(old_mean, old_scale))
    expected = torch.stack([by_mean, by_covariance], -1)
    assert_close(divergence, expected, rtol=1e-4, atol=1e-5)


def test_functions_of_normal_variables_have_the_divergences_of_the_variables():
    new = randn(6, 3, seed=1), 0.5 * randn(6, 3, seed=2)
    old = randn(6, 3, seed=3), 0.5 * randn(6, 3, seed=4)
    expected = DiagonalNormal(*new).kl_from(DiagonalNormal(*old))
    assert_close(LogNormal(*new, LOW).kl_from(LogNormal(*old, LOW)), expected)
    assert_close(TanhNormal(*new).kl_from(TanhNormal(*old)), expected)


@pytest.mark.parametrize("name", PAIRS)
def test_a_distribution_is_no_divergence_away_from_itself(name):
    ours, _, _ = PAIRS[name]
    divergence = ours.kl_from(ours)
    assert divergence.shape == (6, ours.num_bounds)
    assert_close(divergence, torch.zeros_like(divergence), atol=1e-6, rtol=0)
