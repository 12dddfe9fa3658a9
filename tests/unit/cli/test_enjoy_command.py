"""`enjoy@RUN`: episodes in lines, in a window and in videos, on a run that was made
once."""

import importlib.util
import re
import shutil
import sys
import types
from ctypes.util import find_library
from pathlib import Path
from typing import ClassVar

import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from slm_lab.core.process import STOP_SIGNALS
from slm_lab.env import window
from slm_lab.session.video import VideoFile
from tests.faults.lab import call, command, run_folder, started, wait_until
from tests.unit.cli.trained import edited, fingerprint, lab_run
from tests.video import read_video


def test_episodes_are_shown_one_line_each(run):
    done = lab_run(run, "enjoy@latest", "--episodes", "3")
    assert done.code == 0
    lines = re.findall(
        r"^episode (\d): return (\d+), (\d+) steps$", done.both, re.MULTILINE
    )
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert all(line[1] == line[2] for line in lines)
    assert lab_run(run, "enjoy@latest", "--episodes", "3").both == done.both


def test_a_window_shows_the_same_episodes(run, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    # a window has the speed of life
    options = ("--episodes", "1", "-s", "env.max_t=10")
    plain = lab_run(run, "enjoy@latest", *options)
    shown = lab_run(run, "enjoy@latest", *options, "--render")
    assert (shown.code, shown.both) == (0, plain.both)


@pytest.mark.medium
def test_each_shown_episode_becomes_a_video_in_the_current_folder(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = fingerprint(run)
    options = ("--episodes", "2", "-s", "env.max_t=10", "--which", "latest")
    plain = lab_run(run, "enjoy@latest", *options)
    filmed = lab_run(run, "enjoy@latest", *options, "--video")
    assert (filmed.code, fingerprint(run)) == (0, before)
    episodes = re.findall(
        r"^(episode \d: return \d+, (\d+) steps), (.+)$", filmed.both, re.MULTILINE
    )
    assert [line for line, _, _ in episodes] == plain.both.splitlines()[-2:]
    name = f"{run_folder(run).name}_s0_latest_500_episode"
    assert [path for _, _, path in episodes] == [
        str(tmp_path / f"{name}{n}.mp4") for n in (1, 2)
    ]
    for _, length, path in episodes:
        meta, frames = read_video(Path(path))
        assert (meta["fps"], len(frames)) == (50.0, int(length) + 1)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_video_that_is_not_finished_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("slm_lab.session.video.VideoFile.close", interrupted)
    done = lab_run(run, "enjoy@latest", "--video", "-s", "env.max_t=10")
    assert done.code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.medium
def test_an_episode_that_is_too_long_for_a_film_is_cut_and_the_next_one_begins(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("slm_lab.cli.evaluate.MAX_STEPS", 6)
    options = ("--episodes", "2", "--video", "--which", "latest")
    done = lab_run(run, "enjoy@latest", *options)
    assert done.code == 0
    episodes = re.findall(
        r"^episode (\d): cut after 6 steps, (.+)$", done.both, re.MULTILINE
    )
    assert [number for number, _ in episodes] == ["1", "2"]
    assert [len(read_video(Path(path))[1]) for _, path in episodes] == [7, 7]
    again = lab_run(run, "enjoy@latest", *options, "-s", "env.max_t=6")
    assert "cut" not in again.both
    assert len(list(tmp_path.iterdir())) == 2


def test_ctrl_c_keeps_the_frames_filmed_so_far(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write = VideoFile.write

    def interrupted(self, frame):
        write(self, frame)
        self.written = getattr(self, "written", 0) + 1
        if self.written == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(VideoFile, "write", interrupted)
    done = lab_run(run, "enjoy@latest", "--video", "--which", "latest")
    assert done.code == 130
    (path,) = tmp_path.iterdir()
    assert f"episode 1: stopped after 3 steps, {path}" in done.both
    assert len(read_video(path)[1]) == 5


def no_pygame(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pygame"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygame", None)


def unknown_driver(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")


def invisible_driver(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(window, "_video_driver", lambda: "offscreen")


@pytest.mark.parametrize("spoil", [no_pygame, unknown_driver, invisible_driver])
def test_a_window_that_cannot_be_opened_is_one_clear_message(run, monkeypatch, spoil):
    spoil(monkeypatch)
    done = lab_run(run, "enjoy@latest", "--render")
    assert done.code == 2
    assert "--render: cannot open a window for CartPole-v1" in done.both
    assert "leave --render out" in done.both
    assert "episode 1" not in done.both


DEAD = ":4242"
"""A display that no server shows."""


@pytest.mark.medium
@pytest.mark.parametrize(
    ("display", "reason"),
    [
        (None, "there is no display"),
        pytest.param(
            DEAD,
            f"no X server answers at DISPLAY={DEAD}",
            marks=pytest.mark.skipif(
                find_library("X11") is None, reason="needs libX11"
            ),
        ),
    ],
)
def test_without_a_display_the_message_is_all_that_is_printed(
    run, bare, display, reason
):
    if display is not None:
        bare.setenv("DISPLAY", display)
    done = call(command(run, "enjoy@latest", "--render"), run)
    assert (done.code, done.err) == (2, no_window("CartPole-v1", reason))


def no_window(name, reason):
    return (
        f"--render: cannot open a window for {name}: {reason}; leave --render out to "
        "play without one, or use --video instead\n"
    )


@pytest.fixture
def bare(monkeypatch):
    """A process without a display, where the user has set no driver."""
    names = (
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "SDL_VIDEODRIVER",
        "XDG_RUNTIME_DIR",
        "MUJOCO_GL",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return monkeypatch


class Blind(CartPoleEnv):
    """Takes no render mode."""

    def __init__(self):
        super().__init__()


class Wordy(CartPoleEnv):
    """Can only be read."""

    metadata: ClassVar = {"render_modes": ["ansi"]}


class Broken(CartPoleEnv):
    """Fails at length."""

    def __init__(self, render_mode=None):
        if render_mode is not None:
            raise RuntimeError("no\ncontext")
        super().__init__()


class Undrawn(CartPoleEnv):
    """Fails when it is drawn."""

    def render(self):
        raise RuntimeError("no\ncontext")


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (Blind, "it takes no render_mode"),
        (Wordy, 'it has no render mode "human"; it has ansi'),
        (Broken, "no context"),
    ],
)
def test_an_environment_without_a_window_is_one_clear_line(
    odd_run, monkeypatch, env, reason
):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    done = lab_run(odd_run(env), "enjoy@latest", "--render")
    assert (done.code, done.err) == (2, no_window("Odd-v0", reason))


class Deadly(CartPoleEnv):
    """Must not be asked for a window."""

    def __init__(self, render_mode=None):
        assert render_mode is None
        super().__init__()


def test_without_a_display_no_simulator_is_asked(odd_run, bare):
    done = lab_run(odd_run(Deadly), "enjoy@latest", "--render")
    assert (done.code, done.err) == (
        2,
        no_window("Odd-v0", "there is no display"),
    )


@pytest.mark.parametrize("library", sorted(window.OWN_WINDOWS))
def test_the_sdl_driver_does_not_affect_a_simulator_with_its_own_windows(
    odd_run, bare, library
):
    bare.setenv("SDL_VIDEODRIVER", "dummy")
    module = types.ModuleType("odd_simulator")
    module.client = types.ModuleType(f"{library}.client")
    bare.setitem(sys.modules, "odd_simulator", module)
    bare.setattr(Deadly, "__module__", "odd_simulator")
    done = lab_run(odd_run(Deadly), "enjoy@latest", "--render")
    assert (done.code, done.err) == (
        2,
        no_window("Odd-v0", "there is no display"),
    )


STUCK = """
import ctypes
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Stuck(CartPoleEnv):
    def __init__(self, render_mode=None):
        if render_mode is not None:
            print("asked", flush=True)
            library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(256)
            library.pthread_mutex_lock(mutex)
            library.pthread_mutex_lock(mutex)
        super().__init__()

gymnasium.register("Stuck-v0", entry_point=Stuck)
"""
"""An environment that waits forever for its window, in C, where Python handles no
signal."""


@pytest.mark.medium
@pytest.mark.skipif(
    sys.platform != "linux", reason="the mutex is that of its C library"
)
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_simulator_that_waits_for_its_window_can_be_stopped(
    random_run, tmp_path, monkeypatch, number
):
    folder = shutil.copytree(random_run, tmp_path / "copy")
    edited(folder, "env.name", "stuck:Stuck-v0")
    (tmp_path / "stuck.py").write_text(STUCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with started(folder, "enjoy@latest", "--render", "--import", "stuck") as running:
        wait_until(lambda: "asked" in (folder / "out").read_text())
        running.signal_group(number)
        assert running.end().code == -number


@pytest.fixture
def odd_run(random_run, tmp_path, registered):
    """A run on CartPole that is treated as one on another class."""

    def make(env):
        folder = shutil.copytree(random_run, tmp_path / "copy")
        edited(folder, "env.name", registered("Odd-v0", env))
        return folder

    return make


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (Blind, "it takes no render_mode"),
        (Wordy, 'it has no render mode "rgb_array"; it has ansi'),
        (Undrawn, "no context"),
    ],
)
def test_an_environment_without_images_is_one_clear_line(
    odd_run, tmp_path, monkeypatch, env, reason
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = lab_run(odd_run(env), "enjoy@latest", "--video")
    assert (done.code, done.err) == (2, f"Odd-v0 cannot be drawn: {reason}\n")
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.medium
@pytest.mark.skipif(
    importlib.util.find_spec("mujoco") is None, reason="needs the mujoco extra"
)
@pytest.mark.parametrize(
    ("given", "what"),
    [
        pytest.param(
            "nonsense", "does not import", id="which keeps it from being imported"
        ),
        pytest.param(
            "disable", "cannot be drawn", id="which leaves something half made"
        ),
        pytest.param("glfw", "cannot be drawn", id="which warns"),
    ],
)
def test_an_unusable_mujoco_gl_is_one_line_with_the_fix(
    random_run, tmp_path, bare, given, what
):
    folder = shutil.copytree(random_run, tmp_path / "copy")
    edited(folder, "env.name", "Hopper-v5")
    bare.setenv("MUJOCO_GL", given)
    done = call(command(folder, "enjoy@latest", "--video"), tmp_path)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith(f"Hopper-v5 {what}: ")
    assert line.endswith(
        f"; MUJOCO_GL={given} does not work here: set MUJOCO_GL=egl, or unset it"
    )
