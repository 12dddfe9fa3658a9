"""Same seed, same rows; a resumed run is the uninterrupted one, bit for bit."""

import random

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal

from tests.support import (
    actor_critic,
    make_session,
    parse,
    ppo,
    reinforce,
    rows,
    run_session,
)

SPECS = {
    "separate": ppo(),
    "shared": ppo(agent__net__shared=True),
    "continuous": ppo(env__name="Pendulum-v1", env__normalize_obs=True, env__normalize_reward=True),
    "free_log_std": ppo(env__name="Pendulum-v1", agent__net__log_std_init=-0.5),
    "acrobot_max_t": ppo(env__name="Acrobot-v1", env__max_t=30),
    "normalized_targets": ppo(
        agent__algorithm__normalize_v_targets=True, agent__algorithm__clip_vloss=True
    ),
    "percentile_symlog": ppo(
        agent__algorithm__normalize_advantages="percentile", agent__algorithm__symlog=True
    ),
    "rmsprop_scheduled": ppo(
        agent__net__optim_spec={"name": "GlobalRMSprop", "lr": 1e-3},
        agent__net__lr_scheduler_spec={"name": "LinearToZero", "frame": 1000},
    ),
    "torch_optimizer": ppo(
        agent__net__optim_spec={"name": "NAdam", "lr": 1e-3},
        agent__net__lr_scheduler_spec={"name": "StepLR", "step_size": 20},
    ),
    "norm_layers": ppo(agent__net__layer_norm=True, agent__net__batch_norm=True),
}
SPECS |= {
    "reinforce": reinforce(),
    "cross_entropy": reinforce(
        agent__memory={"name": "OnPolicyCrossEntropy", "cross_entropy": 0.5},
        agent__algorithm__training_frequency=4,
    ),
    "reinforce_continuous": reinforce(env__name="Pendulum-v1", env__max_t=20),
    "actor_critic": actor_critic(),
    "actor_critic_n_step": actor_critic(
        agent__algorithm__lam=None,
        agent__algorithm__num_step_returns=3,
        agent__net__shared=True,
    ),
    "actor_critic_episodes": actor_critic(
        agent__algorithm__lam=None,
        agent__algorithm__training_frequency=3,
        agent__memory={"name": "OnPolicyReplay"},
        env__max_t=40,
    ),
}
SPECS["random"] = {
    "agent": {"name": "Random", "algorithm": {"name": "Random"}},
    "env": ppo()["env"],
    "meta": ppo()["meta"],
}


def final_state(session):
    return {name: flat.vector.clone() for name, flat in session.agent.learner.flats.items()}


@pytest.mark.parametrize("name", SPECS)
def test_the_same_seed_gives_the_same_rows_whatever_the_global_generators_do(name, tmp_path):
    spec = parse(SPECS[name])
    frames, states = [], []
    for attempt in range(2):
        random.seed(attempt)
        np.random.seed(attempt)  # noqa: NPY002 - poisoned on purpose
        torch.manual_seed(attempt)
        session = run_session(spec, tmp_path / str(attempt))
        frames.append(rows(session))
        states.append(final_state(session))
    assert len(frames[0]) == 10
    assert_frame_equal(frames[0], frames[1], check_exact=True)
    for part, vector in states[0].items():
        assert torch.equal(vector, states[1][part])


@pytest.mark.parametrize("name", SPECS)
def test_a_run_draws_nothing_from_the_global_generators(name, tmp_path):
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    run_session(parse(SPECS[name]), tmp_path)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


def test_another_seed_gives_other_rows(tmp_path):
    spec = parse(SPECS["separate"])
    first = rows(run_session(spec, tmp_path / "a", seed=0))
    second = rows(run_session(spec, tmp_path / "b", seed=1))
    assert not first["total_reward"].equals(second["total_reward"])


@pytest.mark.parametrize("name", SPECS)
def test_a_resumed_run_equals_the_uninterrupted_one(name, tmp_path):
    """Stopped after three rows, in the middle of a rollout and of episodes."""
    spec = parse(SPECS[name])
    whole = run_session(spec, tmp_path / "whole")

    def stop(session):
        if session.clock.frame >= 300:
            session._board.request_stop()

    stopped = run_session(spec, tmp_path / "parts", on_row=stop)
    assert 300 <= stopped.clock.frame < 400
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)
    for part, vector in final_state(whole).items():
        assert torch.equal(vector, final_state(resumed)[part])


def test_rows_after_the_checkpoint_are_written_again(tmp_path):
    """A kill between two checkpoints: what was written after the first is cut off."""
    spec = parse(ppo(meta__save_interval=1000))
    whole = run_session(spec, tmp_path / "whole")

    class KilledError(Exception):
        pass

    def die(session):
        if session.clock.frame == 300:
            session._save(finished=False)
        if session.clock.frame >= 600:
            raise KilledError

    session = make_session(spec, tmp_path / "parts", on_row=die)
    with pytest.raises(KilledError):
        session.run()
    session.close()
    assert len(rows(session)) == 6
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_frame_equal(rows(resumed), rows(whole), check_exact=True)


def test_where_episodes_cannot_be_continued_the_rollout_is_cut(tmp_path, monkeypatch):
    """Without exact state, new episodes must not look like the end of the old ones."""
    monkeypatch.setattr("slm_lab.env.sync.has_exact_state", lambda env: False)
    spec = parse(ppo(env__name="Pendulum-v1", meta__save_interval=1000))

    def stop(session):
        if session.clock.frame >= 100:
            session._board.request_stop()

    stopped = run_session(spec, tmp_path, on_row=stop)
    last_obs, t = stopped.env.obs, stopped.agent.memory._t
    assert 0 < t < 16
    resumed = make_session(spec, tmp_path, resume=True)
    memory = resumed.agent.memory
    assert memory._arrays["truncated"][t - 1].all()
    assert memory._cut_places == [(t - 1, n) for n in range(4)]
    np.testing.assert_array_equal(np.stack(memory._cut_obs), last_obs)
    assert not np.array_equal(resumed.env.obs, last_obs)
    resumed.run()
    resumed.close()
