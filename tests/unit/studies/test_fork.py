"""What a fork may change: each key has an effect, from the fork on."""

import pytest

from slm_lab.testing.sessions import (
    TIMING_COLUMNS,
    copy_kept,
    whole_folder,
    whole_run,
)
from tests.support import parse, ppo, q_learning, rows, run_session, soft

BUDGET = {"env__max_frame": 800, "meta__keep_checkpoints": 2, "meta__log_frequency": 80}
SPECS = {
    "ppo": ppo(**BUDGET),
    "sac": soft("SoftActorCritic", **BUDGET),
    "dqn": q_learning("DQN", **BUDGET),
}
CHANGES = [
    ("ppo", "agent__net__optim_spec__lr", 0.03),
    ("ppo", "agent__net__clip_grad_val", 0.01),
    ("ppo", "agent__algorithm__gamma", 0.5),
    ("ppo", "agent__algorithm__lam", 0.1),
    ("ppo", "agent__algorithm__clip_eps_spec__start_val", 0.001),
    ("ppo", "agent__algorithm__entropy_coef_spec__start_val", 2.0),
    ("ppo", "agent__algorithm__val_loss_coef", 9.0),
    ("ppo", "agent__algorithm__minibatch_size", 16),
    ("ppo", "agent__algorithm__training_epoch", 5),
    ("ppo", "env__reward_scale", 0.1),
    ("ppo", "env__max_t", 11),
    ("sac", "agent__net__optim_spec__lr", 0.03),
    ("sac", "agent__algorithm__gamma", 0.5),
    ("sac", "agent__memory__batch_size", 8),
    ("dqn", "agent__net__optim_spec__lr", 0.03),
    ("dqn", "agent__algorithm__gamma", 0.5),
    ("dqn", "agent__algorithm__explore_var_spec__end_val", 0.9),
    ("dqn", "agent__memory__batch_size", 8),
]


def changed(spec, path, value):
    builders = {"PPO": ppo, "SoftActorCritic": soft, "DQN": q_learning}
    name = spec["agent"]["algorithm"]["name"]
    words = [] if name == "PPO" else [name]
    return builders[name](*words, **BUDGET, **{path: value})


def repeatable(table):
    return table.drop(columns=[*TIMING_COLUMNS], errors="ignore")


@pytest.mark.parametrize(("name", "path", "value"), CHANGES)
def test_a_changed_key_has_an_effect_after_the_fork_and_none_before(
    tmp_path_factory, tmp_path, name, path, value
):
    spec = parse(SPECS[name])
    whole = repeatable(whole_run(tmp_path_factory, spec).rows)
    frame = copy_kept(spec, whole_folder(tmp_path_factory, spec), tmp_path)
    other = parse(changed(SPECS[name], path, value))
    fork = repeatable(rows(run_session(other, tmp_path, resume=True)))
    before = whole["frame"] <= frame
    assert fork[before].equals(whole[before])
    assert not fork[~before].equals(whole[~before])
