"""Soft actor-critic and CrossQ against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import linear
from torch.testing import assert_close

from slm_lab.agent.algorithm.dual import LogNumbers
from slm_lab.agent.algorithm.expectation import (
    GUMBEL_SOFTMAX,
    exact,
    gumbel_softmax,
)
from slm_lab.agent.algorithm.temperature import TunedTemperature
from slm_lab.agent.distribution.distributions import Categorical, TanhNormal
from slm_lab.agent.net.layers import Linear
from slm_lab.agent.net.value_transform import symexp
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import Adam
from slm_lab.core.errors import LabError
from slm_lab.testing.play import Play
from tests.support import parse, ppo, randn, seeded, soft
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import (
    CONTINUOUS,
    DISCRETE,
    OneBatch,
    transitions,
)

GAMMA = 0.9
MEMORY = {"name": "Replay", "batch_size": 4, "max_size": 100}


def learner_of(name="SoftActorCritic", env="CartPole-v1", net=None, **algorithm):
    net = {
        "type": "MLPNet",
        "hid_layers": [8],
        "hid_layers_activation": "tanh",
        "optim_spec": {"name": "SGD", "lr": 0.1},
        "update_type": "polyak",
        "polyak_coef": 0.01,
        **(net or {}),
    }
    algorithm = {"name": name, "gamma": GAMMA, **algorithm}
    return batches.learner_of(
        ppo(
            agent__algorithm=algorithm,
            agent__memory=MEMORY,
            agent__net=net,
            env__name=env,
        )
    )


def critics(flat):
    """Both critics of a flat vector as functions, for nets of one hidden layer of
    tanh."""
    views = flat.views
    half = len(flat.views) // 2

    def critic(weight, bias, head_weight, head_bias):
        return lambda x: linear(linear(x, weight, bias).tanh(), head_weight, head_bias)

    return critic(*views[:half]), critic(*views[half:])


@pytest.mark.parametrize(
    ("env", "action"), [("CartPole-v1", DISCRETE), ("Pendulum-v1", CONTINUOUS)]
)
def test_the_actor_step_leaves_the_critics_as_they_are_and_needs_no_gradient_of_theirs(
    env, action
):
    """As a learner that makes no step of the actor yet."""
    both = learner_of(env=env)
    waits = learner_of(env=env, policy_delay=2)
    before = both.flats["actor"].vector.clone()
    for learner in (both, waits):
        learner.learn(OneBatch(transitions(action)), 0)
    ours = both.flats["critic"]
    theirs = waits.flats["critic"]
    assert torch.equal(ours.vector, theirs.vector)
    assert torch.equal(ours.grad, theirs.grad)
    assert torch.equal(waits.flats["actor"].vector, before)
    assert not torch.equal(both.flats["actor"].vector, before)
    assert all(view.requires_grad for view in ours.views)


@pytest.mark.parametrize("symlog", [False, True])
def test_the_actor_loss_is_minus_the_soft_value_by_the_mean_of_the_critics(symlog):
    """Of discrete actions; symlog's inverse is taken of each before the mean."""
    learner = learner_of(symlog=symlog, fixed_alpha=0.2)
    batch = transitions()
    with torch.no_grad():
        log_p = learner.actor.policy(batch.obs).log_softmax(-1)
    report = learner.learn(OneBatch(batch), 0)
    with torch.no_grad():  # the critics' step is first
        first, second = (
            critic(batch.obs) for critic in critics(learner.flats["critic"])
        )
        q = (symexp(first) + symexp(second)) / 2 if symlog else (first + second) / 2
        expected = (log_p.exp() * (0.2 * log_p - q)).sum(-1).mean()
    assert report["policy_loss"] == pytest.approx(expected.item(), rel=1e-5)


def test_the_gumbel_softmax_expectation_is_the_exact_one_on_average():
    params = randn(1, 3)
    q = torch.tensor([[1.0, -2.0, 4.0]])
    many = params.expand(100_000, 3)
    generator = seeded(1)
    drawn = gumbel_softmax(
        many, lambda _: q, GUMBEL_SOFTMAX.draw((100_000, 3), generator)
    )
    wanted = exact(params, lambda _: q, torch.empty(0))
    assert drawn.value.mean().item() == pytest.approx(wanted.value.item(), abs=0.03)
    assert drawn.entropy.mean().item() == pytest.approx(wanted.entropy.item(), abs=0.02)
    logits = params.clone().requires_grad_()
    noise = GUMBEL_SOFTMAX.draw((1, 3), generator)
    gumbel_softmax(logits, lambda _: q, noise).value.sum().backward()
    assert logits.grad.abs().sum() > 0


def test_the_squashed_density_is_that_of_torch_and_finite_far_out():
    draws = randn(2, 5, 3) * 0.4
    mean, log_std = draws.unbind()
    ours = TanhNormal(mean, log_std)
    theirs = torch.distributions.TransformedDistribution(
        torch.distributions.Normal(mean, log_std.exp()),
        torch.distributions.TanhTransform(),
    )
    action, log_prob = ours.sample_with_log_prob(seeded(1))
    assert_close(log_prob, theirs.log_prob(action).sum(-1), rtol=1e-3, atol=1e-3)
    assert_close(ours.log_prob(action), log_prob, rtol=1e-3, atol=1e-3)
    far = TanhNormal(torch.full((1, 1), 20.0), torch.zeros(1, 1))
    _, log_prob = far.sample_with_log_prob(seeded(0))
    assert torch.isfinite(log_prob).all()


def test_the_entropy_of_a_squashed_normal_is_the_mean_of_minus_log_p():
    mean = torch.tensor([[0.5, -1.0]])
    log_std = torch.tensor([[0.0, -0.5]])
    size = 200_000
    many = TanhNormal(mean.expand(size, 2), log_std.expand(size, 2))
    _, log_prob = many.sample_with_log_prob(seeded(0))
    entropy = TanhNormal(mean, log_std).entropy().item()
    assert entropy == pytest.approx(-log_prob.mean().item(), abs=0.01)


def tuned(target_entropy, bounds=(-20.0, 2.0)):
    log_alpha = LogNumbers()
    flat = FlatParameters(log_alpha)
    optimizer = Optimizer(
        flat=flat,
        rule=Adam(flat),
        learning_rate=LearningRate(0.1),
        clip_grad_val=None,
        bounds=bounds,
    )
    return TunedTemperature(log_alpha, optimizer, target_entropy)


def alpha_of(temperature, frame=0):
    return temperature.alpha(temperature.scheduled(frame))


def test_the_temperature_rises_while_there_is_too_little_entropy_and_falls_otherwise():
    for entropy, sign in ((0.2, 1), (0.8, -1)):
        temperature = tuned(0.5)
        temperature.update(torch.full((4,), entropy))
        assert alpha_of(temperature) == pytest.approx(math.exp(sign * 0.1), rel=1e-4)


def test_the_temperature_stays_between_its_bounds_and_comes_back_from_them():
    temperature = tuned(0.5, bounds=(-0.15, 0.15))
    for _ in range(10):
        temperature.update(torch.full((4,), 9.0))
    assert alpha_of(temperature) == pytest.approx(math.exp(-0.15))
    for _ in range(60):
        temperature.update(torch.full((4,), -9.0))
    assert alpha_of(temperature) == pytest.approx(math.exp(0.15))


@pytest.mark.parametrize(
    ("greatest", "first"),
    [(2.0, 1.0), (0.0, 1.0), (-1.0, math.exp(-1.0)), (-3.5, math.exp(-3.5))],
)
def test_the_temperature_begins_at_one_or_at_its_greatest_value(greatest, first):
    learner = batches.learner_of(
        soft("SoftActorCritic", agent__algorithm__log_alpha_max=greatest)
    )
    assert alpha_of(learner.temperature) == pytest.approx(first)


@pytest.mark.parametrize(
    ("optim", "default"),
    [
        (
            {"name": "GlobalAdam", "betas": [0.5, 0.9], "eps": 1e-3, "amsgrad": True},
            "Adam",
        ),
        ({"name": "RMSprop", "momentum": 0.9, "centered": True}, "RMSprop"),
        ({"name": "SGD", "momentum": 0.9, "nesterov": True}, "SGD"),
    ],
)
@pytest.mark.parametrize("alpha_lr", [None, 0.02])
def test_of_the_actors_optimizer_the_temperature_has_class_and_learning_rate_alone(
    optim, default, alpha_lr
):
    """Its steps are those of torch's class with default arguments."""
    keys = {
        "agent__net__optim_spec": {**optim, "lr": 0.1},
        "agent__algorithm__alpha_lr": alpha_lr,
    }
    temperature = batches.learner_of(soft("CrossQ", **keys)).temperature
    number = torch.zeros((), requires_grad=True)
    plain = getattr(torch.optim, default)([number], lr=alpha_lr or 0.1)
    for entropy in (0.1, 0.4, 2.0, 0.9, 0.2):
        temperature.update(torch.full((4,), entropy))
        plain.zero_grad()
        (number * (entropy - 0.98 * math.log(2))).backward()
        plain.step()
        with torch.no_grad():
            number.clamp_(-20.0, 2.0)
        assert math.log(alpha_of(temperature)) == pytest.approx(number.item(), abs=1e-6)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_an_entropy_that_no_policy_has_is_refused_as_a_target(env):
    """Two actions, or one number in [−1, 1]: ln 2 either way."""
    learner_of(env=env, target_entropy=0.69)
    with pytest.raises(LabError, match=r"target_entropy = 0\.7: must be < 0\.693"):
        learner_of(env=env, target_entropy=0.7)


def test_a_fixed_temperature_may_be_annealed():
    schedule = {
        "name": "linear_decay",
        "start_val": 1.0,
        "end_val": 0.0,
        "end_step": 100,
    }
    learner = learner_of(fixed_alpha=schedule)
    assert [alpha_of(learner.temperature, frame) for frame in (0, 50, 200)] == [
        1.0,
        0.5,
        0.0,
    ]
    assert "alpha" not in learner.flats


def test_the_actor_waits_for_its_critics():
    learner = learner_of(policy_delay=3)
    source = OneBatch(transitions())
    actor = learner.flats["actor"].vector
    changed = []
    for _ in range(6):
        before = actor.clone()
        learner.learn(source, 0)
        changed.append(not torch.equal(actor, before))
    assert changed == [False, False, True, False, False, True]


@pytest.mark.parametrize(
    ("place", "counts"), [("before", (1, 0)), (None, (2, 2)), ("after", (2, 2))]
)
def test_by_default_actor_and_critics_of_crossq_are_normalised_as_by_its_authors(
    place, counts
):
    """One hidden layer has its norm, and the authors add one of the input."""
    learner = learner_of("CrossQ", net={"norm_place": place})
    counters = [len(learner.flats[name].counters) for name in ("critic", "actor")]
    assert counters == [2 * counts[0], counts[1]]


def test_an_actor_of_crossq_learns_with_its_own_batch_and_acts_with_what_it_has_seen():
    learner = learner_of("CrossQ", env="Pendulum-v1")
    batch = transitions(CONTINUOUS)
    flat = learner.flats["actor"]
    learner.learn(OneBatch(batch), 0)
    # of the first norm, of the input
    mean = flat.statistics[:3]
    var = flat.statistics[3:6]
    assert_close(mean, 0.01 * batch.obs.mean(0))
    hidden_mean = flat.statistics[7:15]
    hidden_var = flat.statistics[15:23]
    with torch.no_grad():
        weight, bias, *norms, head_weight, head_bias = flat.views
        x = (batch.obs - mean) / (var + 1e-3).sqrt() * norms[0] + norms[1]
        x = linear(x, weight, bias).tanh()
        x = (x - hidden_mean) / (hidden_var + 1e-3).sqrt() * norms[2] + norms[3]
        expected = linear(x, head_weight, head_bias)
    acted = learner.actor.act(batch.obs.numpy()).params
    assert_close(torch.from_numpy(acted), expected)


@pytest.mark.parametrize("matmul", ["torch", "numpy"])
def test_every_layer_of_spectrally_normalised_critics_keeps_norm_one_while_it_learns(
    matmul,
):
    """Steps so large that the weights behind the norm grow to several times their
    size."""
    optimizer = {"optim_spec": {"name": "SGD", "lr": 0.5}}
    net = {"hid_layers": [16, 16], "matmul": matmul, "polyak_coef": 0.05, **optimizer}
    learner = learner_of(env="Pendulum-v1", spectral_norm=True, net=net)
    source = OneBatch(transitions(CONTINUOUS))
    for _ in range(60):
        learner.learn(source, 0)
    nets = (*learner.critic.nets, *learner.critic.targets)
    layers = [
        each for net in nets for each in net.modules() if isinstance(each, Linear)
    ]
    assert len(layers) == 12
    for layer in layers:
        assert torch.linalg.matrix_norm(layer.weight, 2).item() == pytest.approx(
            1, abs=0.05
        )


def test_the_entropy_penalty_is_the_squared_change_from_the_policy_that_acted():
    plain = learner_of()
    penalised = learner_of(entropy_penalty_coef=0.5)
    batch = transitions()
    with torch.no_grad():
        entropy = Categorical(plain.actor.policy(batch.obs)).entropy()
    change = 0.5 * ((-batch.log_prob - entropy) ** 2).mean()
    losses = [
        learner.learn(OneBatch(batch), 0)["policy_loss"]
        for learner in (plain, penalised)
    ]
    assert losses[1] - losses[0] == pytest.approx(0.5 * change.item(), rel=1e-4)


@pytest.mark.parametrize("name", ["SoftActorCritic", "CrossQ"])
@pytest.mark.parametrize("env", ["Pendulum-v1", "CartPole-v1"])
def test_actions_are_uniform_until_training_begins_and_are_recorded_so(name, env):
    """One number in [−1, 1], or two actions: log π = −ln 2 either way."""
    play = Play(parse(soft(name, env__name=env, env__max_t=40)))
    is_uniform = []
    for _ in range(20):  # of 4 environments; training begins at 32 stored steps
        act = play.agent.act(play.obs, play.frame)
        is_uniform.append(np.allclose(act.log_prob, -math.log(2), atol=1e-6))
        play.step()
        play.agent.learn(play.frame)
    assert is_uniform == [True] * 8 + [False] * 12
    play.env.close()


@pytest.mark.parametrize("keys", [{"random_warmup": False}, {"training_start_step": 0}])
def test_the_policy_acts_from_the_beginning_where_that_is_asked_for(keys):
    own = {f"agent__algorithm__{key}": value for key, value in keys.items()}
    play = Play(parse(soft("SoftActorCritic", env__name="Pendulum-v1", **own)))
    assert not np.allclose(
        play.agent.act(play.obs, 0).log_prob, -math.log(2), atol=1e-3
    )
    play.env.close()
