"""What runs written out, and that it learns what torch does."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.algorithm.q_learning import DoubleDQN
from slm_lab.agent.algorithm.sac import SoftActorCritic
from slm_lab.agent.fast import choose
from slm_lab.agent.fast.objectives import WrittenLoss
from slm_lab.core.registry import ALGORITHMS
from tests.support import ppo, pqn, q_learning, sarsa, soft, vmpo
from tests.unit.agent.algorithm.batches import (
    CONTINUOUS,
    OneBatch,
    learner_of,
    rollout,
    transitions,
)

SMALL = {"agent__net__clip_grad_val": 0.5}


def on_policy(name, **keys):
    """With one net or two, with an entropy bonus."""
    algorithm = {
        "name": name,
        "gamma": 0.9,
        "entropy_coef_spec": {
            "name": "no_decay",
            "start_val": 0.1,
            "end_val": 0.1,
            "start_step": 0,
            "end_step": 0,
        },
    }
    memory = {"name": "OnPolicyBatchReplay"}
    return ppo(agent__algorithm=algorithm | keys, agent__memory=memory)


def value_is_known():
    return replace(rollout(), value=torch.full((3, 2), 0.5))


def continuous_rollout():
    action = torch.tensor([[[0.1], [-0.7]], [[0.9], [0.0]], [[0.3], [-1.4]]])
    known = value_is_known()
    return replace(
        known,
        obs=known.obs[..., :3],
        bootstrap_obs=known.bootstrap_obs[..., :3],
        action=action,
    )


def continuous():
    return OneBatch(transitions(CONTINUOUS))


def discrete():
    return OneBatch(transitions())


def with_weights(batch):
    weight = torch.linspace(0.2, 1.0, len(batch.action))
    return OneBatch(replace(batch, weight=weight))


def continuous_weighted():
    return with_weights(transitions(CONTINUOUS))


def weighted():
    return with_weights(transitions())


PENDULUM = {"env__name": "Pendulum-v1"}
CASES = {
    "PPO": (ppo(**SMALL), value_is_known),
    "PPO, clipped values": (ppo(agent__algorithm__clip_vloss=True), value_is_known),
    "PPO, one net": (ppo(agent__net__shared=True), value_is_known),
    "VMPO": (vmpo(**SMALL), value_is_known),
    "VMPO, one net": (vmpo(agent__net__shared=True, **SMALL), value_is_known),
    "VMPO, continuous": (vmpo(**PENDULUM, **SMALL), continuous_rollout),
    "ActorCritic": (on_policy("ActorCritic", lam=0.9), value_is_known),
    "Reinforce": (on_policy("Reinforce"), value_is_known),
    "DQN": (q_learning("DQN"), discrete),
    "DoubleDQN": (q_learning("DoubleDQN"), discrete),
    "QRDQN": (q_learning("QRDQN", agent__algorithm__num_quantiles=5), discrete),
    "QRDQN, by priority": (
        q_learning(
            "QRDQN",
            agent__algorithm__num_quantiles=4,
            agent__algorithm__kappa=0.0,
            agent__algorithm__double=True,
        ),
        weighted,
    ),
    "SoftActorCritic": (soft("SoftActorCritic", **PENDULUM), continuous),
    "SoftActorCritic, with a penalty": (
        soft("SoftActorCritic", **PENDULUM, agent__algorithm__entropy_penalty_coef=0.5),
        continuous,
    ),
    "SARSA": (sarsa(), rollout),
    "PQN": (pqn(agent__net__layer_norm=False), rollout),
    "REDQ": (soft("REDQ", **PENDULUM, agent__algorithm__num_critics=3), continuous),
    "TD3": (soft("TD3", **PENDULUM), continuous),
    "TQC": (soft("TQC", **PENDULUM), continuous),
    "TQC, by priority": (
        soft(
            "TQC",
            **PENDULUM,
            agent__algorithm__num_critics=3,
            agent__algorithm__num_quantiles=5,
            agent__algorithm__quantiles_dropped=0,
            agent__algorithm__num_step_returns=2,
        ),
        continuous_weighted,
    ),
}


def losses_of(learner):
    """The losses that its optimizers minimise from now on. V-MPO's few dual variables
    always learn by torch."""
    seen = []
    for name, optimizer in learner.train_state.optimizers.items():
        if name != "duals":
            optimizer.backward = watched(optimizer.backward, seen)
    return seen


def watched(function, seen):
    return lambda loss: (seen.append(loss), function(loss))[1]


@pytest.mark.parametrize(("data", "batch"), CASES.values(), ids=CASES)
def test_written_out_steps_learn_what_torch_learns(data, batch, monkeypatch):
    written = learner_of(data)
    monkeypatch.setattr(choose, "write_out_steps", lambda learner: None)
    in_torch = learner_of(data)
    losses = losses_of(written)
    tensors = losses_of(in_torch)
    for frame in range(3):
        report, expected = (each.learn(batch(), frame) for each in (written, in_torch))
        assert report == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)
    assert losses
    assert all(isinstance(loss, WrittenLoss) for loss in losses)
    assert all(isinstance(loss, torch.Tensor) for loss in tensors)
    for name, flat in in_torch.flats.items():
        assert_close(written.flats[name].vector, flat.vector, rtol=1e-4, atol=1e-6)


def test_the_objective_of_another_package_stays(monkeypatch):
    class OwnLoss(DoubleDQN):
        def __init__(self, *args):
            super().__init__(*args)
            self.objective = self.own_objective

        def own_objective(self, obs, action, target_of, weight):
            raise NotImplementedError

    class OwnCritics(SoftActorCritic):
        def torch_critic_objective(self, batch, draws, alpha):
            raise NotImplementedError

    for name, learner_class, data in (
        ("objective", OwnLoss, q_learning("DoubleDQN")),
        ("critic_objective", OwnCritics, soft("SoftActorCritic", **PENDULUM)),
    ):
        monkeypatch.setattr(ALGORITHMS, "load", lambda _, own=learner_class: own)
        learner = learner_of(data)
        assert isinstance(learner, learner_class)
        assert getattr(learner, name).__self__ is learner


@pytest.mark.parametrize("name", ["C51", "IQN"])
def test_other_distributions_of_the_return_learn_by_torch(name):
    learner = learner_of(q_learning(name))
    assert learner.return_objective == learner.torch_objective


def test_an_actor_has_the_means_of_quantiles():
    learner = learner_of(q_learning("QRDQN", agent__algorithm__num_quantiles=5))
    head = learner.network.nets[0]
    obs = torch.randn(8, 4)
    with torch.no_grad():
        expected = head.net(obs)[0].view(8, -1, 5).mean(-1)
    (found,) = choose.array_net(head).forward(obs.numpy())
    assert_close(torch.from_numpy(found), expected)


def test_a_forward_without_gradients_is_by_arrays():
    network = learner_of(ppo()).network
    net = network.nets[0].net
    assert net.without_gradient is not None
    obs = torch.randn(8, 4)
    with torch.no_grad():
        expected = network.policy(obs)
    assert_close(network.policy(obs).detach(), expected)
