"""What resets are for: an agent that has overfitted its first steps, as in section 3 of
arXiv:2205.07802."""

from statistics import fmean, median

import pytest

from slm_lab.testing.play import Play
from tests.support import parse, q_learning

START = 200
FRAMES = 5000
PRIMING = 30_000
"""Gradient steps on the first `START` transitions alone."""
SEEDS = range(4)


def spec_of(reset_frequency):
    algorithm = {
        "gamma": 0.98,
        "training_frequency": 1,
        "training_start_step": START,
        "training_batch_iter": 1,
        "reset_frequency": reset_frequency,
        "explore_var_spec": {
            "name": "linear_decay",
            "start_val": 1.0,
            "end_val": 0.05,
            "end_step": 1000,
        },
    }
    net = {
        "hid_layers": [64, 64],
        "hid_layers_activation": "relu",
        "update_frequency": 100,
    }
    return parse(
        q_learning(
            "DQN",
            **{f"agent__algorithm__{key}": value for key, value in algorithm.items()},
            **{f"agent__net__{key}": value for key, value in net.items()},
            agent__memory={"name": "Replay", "batch_size": 64, "max_size": FRAMES},
            env__num_envs=1,
            env__max_frame=FRAMES,
        )
    )


def prime(agent, frame, events=20):
    """Many gradient steps on what the memory holds, the target network following."""
    memory = agent.memory
    before = memory.num_batches
    for _ in range(events):
        memory.num_batches = PRIMING // events
        agent.learner.learn(memory, frame)
        agent.learner.weights_replaced()
    memory.num_batches = before


def last_return(spec, seed):
    """The mean return of the episodes that end in the last fifth of the frames."""
    play = Play(spec, seed)
    agent = play.agent
    total = 0.0
    returns = []
    while play.frame < FRAMES:
        _, step = play.step()
        total += float(step.reward[0])
        if step.terminated[0] or step.truncated[0]:
            if play.frame > 0.8 * FRAMES:
                returns.append(total)
            total = 0.0
        if agent.is_due and agent.learner.opt_step == 0:
            prime(agent, play.frame)
        agent.learn(play.frame)
    play.env.close()
    return fmean(returns)


@pytest.mark.slow
def test_a_reset_undoes_what_an_agent_overfitted_at_first():
    """One reset in the middle of 5,000 frames of CartPole. Single seeds scatter, so the
    medians are compared."""
    plain, reset = (
        [last_return(spec_of(frequency), seed) for seed in SEEDS]
        for frequency in (None, 2600)
    )
    assert median(reset) > 1.2 * median(plain), (plain, reset)
