"""The keys of Atari games: valid values take effect, and invalid ones are refused."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from slm_lab.core.errors import MissingExtraError, SpecError
from slm_lab.env.check import film_fault
from slm_lab.env.make import describe_spaces
from slm_lab.env.simulators.atari import AtariKeys
from tests.support import needs
from tests.unit.env.games import PLAIN, actions_for

pytest.importorskip("ale_py")
pytest.importorskip("cv2")


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ({"episodic_life": True}, "episodic_life", "use life_loss_info: true"),
        ({"game": "breakout"}, "game", "the game is named by env.name"),
        ({"batch_size": 2}, "batch_size", "stepped together"),
        ({"autoreset_mode": "Disabled"}, "autoreset_mode", "in the same step"),
        ({"obs_type": "ram"}, "obs_type", "observations are images"),
        ({"life_los_info": True}, "life_los_info", "did you mean life_loss_info?"),
        (
            {"repeat_action_probability": 1.5},
            "repeat_action_probability",
            "must be <= 1",
        ),
        ({"frameskip": [2, 5]}, "frameskip", "must be a whole number"),
        ({"noop_max": -1}, "noop_max", "must be >= 0"),
        (
            {"mode": 1, "vectorization_mode": "native"},
            "mode",
            'use vectorization_mode "sync"',
        ),
        (
            {"max_t": 9, "max_num_frames_per_episode": 9},
            "max_num_frames_per_episode",
            "max_t",
        ),
        (
            {"frame_stack": 4},
            "frame_stack",
            'stack_num (or frame_op "stack" with frame_op_len)?',
        ),
        (
            {"num_stack": 4},
            "num_stack",
            'stack_num (or frame_op "stack" with frame_op_len)?',
        ),
        ({"max_steps": 4}, "max_steps", "did you mean max_t?"),
        ({"frame_skip": 4}, "frame_skip", "did you mean frameskip?"),
        (
            {"stack_num": 3, "frame_op": "concat", "frame_op_len": 4},
            "stack_num",
            "frame_op_len",
        ),
        (
            {"img_width": 84, "image_downsize": [64, 84]},
            "img_width",
            "image_downsize makes it 64",
        ),
    ],
)
@pytest.mark.parametrize("mode", [None, "sync"])
def test_an_invalid_key_of_a_game_is_refused_with_the_fix(
    assert_refused, build, keys, path, words, mode
):
    keys = {"vectorization_mode": mode, **keys}
    assert_refused("ALE/Pong-v5", f"env.{path} = …: …{words}", **keys)
    with pytest.raises(SpecError):
        build("ALE/Pong-v5", **keys)


@pytest.mark.parametrize(
    ("keys", "messages"),
    [
        ({"mode": 77}, ["env.mode = 77: ALE/Asteroids-v5 has the modes 0 to 31, 128"]),
        (
            {"mode": 128, "difficulty": 1},
            ["env.difficulty = 1: ALE/Asteroids-v5 has the difficulties 0, 3"],
        ),
        ({"mode": 128, "difficulty": 3}, []),
        ({"mode": None}, []),
    ],
)
def test_a_variant_that_a_game_does_not_have_is_refused_with_those_it_has(
    assert_refused, build, keys, messages
):
    keys = {"vectorization_mode": "sync", **keys}
    assert_refused("ALE/Asteroids-v5", *messages, **keys)
    if messages:
        with pytest.raises(SpecError, match="has the"):
            build("ALE/Asteroids-v5", **keys)


def test_a_game_that_does_not_exist_is_refused_with_the_nearest(assert_refused):
    assert_refused("ALE/Pongg-v5", "…did you mean ALE/Pong-v5?")


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["native", "sync"])
def test_the_words_of_every_environment_are_those_of_a_game_too(build, mode):
    keys = {
        "frame_op": "concat",
        "frame_op_len": 3,
        "image_downsize": [60, 40],
        "max_t": 7,
    }
    env = build("ALE/Pong-v5", vectorization_mode=mode, **keys)
    assert env.observation_space.shape == (3, 40, 60)
    assert env.layout.frames == 3
    env.reset()
    finished = [env.step(action).finished for action in actions_for(env, 14)]
    assert [f is not None for f in finished] == [now % 7 == 0 for now in range(1, 15)]


def test_a_variant_of_a_game_is_played_in_single_environments(build):
    env = build("ALE/Breakout-v5", mode=4, difficulty=1)
    assert env.exact_state
    assert {game.unwrapped.ale.getInt("random_seed") for game in env.raw.envs}
    variants = {
        (g.spec.kwargs["mode"], g.spec.kwargs["difficulty"]) for g in env.raw.envs
    }
    assert variants == {(4, 1)}


@pytest.mark.parametrize(
    "mode", [pytest.param("native", marks=needs("ale-py", "0.12")), "sync"]
)
def test_continuous_actions_are_the_buttons_that_they_press(build, mode):
    shared = {"num_envs": 1, "vectorization_mode": mode, **PLAIN}
    stick = build("ALE/Pong-v5", continuous=True, **shared)
    buttons = build("ALE/Pong-v5", full_action_space=True, **shared)
    assert stick.action_space.shape == (3,)
    # radius, angle and fire are seen as [-1, 1]: right, left, up with fire, nothing
    pressed = [([1, 0, -1], 3), ([1, 1, -1], 4), ([1, 0.5, 1], 10), ([-1, 0, -1], 0)]
    assert_array_equal(stick.reset(), buttons.reset())
    for polar, button in pressed * 8:
        moved = stick.step(np.array([polar], np.float32)).obs
        assert_array_equal(moved, buttons.step(np.array([button])).obs)


def test_single_games_need_opencv_and_say_so_beforehand(build, env_spec, monkeypatch):
    find = importlib.util.find_spec
    without = lambda module: None if module == "cv2" else find(module)  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", without)
    build("ALE/Pong-v5")
    assert describe_spaces(env_spec("ALE/Pong-v5")).layout.shape == (4, 84, 84)
    for mode in ("sync", "async"):
        with pytest.raises(
            MissingExtraError, match=r'cv2 is not installed; .*"slm-lab\[atari\]"'
        ):
            describe_spaces(env_spec("ALE/Pong-v5", vectorization_mode=mode))
    assert "cv2 is not installed" in film_fault(env_spec("ALE/Pong-v5"))


def test_the_documentation_lists_the_keys_of_a_game_with_their_defaults():
    page = Path(__file__).parents[4] / "docs" / "environments.md"
    rows = re.findall(
        r"^\| `(\w+)` \| (\S+) \| (.*) \|$", page.read_text(), re.MULTILINE
    )
    fields = AtariKeys.model_fields
    expected = {
        (key, json.dumps(field.default), field.description)
        for key, field in fields.items()
    }
    assert set(rows) == expected - {
        ("episodic_life", "false", fields["episodic_life"].description)
    }
