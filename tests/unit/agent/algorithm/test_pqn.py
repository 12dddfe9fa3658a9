"""PQN against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.recurrent_state import flatten_obs, unflatten_steps
from slm_lab.session.experience import observed
from tests.support import pqn
from tests.unit.agent.algorithm.batches import GAMMA, agent_of, build, rollout


def learner_of(net, **keys):
    """A learner whose training event on `rollout()` is one minibatch by default."""
    algorithm = {
        "name": "PQN",
        "time_horizon": 3,
        "minibatch_size": 6,
        "training_epoch": 1,
        **keys,
    }
    memory = {"name": "OnPolicyBatchReplay"}
    return agent_of(algorithm, memory, **net).learner


NETS = {
    "layer_norm": {"layer_norm": True},
    "written_out": {},
}


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_the_loss_is_the_squared_error_of_the_lambda_returns(net):
    """The first environment ends by itself after the second step, the second is cut
    off after the first. λ = ¼."""
    learner = learner_of(net, lam=0.25)
    batch = rollout()
    with torch.no_grad():
        q_all = learner.network.q(batch.obs.flatten(0, 1)).view(3, 2, 2).numpy()
        beyond = learner.network.q(batch.bootstrap_obs).numpy().max(-1)
    q = np.take_along_axis(q_all, batch.action.numpy()[..., None], -1)[..., 0]
    best = q_all.max(-1)
    cut, last0, last1 = beyond
    second = 1.0 + GAMMA * (0.25 * (1.0 + GAMMA * last1) + 0.75 * best[2, 1])
    target = np.array(
        [
            [1.0 + GAMMA * (0.25 * 2.0 + 0.75 * best[1, 0]), 0.0 + GAMMA * cut],
            [2.0, second],
            [0.5 + GAMMA * last0, 1.0 + GAMMA * last1],
        ]
    )
    report = learner.learn(batch, 0)
    assert report["loss"] == pytest.approx(((q - target) ** 2).mean(), rel=1e-5)
    assert report["q_value"] == pytest.approx(q.mean(), rel=1e-5)
    assert (learner.opt_step, learner.version) == (1, 1)


def test_the_targets_hold_for_all_epochs():
    """Weights move in every step, targets only with the next rollout."""
    learner = learner_of({}, minibatch_size=2, training_epoch=3)
    step = learner.step
    seen = []

    def noted(batch):
        seen.append(batch)
        return step(batch)

    learner.step = noted
    learner.learn(rollout(), 0)
    assert [len(batch.target) for batch in seen] == [2] * 9
    pairs = [
        sorted(
            (*obs.tolist(), target.item())
            for batch in seen[first : first + 3]
            for obs, target in zip(batch.obs, batch.target, strict=True)
        )
        for first in (0, 3, 6)
    ]
    assert pairs[0] == pairs[1] == pairs[2]


RECURRENT = {
    "type": "RecurrentNet",
    "fc_hid_layers": [8],
    "rnn_hidden_size": 8,
    "seq_len": 3,
    "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
}


@pytest.mark.parametrize("net", [None, RECURRENT], ids=["plain", "recurrent"])
def test_q_of_a_rollout_is_q_when_it_acted(net):
    """So that targets need no values that actors have recorded."""
    data = pqn() if net is None else pqn(agent__net=net)
    agent, env = build(data)
    network = agent.learner.network
    forward = network.act
    acted = []

    def noted(obs):
        output = forward(obs)
        acted.append(output.params.max(-1))
        return output

    network.act = noted
    obs = env.reset()
    while not agent.memory.ready():
        act = agent.act(obs, 0)
        step = env.step(act.action)
        agent.observe(observed(obs, act, step))
        obs = step.obs
    batch = agent.memory.take()
    rows = flatten_obs(batch.obs, network.recurrent)
    with torch.no_grad():
        greatest = network.greatest_q(rows)
    value = unflatten_steps(greatest, batch.reward, network.recurrent)
    assert_close(value, torch.from_numpy(np.stack(acted)))
