"""Environments so small that a correct algorithm must solve them within seconds."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.learning.probe_envs import register_probes
from tests.support import make_session, parse, ppo

register_probes()

SEEDS = (0, 1, 2)
VARIANTS = {
    "separate": {},
    "shared": {"agent__net__shared": True},
    "normalised": {"agent__algorithm__normalize_v_targets": True},
    "clipped": {"agent__algorithm__clip_vloss": True, "env__normalize_reward": False},
    "symlog": {"agent__algorithm__symlog": True},
    "percentile": {"agent__algorithm__normalize_advantages": "percentile"},
    "rmsprop": {"agent__net__optim_spec": {"name": "GlobalRMSprop", "lr": 3e-3}},
}


def train(env: str, folder: Path, seed: int, frames: int = 6000, **changes):
    settings = {
        "env__name": env,
        "env__num_envs": 8,
        "env__max_frame": frames,
        "agent__algorithm__training_epoch": 4,
        "agent__net__optim_spec": {"name": "GlobalAdam", "lr": 1e-2},
        "meta__log_frequency": 1000,
        "meta__save_interval": 1000,
    }
    session = make_session(parse(ppo(**(settings | changes))), folder, seed=seed)
    session.run()
    session.close()
    return session


def value_of(session, *obs):
    with torch.no_grad():
        network = session.agent.learner.network
        return network.value(torch.tensor(obs, dtype=torch.float32)).tolist()


def final_return(session) -> float:
    return session.tracker.last_row["total_reward"]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_critic_learns_a_constant(seed, tmp_path):
    session = train("ProbeConstantReward-v0", tmp_path, seed, frames=4000)
    assert value_of(session, [0.0]) == pytest.approx([1.0], abs=0.1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_critic_learns_what_the_observation_tells(variant, tmp_path):
    session = train("ProbeRewardIsObs-v0", tmp_path, seed=0, **VARIANTS[variant])
    assert value_of(session, [1.0], [-1.0]) == pytest.approx([1.0, -1.0], abs=0.25)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("env", ["ProbeRewardIsAction-v0", "ProbeTwoStepCredit-v0"])
def test_the_policy_learns_the_better_action(env, seed, tmp_path):
    assert final_return(train(env, tmp_path, seed)) > 0.7


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_policy_learns_to_look_before_it_acts(variant, tmp_path):
    session = train("ProbeMatchObs-v0", tmp_path, 0, frames=8000, **VARIANTS[variant])
    assert final_return(session) > 0.8 * 8


@pytest.mark.parametrize("log_std_init", [None, -0.5])
def test_a_continuous_policy_climbs(log_std_init, tmp_path):
    session = train(
        "ProbeRewardIsContinuousAction-v0",
        tmp_path,
        0,
        agent__net__log_std_init=log_std_init,
        agent__net__optim_spec={"name": "GlobalAdam", "lr": 3e-3},
    )
    assert final_return(session) > -0.1
    action = session.agent.actor.act_greedily(np.zeros((1, 1), np.float32))
    assert 2 * action.item() == pytest.approx(0.5, abs=0.2)  # the bounds are ±2, the agent's ±1
