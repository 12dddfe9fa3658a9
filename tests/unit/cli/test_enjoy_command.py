"""`enjoy@RUN`: episodes in lines, in a window and in videos, on a run that was made once."""

import re
import shutil
import sys
from pathlib import Path
from typing import ClassVar

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from slm_lab.cli import evaluate
from slm_lab.experiment.video_file import VideoFile
from tests.faults.lab import call, command, run_folder
from tests.unit.cli.trained import edited, fingerprint, lab
from tests.video import read_video


def test_episodes_are_shown_one_line_each(run):
    done = lab(run, "enjoy@latest", "--episodes", "3")
    assert done.exit_code == 0
    lines = re.findall(r"^episode (\d): return (\d+), (\d+) steps$", done.output, re.MULTILINE)
    assert [line[0] for line in lines] == ["1", "2", "3"]
    assert all(line[1] == line[2] for line in lines)
    assert lab(run, "enjoy@latest", "--episodes", "3").output == done.output


def test_a_window_shows_the_same_episodes(run, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    options = ("--episodes", "1", "-s", "env.max_t=10")  # a window has the speed of life
    plain = lab(run, "enjoy@latest", *options)
    shown = lab(run, "enjoy@latest", *options, "--render")
    assert (shown.exit_code, shown.output) == (0, plain.output)


def test_each_shown_episode_becomes_a_video_in_the_current_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = fingerprint(run)
    options = ("--episodes", "2", "-s", "env.max_t=10", "--which", "latest")
    plain = lab(run, "enjoy@latest", *options)
    filmed = lab(run, "enjoy@latest", *options, "--video")
    assert (filmed.exit_code, fingerprint(run)) == (0, before)
    said = re.findall(r"^(episode \d: return \d+, (\d+) steps), (.+)$", filmed.output, re.MULTILINE)
    assert [line for line, _, _ in said] == plain.output.splitlines()[-2:]
    name = f"{run_folder(run).name}_s0_latest_500_episode"
    assert [path for _, _, path in said] == [str(tmp_path / f"{name}{n}.mp4") for n in (1, 2)]
    for _, length, path in said:
        meta, frames = read_video(Path(path))
        assert (meta["fps"], len(frames)) == (50.0, int(length) + 1)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_video_that_is_not_finished_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("slm_lab.experiment.video_file.VideoFile.close", interrupted)
    done = lab(run, "enjoy@latest", "--video", "-s", "env.max_t=10")
    assert done.exit_code == 130
    assert list(tmp_path.iterdir()) == []


def test_an_episode_that_is_too_long_for_a_film_is_cut_and_the_next_one_begins(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("slm_lab.cli.filming.MAX_STEPS", 6)
    options = ("--episodes", "2", "--video", "--which", "latest")
    done = lab(run, "enjoy@latest", *options)
    assert done.exit_code == 0
    said = re.findall(r"^episode (\d): cut after 6 steps, (.+)$", done.output, re.MULTILINE)
    assert [number for number, _ in said] == ["1", "2"]
    assert [len(read_video(Path(path))[1]) for _, path in said] == [7, 7]
    again = lab(run, "enjoy@latest", *options, "-s", "env.max_t=6")
    assert "cut" not in again.output
    assert len(list(tmp_path.iterdir())) == 2


def test_ctrl_c_leaves_what_had_been_filmed(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write = VideoFile.write

    def interrupted(self, frame):
        write(self, frame)
        self.written = getattr(self, "written", 0) + 1
        if self.written == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(VideoFile, "write", interrupted)
    done = lab(run, "enjoy@latest", "--video", "--which", "latest")
    assert done.exit_code == 130
    (path,) = tmp_path.iterdir()
    assert f"episode 1: stopped after 3 steps, {path}" in done.output
    assert len(read_video(path)[1]) == 5


def no_pygame(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pygame"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygame", None)


def unknown_driver(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nonsense")


def invisible_driver(monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.setattr(evaluate, "_video_driver", lambda: "offscreen")


@pytest.mark.parametrize("spoil", [no_pygame, unknown_driver, invisible_driver])
def test_a_window_that_cannot_be_opened_is_one_clear_message(run, monkeypatch, spoil):
    spoil(monkeypatch)
    done = lab(run, "enjoy@latest", "--render")
    assert done.exit_code == 1
    assert "--render: cannot open a window for CartPole-v1" in done.output
    assert "leave --render out" in done.output
    assert "episode 1" not in done.output


def test_without_a_display_the_message_is_all_that_is_printed(run, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    done = call(command(run, "enjoy@latest", "--render"), run)
    assert (done.code, done.err) == (
        1,
        "--render: cannot open a window for CartPole-v1: there is no display; "
        "leave --render out to play without one\n",
    )


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
def test_an_environment_without_a_window_is_one_clear_line(random_run, tmp_path, env, reason):
    folder = shutil.copytree(random_run, tmp_path / "copy")
    edited(folder, "env.name", "Odd-v0")
    gymnasium.register("Odd-v0", entry_point=env)
    try:
        done = lab(folder, "enjoy@latest", "--render")
    finally:
        del gymnasium.registry["Odd-v0"]
    assert (done.exit_code, done.stderr) == (
        1,
        f"--render: cannot open a window for Odd-v0: {reason}; "
        "leave --render out to play without one\n",
    )


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (Blind, "it takes no render_mode"),
        (Wordy, 'it has no render mode "rgb_array"; it has ansi'),
        (Undrawn, "no context"),
    ],
)
def test_an_environment_without_images_is_one_clear_line(
    random_run, tmp_path, monkeypatch, env, reason
):
    folder = shutil.copytree(random_run, tmp_path / "copy")
    edited(folder, "env.name", "Odd-v0")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    gymnasium.register("Odd-v0", entry_point=env)
    try:
        done = lab(folder, "enjoy@latest", "--video")
    finally:
        del gymnasium.registry["Odd-v0"]
    assert (done.exit_code, done.stderr) == (1, f"Odd-v0 cannot be drawn: {reason}\n")
    assert list((tmp_path / "here").iterdir()) == []
