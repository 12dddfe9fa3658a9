"""What a net with a memory goes together with."""

import pytest

from slm_lab.spec.parse import parse
from tests.support import actor_critic, ppo, q_learning, reinforce, sarsa, soft

NET = {"type": "RecurrentNet", "fc_hid_layers": [8], "rnn_hidden_size": 8, "seq_len": 8}


def recurrent(spec, **keys):
    net = {k: v for k, v in spec["agent"]["net"].items() if k not in ("type", "hid_layers")}
    return {**spec, "agent": {**spec["agent"], "net": {**net, **NET, **keys}}}


def problems(spec):
    return {problem.path: str(problem) for problem in parse("s", spec).problems}


DQN = q_learning("DQN", agent__algorithm__training_start_step=64)


@pytest.mark.parametrize("spec", [ppo(), actor_critic(), reinforce(), DQN])
def test_algorithms_that_learn_from_sequences_take_it(spec):
    assert problems(recurrent(spec)) == {}


@pytest.mark.parametrize("spec", [sarsa(), soft("SoftActorCritic"), soft("CrossQ")])
def test_those_that_learn_from_single_steps_refuse_it_and_say_which_do_not(spec):
    told = problems(recurrent(spec))["agent.net.type"]
    assert "learns from single steps" in told
    assert "PPO, ActorCritic, Reinforce" in told


def changed(path, value, base=DQN):
    block, key = path
    return {**base, "agent": {**base["agent"], block: {**base["agent"][block], key: value}}}


REPLAYED = [
    (("memory", "use_cer"), True, "adds single steps"),
    (("memory", "batch_size"), 20, "multiple of agent.net.seq_len (8)"),
    (("memory", "max_size"), 24, "at least 32: seq_len × num_envs"),
    (("algorithm", "training_start_step"), 16, "at least 32: seq_len × num_envs"),
    (("algorithm", "num_step_returns"), 3, "must be 1 with a RecurrentNet"),
]


@pytest.mark.parametrize(("path", "value", "words"), REPLAYED)
def test_replay_gives_it_whole_sequences(path, value, words):
    told = problems(recurrent(changed(path, value)))
    assert words in told[f"agent.{path[0]}.{path[1]}"]


def test_priorities_are_of_single_steps():
    memory = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}
    spec = {**DQN, "agent": {**DQN["agent"], "memory": memory}}
    assert "use Replay" in problems(recurrent(spec))["agent.memory.name"]


def test_actor_and_critic_remember_both_or_neither():
    mlp = ppo()["agent"]["net"]
    both = recurrent(ppo())
    both["agent"]["critic_net"] = both["agent"]["net"]
    assert problems(both) == {}
    one = recurrent(ppo())
    one["agent"]["critic_net"] = mlp
    other = ppo()
    other["agent"] = {**other["agent"], "critic_net": recurrent(ppo())["agent"]["net"]}
    for spec in (one, other):
        told, given = problems(spec)["agent.critic_net.type"], spec["agent"]["critic_net"]["type"]
        assert "or neither is" in told
        assert given in told
    assert (
        "set seq_len instead"
        in problems(recurrent(ppo(), critic_seq_len=4))["agent.net.critic_seq_len"]
    )


def test_an_agent_cannot_read_backwards_nor_learn_from_nothing():
    assert (
        "later observations"
        in problems(recurrent(ppo(), bidirectional=True))["agent.net.bidirectional"]
    )
    assert "below seq_len (8)" in problems(recurrent(DQN, burn_in=8))["agent.net.burn_in"]
    assert "used once" in problems(recurrent(ppo(), burn_in=2))["agent.net.burn_in"]
