"""Trainings on simulators: stopped and resumed, they equal uninterrupted ones."""

import pytest

from slm_lab.testing.sessions import assert_same_run, stop_at
from tests.support import parse, ppo, q_learning, rows, run_session, soft

HALF = 240
MUJOCO = {
    "env__num_envs": 2,
    "env__max_t": 60,
    "env__max_frame": 480,
    "env__normalize_obs": True,
}
HOPPER = {"env__name": "Hopper-v5", **MUJOCO}
NET = {
    "type": "ConvNet",
    "conv_hid_layers": [[4, 5, 3, 0, 1]],
    "fc_hid_layers": [16],
    "hid_layers_activation": "relu",
    "normalize": True,
    "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
}
TARGETS = {**NET, "update_type": "replace"}
PONG = {
    "name": "ALE/Pong-v5",
    "num_envs": 2,
    "max_frame": 480,
    "image_downsize": [24, 20],
    "max_t": 70,
}
SINGLE = {**PONG, "vectorization_mode": "sync"}
ROWS = {"meta__log_frequency": 80}
SPECS = {
    "PPO on Hopper": ppo(**HOPPER),
    "PPO on Hopper in workers": ppo(**HOPPER, env__vectorization_mode="async"),
    "SAC on Humanoid": soft("SoftActorCritic", **MUJOCO, env__name="Humanoid-v5"),
    "PPO on Pong": ppo(env=SINGLE, agent__net=NET, **ROWS),
    "DoubleDQN on Pong": q_learning(
        "DoubleDQN", env=SINGLE, agent__net={**TARGETS, "update_frequency": 64}, **ROWS
    ),
}


def needs(*packages):
    for package in packages:
        pytest.importorskip(package)


@pytest.mark.medium
@pytest.mark.parametrize("name", SPECS)
def test_a_resumed_run_equals_the_uninterrupted_one(name, tmp_path, caplog):
    needs(*(("ale_py", "cv2") if "Pong" in name else ("mujoco",)))
    spec = parse(SPECS[name])
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop_at(HALF))
    assert stopped.env.exact_state
    assert HALF <= stopped.clock.frame < whole.clock.frame
    assert_same_run(run_session(spec, tmp_path / "parts", resume=True), whole)
    assert rows(whole)["total_reward"].notna().any()
    assert "fresh episodes" not in caplog.text


@pytest.mark.medium
def test_native_games_continue_with_new_ones_and_a_memory_of_single_frames(
    tmp_path, caplog
):
    needs("ale_py", "cv2")
    spec = parse(q_learning("DoubleDQN", env=PONG, agent__net=TARGETS, **ROWS))
    run_session(spec, tmp_path, on_row=stop_at(HALF))
    resumed = run_session(spec, tmp_path, resume=True)
    assert (
        "the state of ALE/Pong-v5 cannot be saved: resuming with fresh episodes"
        in caplog.text
    )
    assert resumed.clock.frame == 480
    log = resumed.agent.log
    assert log.content(log.first, log.count)["obs"]["frames"].shape[1:] == (1, 20, 24)
