"""Atari games, native and single, against Gymnasium's own wrappers and against each
other."""

import copy
import io
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal, assert_equal

from slm_lab.storage.checkpoint import to_plain
from tests.unit.env.games import PLAIN, actions_for

pytest.importorskip("ale_py")
pytest.importorskip("cv2")


def reference(name, max_frames):
    """Gymnasium's chain: preprocessing, then the last four frames, empty before the
    first."""
    env = gymnasium.make(
        name,
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=max_frames,
        disable_env_checker=True,
    )
    env = gymnasium.wrappers.AtariPreprocessing(env, noop_max=0)
    return gymnasium.wrappers.FrameStackObservation(env, 4, padding_type="zero")


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["native", "sync"])
@pytest.mark.parametrize(
    ("name", "max_t", "steps", "idle_after", "games"),
    [
        ("ALE/Pong-v5", None, 840, 60, 1),
        ("ALE/Breakout-v5", None, 300, 100, 1),
        ("ALE/Freeway-v5", 90, 200, None, 2),
    ],
)
def test_observations_and_returns_are_those_of_gymnasiums_wrappers_frame_by_frame(
    build, name, max_t, steps, idle_after, games, mode
):
    keys = {
        "num_envs": 1,
        "vectorization_mode": mode,
        "max_t": max_t,
        "reward_clipping": False,
    }
    env = build(name, **keys, **PLAIN)
    plain = reference(name, max_t and 4 * max_t)
    assert_array_equal(env.reset()[0], plain.reset()[0])
    total = 0.0
    length = 0
    finished = 0
    for action in actions_for(env, steps, idle_after):
        step = env.step(action)
        obs, reward, *ends, _ = plain.step(action[0])
        total = total + reward
        length = length + 1
        assert step.reward[0] == reward
        assert [step.terminated[0], step.truncated[0]] == ends
        assert_array_equal(step.next_obs[0], obs)
        assert (step.finished is not None) == any(ends)
        if step.finished is not None:
            assert step.finished.episode_return[0] == total
            assert step.finished.episode_length[0] == length
            obs, _ = plain.reset()
            total = 0.0
            length = 0
            finished = finished + 1
        assert_array_equal(step.obs[0], obs)
    assert finished >= games
    plain.close()


class Starts:
    """Notes with how many frames every game of a native environment began, by
    environment."""

    def __init__(self, env):
        self._env = env.raw.env
        self.frames = []
        self._before = None
        env.raw.env = self

    def __getattr__(self, name):
        return getattr(self._env, name)

    def reset(self, **kwargs):
        obs, info = self._env.reset(**kwargs)
        self.frames = [[int(frames)] for frames in info["episode_frame_number"]]
        self._before = info["frame_number"] - info["episode_frame_number"]
        return obs, info

    def step(self, action):
        step = self._env.step(action)
        before = step[4]["frame_number"] - step[4]["episode_frame_number"]
        for index in np.flatnonzero(before != self._before):
            self.frames[index].append(int(step[4]["episode_frame_number"][index]))
        self._before = before
        return step


VARIANTS = {
    "nothing but sticky": {"name": "ALE/Pong-v5", "repeat_action_probability": 1.0},
    "lives": {"name": "ALE/Breakout-v5", "life_loss_info": True},
    "no fire at the start": {"name": "ALE/Breakout-v5", "use_fire_reset": False},
    "colour": {"name": "ALE/Breakout-v5", "grayscale": False, "max_t": 60},
    "unpooled": {"name": "ALE/Pong-v5", "maxpool": False, "frameskip": 3, "max_t": 60},
    "every frame": {"name": "ALE/Pong-v5", "frameskip": 1, "noop_max": 1, "max_t": 60},
    "wide": {"name": "ALE/Pong-v5", "img_width": 100, "img_height": 50, "stack_num": 2},
    "as it is": {"name": "ALE/Pong-v5", "img_width": 160, "img_height": 210},
    "all actions": {"name": "ALE/Pong-v5", "full_action_space": True, "max_t": 3},
    "old name": {"name": "BreakoutNoFrameskip-v4", "life_loss_info": True},
    "cut in the middle of a step": {
        "name": "ALE/Pong-v5",
        "max_num_frames_per_episode": 81,
    },
}


@pytest.mark.medium
@pytest.mark.parametrize("keys", VARIANTS.values(), ids=VARIANTS)
def test_a_single_game_is_the_native_one_step_by_step(build, monkeypatch, keys):
    keys = {"num_envs": 2, "repeat_action_probability": 0.0, **keys}
    native, single = (
        build(**keys, vectorization_mode=mode) for mode in ("native", "sync")
    )
    starts = Starts(native)
    drawn = {id(game): iter(()) for game in single.raw.envs}
    monkeypatch.setattr(
        "slm_lab.env.simulators.atari_game.AtariGame.draw_no_ops",
        lambda game: next(drawn[id(game)]),
    )
    actions = actions_for(native, 80)
    expected = [native.reset(), *(native.step(action) for action in actions)]
    drawn |= {
        id(game): iter(frames)
        for game, frames in zip(single.raw.envs, starts.frames, strict=True)
    }
    assert native.observation_space == single.observation_space
    assert native.action_space == single.action_space
    assert_array_equal(single.reset(), expected[0])
    for action, step in zip(actions, expected[1:], strict=True):
        assert_equal(single.step(action), step)


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["native", "sync"])
def test_a_lost_life_ends_the_episode_for_the_learner_only(build, mode):
    envs = [
        build(
            "ALE/Breakout-v5", vectorization_mode=mode, life_loss_info=lives, max_t=75
        )
        for lives in (False, True)
    ]
    assert_array_equal(*(env.reset() for env in envs))
    lost = games = 0
    for action in actions_for(envs[0], 160):
        whole, lives = (env.step(action) for env in envs)
        for name in ("obs", "next_obs", "reward"):
            assert_array_equal(getattr(lives, name), getattr(whole, name))
        assert_equal(lives.finished, whole.finished)
        only_lost = lives.terminated & ~whole.terminated & ~whole.truncated
        assert not (whole.terminated & ~lives.terminated).any()
        assert_array_equal(lives.obs[only_lost], lives.next_obs[only_lost])
        lost += only_lost.sum()
        games += 0 if whole.finished is None else len(whole.finished.env_index)
    assert lost >= 4
    assert games >= 6


@pytest.mark.medium
@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ({}, {0, 1}),
        ({"reward_clipping": True, "reward_scale": 0.5}, {0, 0.5}),
        ({"reward_clipping": False}, {0, 4}),
        ({"clip_reward": 2.0}, {0, 2}),
        ({"reward_clipping": False, "reward_scale": "sign"}, {0, 1}),
    ],
)
def test_rewards_are_clipped_for_the_learner_and_returns_are_raw(build, keys, seen):
    env = build(
        "ALE/Breakout-v5", num_envs=2, vectorization_mode="sync", max_t=9, **keys
    )
    env.reset()
    for game in env.raw.envs:
        game.ale = FourPoints(game.ale)
    steps = [env.step(action) for action in actions_for(env, 9)]
    assert {float(reward) for step in steps for reward in step.reward} == seen
    assert_array_equal(steps[-1].finished.episode_return, [12, 12])


class FourPoints:
    """An ALE in which every twelfth frame is worth four points and no other any."""

    def __init__(self, ale):
        self._ale = ale
        self._frames = 0

    def __getattr__(self, name):
        return getattr(self._ale, name)

    def act(self, *action):
        self._frames += 1
        self._ale.act(*action)
        if self._frames % 12 == 0:
            return 4
        return 0


@pytest.mark.parametrize("probability", [0.25, 0.6])
def test_an_action_that_is_not_taken_is_the_one_before(build, probability):
    keys = {
        "num_envs": 1,
        "vectorization_mode": "sync",
        "noop_max": 0,
        "use_fire_reset": False,
    }
    env = build("ALE/Pong-v5", repeat_action_probability=probability, **keys)
    env.reset()
    (game,) = env.raw.envs
    game.ale = recorder = Recorder(game.ale)
    chosen = actions_for(env, 250)
    for action in chosen:
        env.step(action)
    wanted = np.array(game.actions)[chosen.repeat(4)]
    taken = np.array(recorder.taken)
    before = np.concatenate([[0], taken[:-1]])
    assert ((taken == wanted) | (taken == before)).all()
    differs = wanted != before
    assert abs((taken[differs] == before[differs]).mean() - probability) < 0.06


class Recorder:
    """An ALE that notes which actions are taken."""

    def __init__(self, ale):
        self._ale = ale
        self.taken = []

    def __getattr__(self, name):
        return getattr(self._ale, name)

    def act(self, action, strength):
        self.taken.append(action)
        return self._ale.act(action, strength)


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["native", "sync"])
@pytest.mark.parametrize("action", [6, -7])
def test_an_invalid_action_fails_and_does_not_hang(build, mode, action):
    env = build("ALE/Pong-v5", vectorization_mode=mode)
    env.reset()
    with pytest.raises(IndexError) as failure:
        env.step(np.array([0, action, 5]))
    assert "environment 1 of 3 (" in failure.value.__notes__[0]
    assert f"with action {action}" in failure.value.__notes__[0]


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", ["ALE/Pong-v5", "ALE/Breakout-v5"])
def test_a_restored_game_continues_bit_for_bit(build, name, mode):
    keys = {"num_envs": 2, "vectorization_mode": mode, "life_loss_info": True}
    env = build(name, 1, **keys)
    restored = build(name, 2, **keys)
    actions = actions_for(env, 300 if mode == "sync" else 150)
    env.reset()
    for action in actions[:77]:
        env.step(action)
    state = env.state_dict()
    assert env.exact_state
    restored.load_state_dict(copy.deepcopy(state))
    assert_array_equal(restored.obs, env.obs)
    for action in actions[77:]:
        assert_equal(restored.step(action), env.step(action))
    assert torch_loads(state)


def torch_loads(state):
    """Whether it survives the file format of checkpoints, in which nothing is
    unpickled."""
    file = io.BytesIO()
    torch.save(to_plain(state), file)
    file.seek(0)
    torch.load(file, weights_only=True)
    return True


@pytest.mark.medium
def test_nothing_is_printed_when_games_are_made():
    code = """
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec
for mode in ("native", "sync"):
    pong = EnvSpec(name="ALE/Pong-v5", max_frame=1, vectorization_mode=mode)
    make_env(pong, 0).reset()
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
