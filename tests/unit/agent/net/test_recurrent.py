"""The recurrent state is carried, stored, reset, and learned through."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.memory.sampler import SequenceSampler
from slm_lab.agent.net.layers import Head
from slm_lab.agent.net.policy_value import host_forward
from slm_lab.agent.recurrent_state import (
    RecurrentLayout,
    StateAround,
    flatten_obs,
    flatten_steps,
    pack_obs,
    shuffled_order,
)
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.experience import observed
from slm_lab.spec.schema.recurrent import RecurrentNetSpec
from slm_lab.testing.play import Play
from tests.contract.table import ALGORITHM_ROWS
from tests.support import seeded

D = 4
H = 6
CELLS = ("GRU", "LSTM", "RNN")


def net_of(cell="GRU", layers=1, **keys):
    block = {
        "type": "RecurrentNet",
        "cell_type": cell,
        "rnn_hidden_size": H,
        "seq_len": 5,
        "rnn_num_layers": layers,
        "hid_layers_activation": "tanh",
        **keys,
    }
    spec = RecurrentNetSpec.model_validate(block)
    generator = seeded(0)
    return build_net(spec, (D,), [Head(3), Head(1)], generator)


def sequence(net, length, seed=0):
    """Observations (L, D) of one sequence and a state (H,) to begin it with."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(length, D)).astype(np.float32)
    return obs, rng.normal(size=net.state_size).astype(np.float32)


def rows_of(obs, state, begins):
    """Rows of one sequence; only those that begin by themselves have a state that
    counts."""
    states = np.where(np.array(begins)[:, None], state, np.nan).astype(np.float32)
    return torch.from_numpy(pack_obs(obs, states, np.array(begins)))


def stepped(net, rows):
    """The outputs for rows that an actor packs, as arrays."""
    return host_forward(net, torch.device("cpu"))(rows)


def step_by_step(net, obs, state):
    """What an actor sees that carries the state from one step to the next."""
    outputs = []
    for one in obs:
        row = pack_obs(one[None], state[None], np.ones(1, bool))
        policy, value, states = stepped(net, row)
        outputs.append((policy[0], value[0]))
        state = states[0]
    return [np.stack(out) for out in zip(*outputs, strict=True)], state


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_a_sequence_gives_what_was_seen_when_the_state_was_carried_step_by_step(
    cell, layers
):
    net = net_of(cell, layers)
    obs, state = sequence(net, 7)
    expected, _ = step_by_step(net, obs, state)
    outputs = net.forward(rows_of(obs, state, [True] + [False] * 6))
    for out, acted in zip(outputs, expected, strict=True):
        assert_allclose(out.detach().numpy(), acted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cell", CELLS)
def test_sequences_of_any_length_in_one_batch_do_not_see_each_other(cell):
    net = net_of(cell)
    lengths = (3, 1, 4, 2)
    pieces = [sequence(net, length, seed) for seed, length in enumerate(lengths)]
    rows = [
        rows_of(obs, state, [True] + [False] * (len(obs) - 1)) for obs, state in pieces
    ]
    together = net.forward(torch.cat(rows))
    alone = [net.forward(row) for row in rows]
    for head, out in enumerate(together):
        assert_close(out, torch.cat([outputs[head] for outputs in alone]))


def test_gradients_flow_back_to_the_beginning_of_a_sequence_and_no_further():
    net = net_of()
    obs, state = sequence(net, 6)
    rows = rows_of(obs, np.nan_to_num(state), [True, False, False, True, False, False])
    rows[1:3, D:-1] = rows[4:, D:-1] = 0.0
    rows.requires_grad_()
    net.forward(rows)[0][5].sum().backward()
    reached = rows.grad[:, :D].abs().sum(1) > 0
    assert reached.tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("cell", CELLS)
def test_burn_in_brings_the_state_up_to_date_and_takes_no_gradient(cell):
    """Two sequences of five rows. An episode begins in the burn-in of the second."""
    net = net_of(cell, burn_in=2)
    plain = net_of(cell)
    rows = torch.cat(
        [
            rows_of(*sequence(net, 5, seed), [first] + [False] * 4)
            for seed, first in ((0, True), (1, True))
        ]
    )
    rows[6, D:-1] = 0.0
    rows[6, -1] = 1.0
    rows = rows.nan_to_num().requires_grad_()
    outputs = net.forward(rows)
    assert_close(outputs, plain.forward(rows))
    sum(out.view(2, 5, -1)[:, 2:].sum() for out in outputs).backward()
    learned = (rows.grad[:, :D].abs().sum(1) > 0).view(2, 5)
    assert learned.tolist() == [[False, False, True, True, True]] * 2
    assert not rows.grad[:, D:].any(), "nor into the stored state"


RECURRENT = [
    ("PPO", "recurrent"),
    ("PPO", "recurrent_shared_lstm"),
    ("ActorCritic", "recurrent"),
    ("Reinforce", "recurrent"),
]


@pytest.mark.parametrize("case", RECURRENT)
def test_the_learner_sees_the_sequences_of_the_actor(case, monkeypatch):
    """Before the first update the log-probabilities are those that were noted when
    acting."""
    play = Play(ALGORITHM_ROWS[case[0]][case[1]].spec)
    learner = play.agent.learner
    seen = []

    def learn(batch, frame):
        if batch.done.any():  # it goes over the end of an episode
            seen.append(batch)
        return {}

    monkeypatch.setattr(learner, "learn", learn)
    while not seen:
        list(play.reports(1))
    (rollout,) = seen
    recurrent = learner.network.recurrent
    rows = flatten_obs(rollout.obs, recurrent)
    params = learner.network.policy(rows)
    log_prob = learner.family(params).log_prob(flatten_steps(rollout.action, recurrent))
    assert_close(
        log_prob, flatten_steps(rollout.log_prob, recurrent), rtol=1e-4, atol=1e-5
    )
    assert (rows[:, -1] == 0).any(), "rows continue each other"
    play.env.close()


def test_the_state_is_zero_where_an_episode_begins_and_carried_elsewhere():
    play = Play(ALGORITHM_ROWS["PPO"]["recurrent"].spec)
    ended = np.ones(play.env.num_envs, bool)
    after = None
    checked = 0
    for _ in range(60):
        act = play.agent.act(play.obs, play.frame)
        state_around = act.state_around
        assert isinstance(state_around, StateAround)
        assert_array_equal(state_around.starts, ended)
        assert (state_around.before[ended] == 0).all()
        if after is not None:
            assert_array_equal(state_around.before[~ended], after[~ended])
        step = play.env.step(act.action)
        play.agent.observe(observed(play.obs, act, step))
        play.agent.learn(play.frame)
        ended = step.terminated | step.truncated
        after = state_around.after
        play.obs = step.obs
        checked += ended.sum()
    assert checked > 3
    play.env.close()


def test_rows_of_a_rollout_follow_their_environment_and_restart_after_every_seq_len():
    recurrent = RecurrentLayout(state_size=1, seq_len=4)
    time, env = np.meshgrid(np.arange(6), np.arange(2), indexing="ij")
    obs = torch.from_numpy(np.stack([env, time, np.zeros_like(time)], -1)).float()
    rows = flatten_obs(obs, recurrent)
    assert rows[:, 0].tolist() == [0] * 6 + [1] * 6
    assert rows[:, 1].tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert rows[:, 2].tolist() == [1, 0, 0, 0, 1, 0] * 2
    assert (obs[..., 2] == 0).all(), "the memory's own rows stay as they are"
    assert torch.equal(flatten_steps(obs[..., 1], recurrent), rows[:, 1])


@pytest.mark.parametrize(("steps", "seq_len"), [(12, 4), (14, 4), (3, 4), (5, 2)])
def test_a_shuffled_order_has_every_row_once_and_keeps_sequences_together(
    steps, seq_len
):
    recurrent = RecurrentLayout(1, seq_len)
    obs = torch.zeros(steps, 3, 2)
    obs[2, 1, -1] = 1.0  # where an episode begins
    rows = flatten_obs(obs, recurrent)
    order = shuffled_order(rows, recurrent, seeded(0))
    assert sorted(order.tolist()) == list(range(3 * steps))
    assert order.tolist() != list(range(3 * steps))
    continues = rows[order, -1] == 0
    assert (order[1:] == order[:-1] + 1)[continues[1:]].all()
    assert not continues[0]


def test_an_actor_forgets_when_its_episodes_are_broken_off():
    play = Play(ALGORITHM_ROWS["PPO"]["recurrent"].spec)
    for _ in range(5):
        play.step()
    assert play.agent.actor.state_dict()["recurrent_state"]["state"].any()
    play.agent.break_off(play.obs)
    recurrent = play.agent.actor.state_dict()["recurrent_state"]
    assert not recurrent["state"].any()
    assert recurrent["begins"].all()
    play.env.close()


def test_an_evaluation_forgets_at_the_end_of_every_episode(monkeypatch):
    spec = ALGORITHM_ROWS["PPO"]["recurrent"].spec
    evaluator = Evaluator(spec, 2, seed=0)
    actor = evaluator._agent.actor
    env = evaluator.env
    started = []
    act = actor.act_greedily
    step = env.step
    ended = np.ones(2, bool)

    def acting(obs):
        recurrent = actor.state_dict()["recurrent_state"]
        assert_array_equal(recurrent["begins"], ended)
        assert not recurrent["state"][ended].any()
        started.append(ended.sum())
        return act(obs)

    def stepping(action):
        made = step(action)
        ended[:] = made.terminated | made.truncated
        return made

    monkeypatch.setattr(actor, "act_greedily", acting)
    monkeypatch.setattr(env, "step", stepping)
    for _ in range(2):
        ended[:] = True
        evaluator.play(2)
    assert sum(started) >= 8
    evaluator.close()


class Steps:
    """A ring of 9 vector steps of 2 environments, of which the first 3 are
    forgotten."""

    size = 20
    num_envs = 2
    num_stored = 12

    def indices(self, age):
        return (6 + age) % self.size

    def is_absent(self, indices):
        return None


def test_replayed_sequences_are_steps_of_one_environment_all_equally_likely():
    sampler = SequenceSampler(Steps(), 0, RecurrentLayout(1, seq_len=4, burn_in=1))
    drawn = sampler.sample(40_000, 0)
    places = drawn.indices.reshape(-1, 4)
    ages = (places - 6) % 20
    assert (np.diff(ages, axis=1) == 2).all(), (
        "the same environment, one step later each"
    )
    begins, counts = np.unique(ages[:, 0], return_counts=True)
    assert begins.tolist() == list(range(12 - 3 * 2))
    assert abs(counts / counts.mean() - 1).max() < 0.1
    weight = drawn.weight.reshape(-1, 4)
    assert (weight[:, 0] == 0).all()
    assert torch.allclose(weight.mean(), torch.tensor(1.0))


def test_a_replayed_sequence_is_seen_as_the_actor_saw_it():
    """With weights that have not changed: Q of s and of s' by unrolling, over ends of
    episodes."""
    play = Play(ALGORITHM_ROWS["DoubleDQN"]["recurrent"].spec)
    memory = play.agent.memory
    network = play.agent.learner.network
    for _ in range(45):
        play.step()
    sample = memory.sample(0)
    assert (sample.discount == 0).any()
    assert (sample.obs[:, -1] == 0).any()

    def alone(rows):
        rows = rows.clone()
        rows[:, -1] = 1.0
        return rows

    for rows in (sample.obs, sample.next_obs):
        for q in (network.q, network.target_q):
            assert_close(q(rows), q(alone(rows)), rtol=1e-4, atol=1e-5)
    play.env.close()
