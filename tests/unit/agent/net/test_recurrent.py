"""The recurrent state is carried, stored, reset, and learned through."""

import numpy as np
import pytest
import torch
from torch import nn

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
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.unroll import Unroll
from slm_lab.session.clock import Clock
from slm_lab.session.evaluator import Evaluator
from slm_lab.session.experience import observed
from slm_lab.session.seeding import session_seeds
from slm_lab.spec.schema.net import RecurrentNetSpec
from slm_lab.testing.play import Play
from tests.contract.table import ALGORITHM_ROWS
from tests.support import parse

D, H = 4, 6
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
    generator = torch.Generator().manual_seed(0)
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
        np.testing.assert_allclose(out.detach().numpy(), acted, rtol=1e-4, atol=1e-6)


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
        torch.testing.assert_close(out, torch.cat([outputs[head] for outputs in alone]))


def test_one_step_of_the_lstm_is_that_of_the_textbook():
    net = net_of("LSTM")
    obs, state = sequence(net, 1)
    cell = net.cell
    w_ih, w_hh, b_ih, b_hh = (p.detach().numpy() for p in cell.parameters())
    hidden, memory = state[:H], state[H:]
    gates = w_ih @ obs[0] + b_ih + w_hh @ hidden + b_hh
    i, f, g, o = gates.reshape(4, H)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(g)
    hidden = sigmoid(o) * np.tanh(memory)
    *_, after = stepped(net, pack_obs(obs, state[None], np.ones(1, bool)))
    np.testing.assert_allclose(
        after[0], np.concatenate([hidden, memory]), rtol=1e-5, atol=1e-6
    )


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
    net, plain = net_of(cell, burn_in=2), net_of(cell)
    rows = torch.cat(
        [
            rows_of(*sequence(net, 5, seed), [first] + [False] * 4)
            for seed, first in ((0, True), (1, True))
        ]
    )
    rows[6, D:-1], rows[6, -1] = 0.0, 1.0
    rows = rows.nan_to_num().requires_grad_()
    outputs = net.forward(rows)
    for out, expected in zip(outputs, plain.forward(rows), strict=True):
        torch.testing.assert_close(out, expected)
    sum(out.view(2, 5, -1)[:, 2:].sum() for out in outputs).backward()
    learned = (rows.grad[:, :D].abs().sum(1) > 0).view(2, 5)
    assert learned.tolist() == [[False, False, True, True, True]] * 2
    assert not rows.grad[:, D:].any(), "nor into the stored state"


def test_an_actor_in_fresh_episodes_has_forgotten_those_that_it_could_not_continue():
    spec = ALGORITHM_ROWS["DoubleDQN"]["recurrent"].spec
    meta = {"distributed": "actor_learner", "actor_learner": {"unroll_length": 8}}
    spec = spec.model_copy(
        update={"meta": spec.meta.model_validate({**meta, "random_seed": 0})}
    )
    clocks = [Clock(np.zeros(1, np.int64), 0, 10_000) for _ in range(2)]
    actor, twin = (UnrollActor(spec, session_seeds(0, 0, 0), clock) for clock in clocks)
    actor.reset()
    actor.play(Unroll.allocate(actor.layout))
    twin.env.exact_state = False
    twin.load_state_dict(actor.state_dict())
    recurrent = twin.agent.actor.state_dict()["recurrent_state"]
    assert actor.agent.actor.state_dict()["recurrent_state"]["state"].any()
    assert not recurrent["state"].any()
    assert recurrent["begins"].all()
    for each in (actor, twin):
        each.close()


def test_two_nets_have_their_own_parts_of_the_state():
    one, other = net_of(), net_of("LSTM")
    other.offset_state(one.state_size)
    obs, _ = sequence(one, 3)
    state = np.arange(
        3 * (one.state_size + other.state_size), dtype=np.float32
    ).reshape(3, -1)
    rows = pack_obs(obs, state / 50, np.ones(3, bool))
    part = rows[:, D + one.state_size : -1]
    alone = net_of("LSTM")
    expected = stepped(alone, pack_obs(obs, part, np.ones(3, bool)))
    for out, wanted in zip(stepped(other, rows), expected, strict=True):
        np.testing.assert_array_equal(out, wanted)


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
    learner, seen = play.agent.learner, []

    def learn(batch, frame):
        if batch.done.any():  # it goes over the end of an episode
            seen.append(batch)
        return {}

    monkeypatch.setattr(learner, "learn", learn)
    while not seen:
        list(play.reports(1))
    (rollout,), recurrent = seen, learner.network.recurrent
    rows = flatten_obs(rollout.obs, recurrent)
    params = learner.network.policy(rows)
    log_prob = learner.family(params).log_prob(flatten_steps(rollout.action, recurrent))
    torch.testing.assert_close(
        log_prob, flatten_steps(rollout.log_prob, recurrent), rtol=1e-4, atol=1e-5
    )
    assert (rows[:, -1] == 0).any(), "rows continue each other"
    play.env.close()


def test_the_state_is_zero_where_an_episode_begins_and_carried_elsewhere():
    play = Play(ALGORITHM_ROWS["PPO"]["recurrent"].spec)
    ended = np.ones(play.env.num_envs, bool)
    after, checked = None, 0
    for _ in range(60):
        act = play.agent.act(play.obs, play.frame)
        state_around = act.state_around
        assert isinstance(state_around, StateAround)
        np.testing.assert_array_equal(state_around.starts, ended)
        assert (state_around.before[ended] == 0).all()
        if after is not None:
            np.testing.assert_array_equal(state_around.before[~ended], after[~ended])
        step = play.env.step(act.action)
        play.agent.observe(observed(play.obs, act, step))
        play.agent.learn(play.frame)
        ended, after, play.obs = (
            step.terminated | step.truncated,
            state_around.after,
            step.obs,
        )
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
    order = shuffled_order(rows, recurrent, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(3 * steps))
    assert order.tolist() != list(range(3 * steps))
    continues = rows[order, -1] == 0
    assert (order[1:] == order[:-1] + 1)[continues[1:]].all()
    assert not continues[0]


@pytest.mark.parametrize(("horizon", "minibatch"), [(16, 32), (10, 40), (11, 15)])
def test_every_minibatch_of_ppo_is_what_the_actor_saw(horizon, minibatch):
    """Whatever divides what: sequences of 8 steps, rollouts and minibatches of
    others."""
    data = ALGORITHM_ROWS["PPO"]["recurrent"].data
    algorithm = data["agent"]["algorithm"]
    own = {"time_horizon": horizon, "minibatch_size": minibatch}
    spec = parse(
        {**data, "agent": {**data["agent"], "algorithm": {**algorithm, **own}}}
    )
    play = Play(spec)
    learner, memory = play.agent.learner, play.agent.memory
    for _ in range(horizon):
        play.step()
    samples, _ = learner._prepare(memory.take())
    seen = 0
    for batch in learner._minibatches(samples):
        log_prob = learner.family(learner.network.policy(batch.obs)).log_prob(
            batch.action
        )
        torch.testing.assert_close(log_prob, batch.log_prob, rtol=1e-4, atol=1e-5)
        seen += len(batch.obs)
    assert seen == spec.agent.algorithm.training_epoch * horizon * play.env.num_envs
    play.env.close()


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
    actor, env, started = evaluator._agent.actor, evaluator.env, []
    act, step, ended = actor.act_greedily, env.step, np.ones(2, bool)

    def acting(obs):
        recurrent = actor.state_dict()["recurrent_state"]
        np.testing.assert_array_equal(recurrent["begins"], ended)
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

    size, num_envs, num_stored = 20, 2, 12

    def indices(self, age):
        return (6 + age) % self.size


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
    memory, network = play.agent.memory, play.agent.learner.network
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
            torch.testing.assert_close(q(rows), q(alone(rows)), rtol=1e-4, atol=1e-5)
    play.env.close()


def test_no_weight_is_drawn_from_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert isinstance(net_of().cell, nn.GRU)
    assert torch.equal(torch.get_rng_state(), before)
