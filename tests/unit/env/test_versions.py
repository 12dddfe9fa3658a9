import json

import gymnasium
import pytest

from slm_lab.env.versions import _file_of, env_record, episode_limit
from slm_lab.session.play_episodes import MAX_STEPS, step_bound
from tests.support import needs


def test_a_record_has_what_the_spec_leaves_to_the_environment(env_spec):
    record = env_record(env_spec("CartPole-v1", kwargs={"sutton_barto_reward": True}))
    assert record == {
        "id": "CartPole-v1",
        "backend": "gymnasium",
        "vectorization_mode": "native",
        "max_t": 500,
        "arguments": {"sutton_barto_reward": True},
    }
    assert env_record(env_spec("Pendulum-v1", max_t=9))["max_t"] == 9


@pytest.mark.parametrize(
    ("name", "keys", "sticky", "clipped"),
    [
        ("ALE/Pong-v5", {}, 0.25, True),
        ("ALE/Pong-v5", {"repeat_action_probability": 0.0}, 0.0, True),
        ("ALE/Pong-v5", {"clip_reward": 5.0}, 0.25, False),
        ("PongNoFrameskip-v4", {"reward_clipping": False}, 0.0, False),
    ],
)
def test_the_record_of_a_game_has_its_sticky_actions_and_all_its_keys(
    env_spec, name, keys, sticky, clipped
):
    pytest.importorskip("ale_py")
    arguments = env_record(env_spec(name, **keys))["arguments"]
    assert arguments["repeat_action_probability"] == sticky
    assert arguments["reward_clipping"] == clipped
    assert arguments["game"] == "pong"
    assert arguments["frameskip"] == arguments["stack_num"] == 4
    assert arguments["max_num_frames_per_episode"] == 108_000


def test_arguments_that_json_does_not_know_are_written_as_python_shows_them(
    env_spec, registered
):
    registered("Odd-v0", gymnasium.Env, kwargs={"size": complex(1, 2)})
    record = env_record(env_spec("Odd-v0"))
    assert json.loads(json.dumps(record))["arguments"] == {"size": "(1+2j)"}


@pytest.mark.parametrize(
    ("name", "keys", "limit"),
    [
        ("CartPole-v1", {}, 500),
        ("CartPole-v1", {"max_t": 7}, 7),
        pytest.param(*("CliffWalking-v1", {}, None), marks=needs("gymnasium", "1.2")),
        ("ALE/Pong-v5", {}, 27_000),
        ("ALE/Pong-v5", {"frameskip": 1}, 108_000),
        ("ALE/Pong-v5", {"max_num_frames_per_episode": 10}, 3),
        ("ALE/Pong-v5", {"max_t": 7}, 7),
    ],
)
def test_the_limit_of_an_episode_is_in_steps_and_evaluations_know_it(
    env_spec, name, keys, limit
):
    spec = env_spec(name, **keys)
    assert episode_limit(spec) == env_record(spec)["max_t"] == limit
    assert step_bound(spec) == max(limit or 0, MAX_STEPS)


def test_a_folder_of_a_package_that_is_not_imported_has_no_file(tmp_path, monkeypatch):
    folder = tmp_path / "outer_package" / "without_init"
    folder.mkdir(parents=True)
    (tmp_path / "outer_package" / "__init__.py").touch()
    (folder / "code.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _file_of("outer_package.without_init.code") is None
