"""`eval@RUN` and `enjoy@RUN`, on runs that were made once."""

import hashlib
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import ClassVar

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from typer.testing import CliRunner

from slm_lab.cli import evaluate
from slm_lab.cli.main import app
from slm_lab.experiment.checkpoint import CheckpointStore
from slm_lab.experiment.lock import RunLock
from slm_lab.experiment.manifest import read_manifest
from slm_lab.experiment.video_file import VideoFile
from tests.faults.lab import LAB, NAME, call, command, manifest, run_folder, write_spec
from tests.support import ppo
from tests.video import read_video

SPEC = ppo(meta__max_session=2, meta__rigorous_eval=2, meta__eval_frequency=200,
           env__max_frame=500, env__normalize_obs=True)  # fmt: skip
RANDOM = {
    "agent": {"name": "Random", "algorithm": {"name": "Random"}},
    "env": {**ppo()["env"], "max_frame": 300},
    "meta": ppo()["meta"],
}


def trained(folder, spec):
    write_spec(folder, spec)
    (folder / "data").mkdir()
    done = call(command(folder, "train"), folder)
    assert (done.code, done.err) == (0, "")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("trained"), SPEC)


def edited(folder, path, value):
    """Changes the spec that the run folder keeps; the path is dotted."""
    file = run_folder(folder) / f"{NAME}_spec.json"
    content = json.loads(file.read_text())
    *parents, last = path.split(".")
    block = content[NAME]
    for parent in parents:
        block = block[parent]
    block[last] = value
    file.write_text(json.dumps(content))


@pytest.fixture
def copy(run, tmp_path):
    """A copy of it, to be spoilt."""
    return shutil.copytree(run, tmp_path / "copy")


def lab(folder, mode, *options):
    """The command in this process."""
    args = command(folder, mode, *options)[1:]
    return CliRunner().invoke(app, args, env={"COLUMNS": "80"}, catch_exceptions=False)


def table(output):
    """The rows of numbers that were printed."""
    return [line.split() for line in output.splitlines() if re.match(r"\s+(\d|all)", line)]


def fingerprint(folder):
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in [folder, *folder.rglob("*")]
    }


def test_evaluations_during_training_leave_rows_metrics_and_graphs(run):
    root = run_folder(run)
    for s in (0, 1):
        metrics = json.loads(
            (root / "info" / f"{NAME}_t0_s{s}_session_metrics_scalar_eval.json").read_text()
        )
        lines = (root / "info" / f"{NAME}_t0_s{s}_session_df_eval.csv").read_text().splitlines()
        assert metrics["num_rows"] == len(lines) - 1 == 3
        assert metrics["strength"] is not None
        rows = read_manifest(manifest(run, s)).rows
        assert rows == {path.name: path.stat().st_size for path in root.glob(f"info/*s{s}*.csv")}
        assert list((root / "log" / "tensorboard" / f"{NAME}_t0_s{s}" / "eval").iterdir())
    for kind in ("png", "html"):
        graph = root / f"{NAME}_t0_trial_graph_eval_mean_returns_vs_frames.{kind}"
        overview = root / "graph" / f"{NAME}_t0_s1_session_graph_overview.{kind}"
        assert graph.stat().st_size
        assert overview.stat().st_size


def test_every_session_is_evaluated_and_all_of_them_together(run):
    done = lab(run, "eval@latest", "--episodes", "20")
    assert done.exit_code == 0
    first, second, both = table(done.output)
    assert [first[0], second[0], both[0]] == ["0", "1", "all"]
    assert (first[3], second[3], both[1]) == ("20", "20", "40")
    means = [float(row[4]) for row in (first, second)]
    assert float(both[2]) == pytest.approx(sum(means) / 2, rel=1e-3)
    for row in (first[4:], second[4:], both[2:]):
        mean, std, least, most, length = map(float, row)
        assert least <= mean <= most
        assert std <= most - least
        assert length == pytest.approx(mean, abs=0.1)  # CartPole: 1 per step


def test_a_run_can_be_named_in_every_way_that_resuming_knows(run):
    folder = run_folder(run)
    outputs = {
        lab(run, f"eval@{name}", "--episodes", "4").output
        for name in ("latest", folder, folder.name)
    }
    assert len(outputs) == 1


def test_the_same_command_prints_the_same_and_another_seed_does_not(run):
    first, again = (lab(run, "eval@latest", "--episodes", "20").output for _ in range(2))
    assert first == again
    other = lab(run, "eval@latest", "--episodes", "20", "--seed", "7").output
    assert table(other) != table(first)


def test_a_session_is_evaluated_alone_as_among_the_others(run):
    together = table(lab(run, "eval@latest", "--episodes", "8").output)
    assert table(lab(run, "eval@latest", "--episodes", "8", "--session", "1").output) == [
        together[1]
    ]


def test_the_best_agent_plays_unless_the_latest_is_asked_for(run):
    store = CheckpointStore(run_folder(run) / "model", f"{NAME}_t0_s0")
    best = store.load(store.manifest(), "best")
    by_default, latest = (
        table(lab(run, "eval@latest", "--session", "0", *options).output)[0]
        for options in ((), ("--which", "latest"))
    )
    assert by_default[1:3] == ["best", str(best["frame"])]
    assert latest[1:3] == ["latest", "500"]


def test_where_there_is_no_best_the_latest_plays_and_it_is_said(copy):
    path = manifest(copy, 1)
    content = json.loads(path.read_text())
    del content["files"]["best"]
    path.write_text(json.dumps(content))
    done = lab(copy, "eval@latest", "--episodes", "2")
    assert [row[1] for row in table(done.output)][:2] == ["best", "latest"]
    assert "Session 1 has no best agent yet: its latest one plays" in done.output
    done = lab(copy, "eval@latest", "--which", "best")
    assert done.exit_code == 2
    assert "Session 1 has no best agent yet" in done.output
    assert "--which latest" in done.output


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
def test_the_run_is_not_touched_not_even_its_times_or_its_lock(run, mode):
    before = fingerprint(run)
    lock = RunLock(run_folder(run))  # as a training holds it
    held = fingerprint(run)
    assert lab(run, mode, "--episodes", "2").exit_code == 0
    assert fingerprint(run) == held
    lock.release()
    assert held.keys() == before.keys()


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


@pytest.fixture(scope="module")
def random_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("random"), RANDOM)


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


def test_a_random_agent_is_evaluated_like_any_other(random_run):
    first, again = (lab(random_run, "eval@latest", "--episodes", "50").output for _ in range(2))
    assert first == again
    assert 15 < float(table(first)[0][4]) < 30


REFUSED = {
    "an agent that was trained otherwise": (
        ["eval@latest", "-s", "agent.algorithm.gamma=0.5"],
        ["agent.algorithm.gamma", "0.99", "env.max_t"],
    ),
    "another environment": (["eval@latest", "-s", "env.name=Acrobot-v1"], ["env.name", "CartPole"]),
    "a key that is none": (["eval@latest", "-s", "env.max_tt=3"], ["env.max_tt"]),
    "a session that is none": (["eval@latest", "--session", "2"], ["--session 2", "0 to 1"]),
    "a folder that is none": (["eval@nowhere"], ["no run folder nowhere"]),
    "a window for a table": (["eval@latest", "--render"], ["--render", "enjoy@RUN"]),
    "a video of a table": (["eval@latest", "--video"], ["--video", "enjoy@RUN"]),
    "a window and a video": (
        ["enjoy@latest", "--video", "--render"],
        ["--render and --video do not go together"],
    ),
    "episodes of a training": (["train", "--episodes", "3"], ["--episodes", "eval@RUN"]),
    "a session of a resumed training": (["train@latest", "--session", "0"], ["--session"]),
    "no run": (["enjoy"], ["enjoy@latest"]),
    "no episodes": (["eval@latest", "--episodes", "0"], ["--episodes"]),
    "neither best nor latest": (["eval@latest", "--which", "worst"], ["--which", "latest"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_one_clear_message(what, run):
    args, words = REFUSED[what]
    before = fingerprint(run)
    done = lab(run, *args)
    assert done.exit_code == 2
    for word in words:
        assert word in done.output
    assert fingerprint(run) == before


def test_a_step_limit_can_be_set_for_episodes_that_do_not_end(run):
    done = lab(run, "eval@latest", "--episodes", "4", "-s", "env.max_t=7")
    assert [row[-1] for row in table(done.output)] == ["7.0", "7.0", "7.0"]


def test_the_spec_of_the_run_counts_whatever_the_file_says_by_now(copy):
    before = lab(copy, "eval@latest", "--episodes", "4").output
    write_spec(copy, ppo(env__name="Acrobot-v1", agent__net__hid_layers=[8]))
    assert lab(copy, "eval@latest", "--episodes", "4").output == before


def test_a_run_that_was_killed_before_its_first_checkpoint_has_nothing_to_evaluate(copy):
    for path in (run_folder(copy) / "model").iterdir():
        path.unlink()
    for mode in ("eval@latest", "enjoy@latest"):
        done = lab(copy, mode)
        assert done.exit_code == 2
        assert "Session 0 has no checkpoint yet" in done.output


@pytest.mark.parametrize("part", ["best", "state"])
def test_a_damaged_checkpoint_is_named(copy, part):
    name = read_manifest(manifest(copy)).files[part]["name"]
    (run_folder(copy) / "model" / name).write_bytes(b"damaged")
    which = "best" if part == "best" else "latest"
    done = lab(copy, "eval@latest", "--which", which)
    assert done.exit_code == 1
    assert name in done.output
    assert "damaged" in done.output


@pytest.mark.parametrize("part", ["best", "state"])
def test_a_checkpoint_that_a_training_replaces_meanwhile_is_read_anew(copy, part, monkeypatch):
    store = CheckpointStore(run_folder(copy) / "model", f"{NAME}_t0_s0")
    stale = store.manifest()
    parts = {name: store.load(stale, name) for name in ("state", "best")}
    expected = lab(copy, "eval@latest", "--session", "0", "--episodes", "2").output
    store.save(500, stale.rows, parts)
    manifests, read = [stale], CheckpointStore.manifest
    monkeypatch.setattr(
        CheckpointStore, "manifest", lambda self: manifests.pop() if manifests else read(self)
    )
    which = "best" if part == "best" else "latest"
    done = lab(copy, "eval@latest", "--session", "0", "--episodes", "2", "--which", which)
    assert done.exit_code == 0
    assert not manifests
    assert part == "state" or done.output == expected


def test_sessions_without_a_checkpoint_are_left_out_and_named(copy):
    manifest(copy, 1).unlink()
    done = lab(copy, "eval@latest", "--episodes", "2")
    assert done.exit_code == 0
    assert [row[0] for row in table(done.output)] == ["0"]
    assert "Session 1 has no checkpoint yet: left out" in done.output
    assert lab(copy, "eval@latest", "--session", "1").exit_code == 2


def test_an_agent_that_never_trained_does_not_count_for_all(copy):
    store = CheckpointStore(run_folder(copy) / "model", f"{NAME}_t0_s0")
    state = store.load(store.manifest())
    manifest(copy).unlink()
    store.save(0, {}, {"state": {**state, "frame": 0}})
    done = lab(copy, "eval@latest", "--episodes", "2")
    assert [row[0] for row in table(done.output)] == ["0", "1"]
    assert "Session 0 stopped at frame 0" in done.output


def test_a_damaged_best_agent_has_the_latest_one_recommended(copy):
    files = read_manifest(manifest(copy)).files
    (run_folder(copy) / "model" / files["best"]["name"]).write_bytes(b"damaged")
    assert "use --which latest" in lab(copy, "eval@latest").output
    (run_folder(copy) / "model" / files["state"]["name"]).write_bytes(b"damaged")
    assert "use --which latest" not in lab(copy, "eval@latest").output


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest", "train@latest"])
def test_a_run_whose_seed_was_taken_out_is_one_clear_message(copy, mode):
    path = next(run_folder(copy).glob(f"{NAME}_spec.json"))
    content = json.loads(path.read_text())
    content[NAME]["meta"]["random_seed"] = None
    path.write_text(json.dumps(content))
    done = lab(copy, mode)
    assert done.exit_code == 2
    assert "meta.random_seed = null" in done.output


EDITED = {
    "a wider layer": (
        "agent.net.hid_layers",
        [32],
        "net.hidden.0.weight of the network actor was saved as 16×4 and is built as 32×4",
    ),
    "one more layer": (
        "agent.net.hid_layers",
        [16, 8],
        "net.heads.0.weight of the network actor was saved as 2×16 and is built as 2×8",
    ),
    "one network less": (
        "agent.net.shared",
        True,
        "saved were the networks actor, critic, built are ",
    ),
    "another environment": (
        "env.name",
        "Acrobot-v1",
        "net.hidden.0.weight of the network actor was saved as 16×4 and is built as 16×6",
    ),
    "no normaliser": ("env.normalize_obs", False, "were saved with 9 statistics and are built "),
}


@pytest.mark.parametrize("which", ["best", "latest"])
@pytest.mark.parametrize("what", EDITED)
def test_a_run_whose_spec_was_edited_to_build_another_agent_is_one_clear_line(copy, what, which):
    path, value, difference = EDITED[what]
    edited(copy, path, value)
    done = lab(copy, "eval@latest", "--which", which, "--session", "0")
    assert done.exit_code == 1
    (line,) = (line for line in done.stderr.splitlines() if line)
    assert line.startswith(f"{run_folder(copy)}: ")
    assert difference in line
    assert line.endswith("undo the change in its *_spec.json")


def test_how_a_run_learned_does_not_matter_to_an_evaluation(copy):
    options = ("--which", "latest", "--episodes", "4")
    before = lab(copy, "eval@latest", *options).output
    edited(copy, "agent.net.optim_spec", {"name": "RMSprop", "lr": 0.001})
    assert lab(copy, "eval@latest", *options).output == before


@pytest.mark.parametrize("mode", ["eval@latest", "enjoy@latest"])
def test_what_the_run_imported_is_imported_again(copy, mode):
    path = next(run_folder(copy).glob(f"{NAME}_spec.json"))
    content = json.loads(path.read_text())
    content["_run"]["imports"] = ["a_plugin_that_is_gone"]
    path.write_text(json.dumps(content))
    done = lab(copy, mode)
    assert done.exit_code == 2
    assert "--import a_plugin_that_is_gone" in done.output


@pytest.mark.parametrize("mode", ["train", "train@latest", "eval@latest"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_imports_waits_and_stops_the_command(copy, number, mode):
    (copy / "sends_a_signal.py").write_text(
        "import os\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    sum(range(1000))\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('interrupted')\n"
    )
    before = fingerprint(copy / "data")
    done = call(command(copy, mode, "--import", "sends_a_signal"), copy)
    assert (done.code, done.err, done.out) == (130, "stopped\n", "")
    assert fingerprint(copy / "data") == before


@pytest.mark.parametrize("command_name", ["check", "show", "schema"])
def test_a_ctrl_c_while_a_spec_command_imports_is_the_same(tmp_path, command_name):
    (tmp_path / "interrupted.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    sum(range(1000))\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('interrupted')\n"
    )
    words = [command_name] if command_name == "schema" else [command_name, "demo.json"]
    done = call([str(LAB), "spec", *words, "--import", "interrupted"], tmp_path)
    assert (done.code, done.err, done.out) == (130, "stopped\n", "")
