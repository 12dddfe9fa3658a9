"""What only a net with a memory can learn."""

import pytest

from tests.learning.probe_envs import register_probes
from tests.support import (
    actor_critic,
    make_session,
    parse,
    ppo,
    pqn,
    q_learning,
    reinforce,
    vmpo,
)

register_probes()

MLP = {"type": "MLPNet", "hid_layers": [32], "hid_layers_activation": "tanh"}
RECURRENT = {
    "type": "RecurrentNet",
    "fc_hid_layers": [16],
    "hid_layers_activation": "tanh",
    "rnn_hidden_size": 16,
    "seq_len": 6,
    "init_fn": "orthogonal_",
}
OPTIMIZER = {"optim_spec": {"name": "GlobalAdam", "lr": 5e-3}}
LSTM = {**RECURRENT, "cell_type": "LSTM"}
EPSILON = {
    "name": "linear_decay",
    "start_val": 1.0,
    "end_val": 0.05,
    "start_step": 0,
    "end_step": 8_000,
}

LEARNERS = {
    "PPO": (
        ppo,
        8_000,
        {
            "agent__algorithm__time_horizon": 24,
            "env__num_envs": 16,
            "agent__algorithm__minibatch_size": 96,
        },
    ),
    "VMPO": (
        vmpo,
        16_000,
        {
            "agent__algorithm__time_horizon": 24,
            "env__num_envs": 16,
            "agent__algorithm__minibatch_size": 96,
            "agent__algorithm__training_epoch": 4,
        },
    ),
    "PQN": (
        pqn,
        16_000,
        {
            "agent__algorithm__time_horizon": 24,
            "env__num_envs": 16,
            "agent__algorithm__minibatch_size": 96,
            "agent__algorithm__explore_var_spec": EPSILON,
        },
    ),
    "ActorCritic": (
        actor_critic,
        40_000,
        {"agent__algorithm__training_frequency": 12, "env__num_envs": 16},
    ),
    "Reinforce": (
        reinforce,
        40_000,
        {"agent__algorithm__training_frequency": 16, "env__num_envs": 8},
    ),
    "DQN": (
        lambda **changes: q_learning("DQN", **changes),
        16_000,
        {
            "agent__algorithm__training_frequency": 16,
            "agent__algorithm__action_policy": "epsilon_greedy",
            "agent__algorithm__explore_var_spec": EPSILON,
            "agent__algorithm__training_start_step": 500,
            "agent__memory": {"name": "Replay", "batch_size": 96, "max_size": 20_000},
        },
    ),
}


def final_return(folder, learner, net, seed, env="ProbeRecallCue-v0"):
    """The mean return of the last tenth of the training."""
    make, frames, settings = LEARNERS[learner]
    data = make(
        env__name=env,
        env__max_frame=frames,
        meta__log_frequency=frames // 50,
        meta__save_interval=1000,
        **settings,
    )
    own = {
        k: v for k, v in data["agent"]["net"].items() if k not in ("type", "hid_layers")
    }
    data = {**data, "agent": {**data["agent"], "net": {**own, **OPTIMIZER, **net}}}
    session = make_session(parse(data), folder, seed=seed)
    returns = []
    session._on_row = lambda made: returns.append(made.tracker.last_row["total_reward"])
    session.run()
    session.close()
    last = returns[-5:]
    return sum(last) / len(last)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_recurrent_net_recalls_what_it_saw_at_the_beginning(learner, seed, tmp_path):
    assert final_return(tmp_path, learner, RECURRENT, seed) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_net_without_memory_cannot(seed, tmp_path):
    assert final_return(tmp_path, "PPO", MLP, seed) < 0.4


@pytest.mark.medium
def test_ppo_with_an_lstm_recalls_it(tmp_path):
    assert final_return(tmp_path, "PPO", LSTM, 0) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("learner", ["PPO", "DQN"])
def test_a_memory_for_one_part_recalls_it_when_another_asks(learner, seed, tmp_path):
    net = {**MLP, "parts": {"cue": RECURRENT}}
    env = "ProbeRecallCueInParts-v0"
    assert final_return(tmp_path, learner, net, seed, env) > 0.8


@pytest.mark.slow
def test_a_memory_for_the_wrong_part_cannot(tmp_path):
    net = {**MLP, "parts": {"question": RECURRENT}}
    env = "ProbeRecallCueInParts-v0"
    assert final_return(tmp_path, "PPO", net, 0, env) < 0.4
