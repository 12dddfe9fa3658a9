"""A training on Pong: stopped and resumed it is the uninterrupted one, in single environments."""

import pytest

from tests.contract.runs import assert_same_run, stop_at
from tests.support import parse, ppo, q_learning, rows, run_session

pytest.importorskip("ale_py")
pytest.importorskip("cv2")

NET = {
    "type": "ConvNet",
    "conv_hid_layers": [[4, 5, 3, 0, 1]],
    "fc_hid_layers": [16],
    "hid_layers_activation": "relu",
    "normalize": True,
    "optim_spec": {"name": "GlobalAdam", "lr": 1e-3},
}
PONG = {
    "name": "ALE/Pong-v5",
    "num_envs": 2,
    "max_frame": 480,
    "image_downsize": [24, 20],
    "max_t": 70,
}
KEYS = {"agent__net": NET, "meta__log_frequency": 80}
SPECS = {
    "PPO": ppo(env={**PONG, "vectorization_mode": "sync"}, **KEYS),
    "DoubleDQN": q_learning(
        "DoubleDQN",
        env={**PONG, "vectorization_mode": "sync"},
        agent__net={**NET, "update_type": "replace", "update_frequency": 64},
        meta__log_frequency=80,
    ),
}


@pytest.mark.parametrize("algorithm", SPECS)
def test_a_resumed_run_equals_the_uninterrupted_one(algorithm, tmp_path):
    spec = parse(SPECS[algorithm])
    whole = run_session(spec, tmp_path / "whole")
    stopped = run_session(spec, tmp_path / "parts", on_row=stop_at(240))
    assert stopped.env.exact_state
    resumed = run_session(spec, tmp_path / "parts", resume=True)
    assert_same_run(resumed, whole)
    assert rows(whole)["total_reward"].notna().any()


def test_native_games_continue_with_new_ones_and_a_memory_of_single_frames(tmp_path, caplog):
    spec = parse(
        q_learning(
            "DoubleDQN",
            env=PONG,
            agent__net={**NET, "update_type": "replace"},
            meta__log_frequency=80,
        )
    )
    run_session(spec, tmp_path, on_row=stop_at(240))
    resumed = run_session(spec, tmp_path, resume=True)
    assert "the state of ALE/Pong-v5 cannot be saved: resuming with fresh episodes" in caplog.text
    assert resumed.clock.frame == 480
    log = resumed.agent.log
    assert log.content(log.first, log.count)["obs"]["frames"].shape[1:] == (1, 20, 24)
