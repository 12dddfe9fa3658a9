"""Every off-policy update is one step down the gradient of its loss, written here in
NumPy.

The losses are functions of the weights, in float64 and without autograd; their
gradients are taken by central differences. So a target that is not held fixed shows as
well as one that is wrong.
"""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from slm_lab.agent.batch import ImitationBatch
from tests.support import actor_critic, q_learning, sarsa, soft
from tests.unit.agent.algorithm import batches
from tests.unit.agent.algorithm.batches import (
    OneBatch,
    learner_of,
    rollout,
    transitions,
)

GAMMA = 0.9
LR = {"agent__net__optim_spec": {"name": "SGD", "lr": 0.5}}
SMALL = {
    "agent__algorithm__gamma": GAMMA,
    "agent__net__hid_layers": [5],
    "agent__net__init_fn": "xavier_uniform_",
    "agent__net__clip_grad_val": None,
    **LR,
}
DISCRETE = {}
CONTINUOUS = {"env__name": "Pendulum-v1"}
ALPHA_LR = 0.3


class Numbers:
    """The fields of a batch as float64, actions as they are."""

    def __init__(self, batch):
        for name in ("obs", "reward", "discount", "next_obs", "weight"):
            setattr(self, name, getattr(batch, name).numpy().astype(np.float64))
        self.action = batch.action.numpy()


def weights(flat):
    return flat.vector.numpy().astype(np.float64)


def named(flat, vector):
    """The parts of a flat vector by the names that its layout gives them."""
    parts = {}
    begin = 0
    for name, shape in flat.state_dict()["layout"]:
        size = math.prod(shape)
        if begin < len(vector):
            parts[name] = vector[begin : begin + size].reshape(shape)
        begin += size
    return parts


def mlp(parts, prefix, x):
    """One hidden layer of tanh, one head."""
    hidden = np.tanh(
        x @ parts[f"{prefix}hidden.0.weight"].T + parts[f"{prefix}hidden.0.bias"]
    )
    return hidden @ parts[f"{prefix}heads.0.weight"].T + parts[f"{prefix}heads.0.bias"]


def gradient(loss, at):
    """By central differences."""
    found = np.empty_like(at)
    for i in range(len(at)):
        step = np.zeros_like(at)
        step[i] = 1e-5
        found[i] = (loss(at + step) - loss(at - step)) / 2e-5
    return found


def assert_stepped(flat, before, loss, lr=0.5):
    """Whether the weights are where one step down the gradient of `loss` leads, and
    have moved."""
    step = -lr * gradient(loss, before)
    assert np.abs(step).max() > 1e-3
    assert_allclose(weights(flat) - before, step, rtol=2e-3, atol=2e-6)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("name", ["VanillaDQN", "DQN", "DoubleDQN"])
def test_q_learning_holds_the_value_of_the_next_state_fixed(name):
    learner = learner_of(q_learning(name, **SMALL))
    flat = learner.flats["q"]
    target_flat = learner.network.target_network.target
    with torch.no_grad():
        target_flat.vector.mul_(-0.7)
    batch = transitions()
    b = Numbers(batch)
    rows = np.arange(4)
    before = weights(flat)
    online = mlp(named(flat, before), "", b.next_obs)
    target = mlp(named(flat, weights(target_flat)), "", b.next_obs)
    next_value = {
        "VanillaDQN": online.max(-1),
        "DQN": target.max(-1),
        "DoubleDQN": target[rows, online.argmax(-1)],
    }[name]
    y = b.reward + b.discount * next_value

    def loss(theta):
        q = mlp(named(flat, theta), "", b.obs)[rows, b.action]
        return (b.weight * (q - y) ** 2).mean()

    learner.learn(OneBatch(batch), 0)
    assert_stepped(flat, before, loss)


def test_sarsa_holds_the_value_of_the_next_action_fixed():
    greedy = {
        "agent__algorithm__action_policy": "default",
        "agent__algorithm__explore_var_spec": None,
    }
    learner = learner_of(sarsa(**SMALL, **greedy))
    flat = learner.flats["q"]
    batch = rollout()
    before = weights(flat)
    obs = batch.obs.numpy().astype(np.float64).reshape(6, 4)
    action = batch.action.numpy().reshape(6)
    reward = batch.reward.numpy().reshape(6)
    q = mlp(named(flat, before), "", obs)[np.arange(6), action]
    beyond = mlp(
        named(flat, before), "", batch.bootstrap_obs.numpy().astype(np.float64)
    ).max(-1)
    # By step and environment: (0, 1) is truncated, (1, 0) terminated, the last two are
    # cut.
    following = np.array([q[2], beyond[0], 0.0, q[5], beyond[1], beyond[2]])
    y = reward + GAMMA * following

    def loss(theta):
        return (
            (mlp(named(flat, theta), "", obs)[np.arange(6), action] - y) ** 2
        ).mean()

    learner.learn(batch, 0)
    assert_stepped(flat, before, loss)


class Policy:
    """What is expected of a soft policy's actions, from what its network puts out."""

    def __init__(self, learner, continuous):
        self.flat = learner.flats["actor"]
        self.continuous = continuous
        self.generator = torch.Generator()
        self.generator.set_state(learner.generator.get_state())

    def noise(self):
        """That of the next action which the learner averages over."""
        return (
            torch.empty(4, 1)
            .normal_(generator=self.generator)
            .numpy()
            .astype(np.float64)
        )

    def expect(self, theta, obs, q, noise):
        """E[Q] and the entropy (B,); `q` has values (B, n), or takes actions (B, 1)."""
        out = mlp(named(self.flat, theta), "net.", obs)
        if not self.continuous:
            log_p = log_softmax(out)
            return (np.exp(log_p) * q(None)).sum(-1), -(np.exp(log_p) * log_p).sum(-1)
        mean = out[:, :1]
        log_std = out[:, 1:]
        action = np.tanh(mean + np.exp(log_std) * noise)
        log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        return q(action), -(log_prob - np.log(1 - action**2)).sum(-1)


def critics(flat, theta, obs, action, taken=None, net=mlp):
    """Both critics: of actions (B, 1), of all discrete ones, or of those `taken`
    (B,)."""
    x = obs
    if action is not None:
        x = np.concatenate([obs, action], -1)
    both = [net(named(flat, theta), f"{i}.", x) for i in range(2)]
    if action is not None:
        return [q[:, 0] for q in both]
    if taken is None:
        return both
    return [q[np.arange(len(taken)), taken] for q in both]


def soft_learner(name, env, **algorithm):
    keys = {f"agent__algorithm__{key}": value for key, value in algorithm.items()}
    return learner_of(
        soft(name, **SMALL, **env, agent__algorithm__alpha_lr=ALPHA_LR, **keys)
    )


def of_taken(b, continuous):
    """The arguments `action` and `taken` of `critics` for what was done."""
    if continuous:
        return (b.action.astype(np.float64), None)
    return (None, b.action)


def actor_value(q, continuous):
    """Of two critics: the smaller of continuous actions, the mean of discrete ones."""
    if continuous:
        return np.minimum(*q)
    return (q[0] + q[1]) / 2


def target_entropy(continuous):
    if continuous:
        return -1.0
    return 0.98 * math.log(2)


@pytest.mark.parametrize(("env", "continuous"), [(DISCRETE, False), (CONTINUOUS, True)])
def test_soft_actor_critic_steps_down_its_three_losses(env, continuous):
    learner = soft_learner("SoftActorCritic", env)
    batch = transitions(batches.CONTINUOUS if continuous else batches.DISCRETE)
    actor, critic, log_alpha = (
        learner.flats[name] for name in ("actor", "critic", "alpha")
    )
    with torch.no_grad():
        learner.critic.target_network.target.vector.mul_(-0.5)
        log_alpha.vector.fill_(-1.5)
    alpha = math.exp(-1.5)
    b = Numbers(batch)
    policy = Policy(learner, continuous)
    first = policy.noise()
    second = policy.noise()
    target = weights(learner.critic.target_network.target)
    before = weights(critic)
    actor_before = weights(actor)

    value, entropy = policy.expect(
        actor_before,
        b.next_obs,
        lambda action: np.minimum(*critics(critic, target, b.next_obs, action)),
        first,
    )
    y = b.reward + b.discount * (value + alpha * entropy)

    def critic_loss(theta):
        q = critics(critic, theta, b.obs, *of_taken(b, continuous))
        return sum((b.weight * (each - y) ** 2).mean() for each in q)

    def actor_loss(theta):
        value, entropy = policy.expect(
            theta,
            b.obs,
            lambda action: actor_value(
                critics(critic, weights(critic), b.obs, action), continuous
            ),
            second,
        )
        return -(value + alpha * entropy).mean()

    _, entropy = policy.expect(actor_before, b.obs, lambda _: np.zeros((4, 2)), second)
    q = critics(critic, before, b.obs, *of_taken(b, continuous))
    source = OneBatch(batch)
    learner.learn(source, 0)
    assert_allclose(source.error, y - q[0], rtol=1e-3, atol=1e-5)
    assert_stepped(critic, before, critic_loss)
    assert_stepped(actor, actor_before, actor_loss)
    surplus = entropy.mean() - target_entropy(continuous)
    assert abs(surplus) > 1e-2
    assert log_alpha.vector.item() == pytest.approx(-1.5 - ALPHA_LR * surplus, rel=1e-4)


def batch_normed(parts, prefix, x):
    """As `mlp`, each hidden unit normalised over the batch first."""
    hidden = x @ parts[f"{prefix}hidden.0.weight"].T + parts[f"{prefix}hidden.0.bias"]
    normal = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + 1e-3)
    return head_of(parts, prefix, normal)


def head_of(parts, prefix, normal):
    normal = normal * parts[f"{prefix}norms.0.weight"] + parts[f"{prefix}norms.0.bias"]
    return (
        np.tanh(normal) @ parts[f"{prefix}heads.0.weight"].T
        + parts[f"{prefix}heads.0.bias"]
    )


def running_moments(parts, prefix, x):
    """After one batch `x`: a hundredth of its moments, the rest those of a standard
    normal."""
    hidden = x @ parts[f"{prefix}hidden.0.weight"].T + parts[f"{prefix}hidden.0.bias"]
    return 0.01 * hidden.mean(0), 0.99 + 0.01 * hidden.var(0)


@pytest.mark.parametrize(("env", "continuous"), [(DISCRETE, False), (CONTINUOUS, True)])
def test_crossq_steps_down_its_losses_through_the_statistics_of_the_joint_batch(
    env, continuous
):
    """With the norm before the activation, and none in the actor."""
    before_activation = {**env, "agent__net__norm_place": "before"}
    learner = soft_learner("CrossQ", before_activation)
    batch = transitions(batches.CONTINUOUS if continuous else batches.DISCRETE)
    actor = learner.flats["actor"]
    critic = learner.flats["critic"]
    b = Numbers(batch)
    policy = Policy(learner, continuous)
    first = policy.noise()
    second = policy.noise()
    before = weights(critic)
    actor_before = weights(actor)
    seen = []

    def joint(theta, next_action):
        """The critics of this state and of the next, from one batch of both."""
        actions = None
        if next_action is not None:
            actions = np.concatenate([b.action, next_action])
        both = np.concatenate([b.obs, b.next_obs])
        seen[:] = [
            both if actions is None else np.concatenate([both, actions], -1),
            next_action,
        ]
        q = critics(critic, theta, both, actions, net=batch_normed)
        now = [each[:4] if continuous else each[np.arange(4), b.action] for each in q]
        return now, np.minimum(*(each[4:] for each in q))

    value, entropy = policy.expect(
        actor_before, b.next_obs, lambda action: joint(before, action)[1], first
    )
    y = b.reward + b.discount * (value + 1.0 * entropy)  # α begins at 1
    inputs, next_action = seen

    def critic_loss(theta):
        return sum(
            (b.weight * (q - y) ** 2).mean() for q in joint(theta, next_action)[0]
        )

    moments = {
        f"{i}.": running_moments(named(critic, before), f"{i}.", inputs)
        for i in range(2)
    }

    def as_running(parts, prefix, x):
        mean, var = moments[prefix]
        hidden = (
            x @ parts[f"{prefix}hidden.0.weight"].T + parts[f"{prefix}hidden.0.bias"]
        )
        return head_of(parts, prefix, (hidden - mean) / np.sqrt(var + 1e-3))

    def actor_loss(theta):
        value, entropy = policy.expect(
            theta,
            b.obs,
            lambda action: actor_value(
                critics(critic, weights(critic), b.obs, action, net=as_running),
                continuous,
            ),
            second,
        )
        return -(value + 1.0 * entropy).mean()

    learner.learn(OneBatch(batch), 0)
    assert_stepped(critic, before, critic_loss)
    assert_stepped(actor, actor_before, actor_loss)


def test_self_imitation_steps_down_its_two_losses_where_the_past_was_better():
    coefficients = {"sil_policy_loss_coef": 0.7, "sil_val_loss_coef": 0.4}
    memory = {
        "name": "OnPolicyBatchReplay",
        "sil_replay_name": "Replay",
        "batch_size": 4,
        "max_size": 100,
    }
    learner = learner_of(
        actor_critic(
            **SMALL,
            agent__algorithm__name="SIL",
            agent__memory=memory,
            **{
                f"agent__algorithm__{key}": value for key, value in coefficients.items()
            },
        )
    )
    actor = learner.flats["actor"]
    critic = learner.flats["critic"]
    batch = transitions()
    b = Numbers(batch)
    before = weights(actor)
    critic_before = weights(critic)

    def gain(theta):
        """(R − V)₊, the reward of a past step being its whole return."""
        return np.maximum(b.reward - mlp(named(critic, theta), "0.", b.obs)[:, 0], 0.0)

    fixed = gain(critic_before)
    assert 0 < (fixed > 0).sum() < 4

    def policy_loss(theta):
        log_p = log_softmax(mlp(named(actor, theta), "net.", b.obs))[
            np.arange(4), b.action
        ]
        return -0.7 * (b.weight * log_p * fixed).mean()

    past = OneBatch(batch)
    learner._imitate(ImitationBatch(None, past), 0)
    assert_stepped(actor, before, policy_loss)
    assert_stepped(
        critic,
        critic_before,
        lambda theta: 0.4 * (b.weight * 0.5 * gain(theta) ** 2).mean(),
    )
    assert_allclose(past.error.numpy(), fixed, rtol=1e-4)
