"""Episodes that are shown to a film."""

import os
from ctypes.util import find_library
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.core.errors import LabError, UsageError
from slm_lab.env.check import film_fault
from slm_lab.env.make import make_env
from slm_lab.env.simulators import film
from slm_lab.env.simulators.film import (
    Film,
    Filmed,
    drawn,
    headless,
    missing_display_reason,
)
from slm_lab.env.vector.in_process import SyncEnvs
from slm_lab.env.vector.raw import CONTINUES


class Album(Film):
    """Keeps episodes as lists of what the first pixel of each frame is."""

    def __init__(self):
        self.episodes = []
        self.frames = []
        self.fps = set()

    def add(self, frame, fps):
        self.frames.append(int(frame[0, 0, 0]))
        self.fps.add(fps)

    def end(self):
        self.episodes.append(self.frames)
        self.frames = []


class Counting(gymnasium.Env):
    """Draws the number of steps since it was made.

    Every third step ends an episode. After every second end the next episode continues.
    """

    observation_space = spaces.Box(0.0, np.inf, (1,))
    action_space = spaces.Discrete(2)
    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 12}

    def __init__(
        self, continues=False, draw=lambda count: np.full((4, 6, 3), count, np.uint8)
    ):
        self.count = 0
        self.ends = 0
        self.continues = continues
        self.draw = draw

    def reset(self, *, seed=None, options=None):
        info = {CONTINUES: True} if self.continues and self.ends % 2 else {}
        return np.zeros(1, np.float32), info

    def step(self, action):
        self.count += 1
        ended = self.count % 3 == 0
        self.ends += ended
        return np.full(1, self.count, np.float32), 0.0, ended, False, {}

    def render(self):
        return self.draw(self.count)


def play(env, steps):
    envs = SyncEnvs([env], [0])
    envs.reset()
    envs.reset()  # an episode without a step
    for _ in range(steps):
        envs.step(np.zeros(1, np.int64))


def test_an_episode_is_what_it_begins_with_and_what_each_step_ends_in():
    album = Album()
    play(Filmed(Counting(), "Counting-v0", album), 7)
    assert album.episodes == [[0, 1, 2, 3], [3, 4, 5, 6]]
    assert album.frames == [6, 7]


def test_an_episode_that_continues_is_one():
    album = Album()
    play(Filmed(Counting(continues=True), "Counting-v0", album), 7)
    assert album.episodes == [[0, 1, 2, 3, 4, 5, 6]]
    assert album.frames == [6, 7]


@pytest.mark.parametrize(("given", "expected"), [(None, 12.0), (15.0, 15.0)])
def test_the_speed_is_the_given_one_or_the_environments(given, expected):
    album = Album()
    play(Filmed(Counting(), "Counting-v0", album, given), 1)
    assert album.fps == {expected}


def fails(count):
    raise RuntimeError("no\n context")


@pytest.mark.parametrize(
    ("draw", "why"),
    [
        (fails, "no context"),
        (lambda count: None, "gave None"),
        (lambda count: np.zeros((4, 6), np.uint8), r"gave 'uint8 of shape \(4, 6\)'"),
        (lambda count: np.zeros((4, 6, 3)), r"gave 'float64 of shape \(4, 6, 3\)'"),
    ],
)
def test_an_environment_that_cannot_be_drawn_is_one_clear_line(draw, why):
    with pytest.raises(
        LabError, match=rf"(?m)^Counting-v0 cannot be drawn: .*{why}.*$"
    ):
        play(Filmed(Counting(draw=draw), "Counting-v0", Album()), 1)


def test_a_game_is_shown_as_fast_as_the_console_played_it(env_spec):
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    album = Album()
    spec = env_spec(
        "ALE/Pong-v5",
        num_envs=1,
        vectorization_mode="sync",
        frameskip=3,
        render_mode="rgb_array",
    )
    env = make_env(spec, 0, film=album)
    env.reset()
    env.step(np.zeros(1, np.int64))
    env.close()
    assert album.fps == {20.0}


def test_why_an_environment_has_no_images(env_spec, registered):
    class Wordy(Counting):
        metadata: ClassVar = {"render_modes": ["ansi", "human"]}

        def __init__(self, render_mode=None):
            super().__init__()

    wordy = registered("Wordy-v0", Wordy)
    blind = registered("Blind-v0", Counting)
    no_images = 'it has no render mode "rgb_array"; it has ansi, human'
    assert film_fault(env_spec(wordy)) == no_images
    assert film_fault(env_spec(blind)) == "it takes no render_mode"
    assert film_fault(env_spec("CartPole-v1")) is None


DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
OURS = ("MUJOCO_GL", "SDL_VIDEODRIVER")


@pytest.fixture
def bare(monkeypatch):
    for name in (*DISPLAYS, *OURS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return monkeypatch


def test_without_a_display_rendering_uses_an_offscreen_driver_only_temporarily(bare):
    with headless():
        assert [os.environ[name] for name in OURS] == ["egl", "dummy"]
    assert not set(OURS) & set(os.environ)


def test_display_settings_of_the_user_are_kept(bare):
    bare.setenv("MUJOCO_GL", "osmesa")
    with headless():
        assert os.environ["MUJOCO_GL"] == "osmesa"
        assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ["MUJOCO_GL"] == "osmesa"


@pytest.mark.parametrize("display", DISPLAYS)
def test_with_a_display_nothing_is_set(bare, display):
    bare.setenv(display, ":0")
    bare.setattr(film, "_x_server_answers", lambda: True)
    with headless():
        assert not set(OURS) & set(os.environ)


@pytest.mark.skipif(find_library("X11") is None, reason="needs libX11")
def test_a_display_that_no_server_shows_is_none(bare):
    bare.setenv("DISPLAY", ":4242")
    assert missing_display_reason() == "no X server answers at DISPLAY=:4242"
    with headless():
        assert [os.environ[name] for name in OURS] == ["egl", "dummy"]


def failing_in(module, message):
    """A function of a module of that name, which raises."""
    names = {"__name__": module}
    exec(f"def fail():\n    raise RuntimeError({message!r})", names)
    return names["fail"]


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (
            "osmesa",
            "MUJOCO_GL=osmesa does not work here: set MUJOCO_GL=egl, or unset it",
        ),
        (
            "egl",
            "MuJoCo draws with EGL here, which may be missing (libegl1 in Debian and "
            "Ubuntu)",
        ),
        (None, "set MUJOCO_GL=egl, which needs no screen"),
    ],
)
def test_where_mujoco_cannot_draw_the_message_names_the_fix(bare, given, fix):
    if given is not None:
        bare.setenv("MUJOCO_GL", given)
    with pytest.raises(UsageError) as caught, drawn("Odd-v0"):
        failing_in("a.mujoco.module", "no attribute\n 'glGetError'.")()
    assert (
        str(caught.value) == f"Odd-v0 cannot be drawn: no attribute 'glGetError'; {fix}"
    )


@pytest.mark.parametrize(
    ("module", "message"), [("mujoco", "a wrong angle"), ("another", "no OpenGL")]
)
def test_mujoco_gl_is_not_blamed_for_anything_else(bare, module, message):
    bare.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(UsageError) as caught, drawn("Odd-v0"):
        failing_in(module, message)()
    assert str(caught.value) == f"Odd-v0 cannot be drawn: {message}"
