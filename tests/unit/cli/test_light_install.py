"""An install without extras trains; what needs an extra names it in one line."""

import subprocess
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.faults.lab import LAB, NAME, command, write_spec
from tests.support import ppo

pytestmark = pytest.mark.medium

BLOCKER = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
SPEC = ppo(env__max_frame=500, search={"agent.algorithm.gamma__uniform": [0.9, 0.99]})


def packages(*extras):
    """The packages that come with the lab and these extras."""
    found: set[str] = set()
    waiting = [("slm-lab", extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if f"{name}[{extra}]" in found:
            continue
        found |= {name, f"{name}[{extra}]"}
        for line in requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                each = canonicalize_name(needed.name)
                waiting += [(each, more) for more in ("", *needed.extras)]
    return found


def modules_without(*extras):
    """The modules of every other package that is installed."""
    there = packages(*extras)
    return {
        module
        for module, owners in packages_distributions().items()
        if there.isdisjoint(map(canonicalize_name, owners))
    }


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Runs a command as if only the packages of a light install and of extras were
    there, its child processes too; returns the exit code and the lines on stderr."""
    blocker = tmp_path / "path" / "sitecustomize.py"
    blocker.parent.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(blocker.parent))
    write_spec(tmp_path, SPEC)

    def run(args, *extras):
        blocker.write_text(BLOCKER.format(names=sorted(modules_without(*extras))))
        done = subprocess.run(
            args, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        lines = done.stderr.splitlines()
        return done, [line for line in lines if "meta.log_frequency" not in line]

    return run


def line_of(module, extra):
    return f'{module} is not installed; run: pip install "slm-lab[{extra}]"'


def test_the_packages_of_extras_are_known():
    blocked = modules_without()
    assert {"ray", "tensorboard", "imageio_ffmpeg", "pygame"} <= blocked
    assert blocked.isdisjoint({"slm_lab", "torch", "numpy", "pandas", "PIL", "yaml"})


def test_a_training_is_complete_but_for_tensorboard(lab, tmp_path):
    done, lines = lab(command(tmp_path, "train"))
    assert (done.returncode, lines) == (0, [])
    note = " ".join(done.stdout.split())
    assert f"no TensorBoard events: {line_of('tensorboard', 'tensorboard')}" in note
    (folder,) = (tmp_path / "data").glob(f"{NAME}_*")
    made = {file.suffix for file in folder.rglob("*") if file.is_file()}
    assert {".csv", ".json", ".html", ".png", ".pt"} <= made
    assert not list(folder.rglob("*tfevents*"))
    for mode in ("eval", "enjoy"):
        done, lines = lab(command(tmp_path, f"{mode}@latest", "--quiet"))
        assert (done.returncode, lines) == (0, []), mode
    plot = [str(LAB), "plot", str(folder), "--out", str(tmp_path / "plot")]
    assert lab(plot)[0].returncode == 0


@pytest.mark.parametrize(
    ("mode", "options", "module", "extra"),
    [
        ("search", (), "ray.tune", "search"),
        ("train", ("--cluster", "127.0.0.1:1"), "ray", "cluster"),
        ("train", ("-s", "meta.record_video=200"), "imageio_ffmpeg", "video"),
    ],
)
def test_what_needs_an_extra_names_it_in_one_line_before_a_folder_exists(
    lab, tmp_path, mode, options, module, extra
):
    done, lines = lab(command(tmp_path, mode, *options))
    assert (done.returncode, lines) == (2, [line_of(module, extra)])
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("option", "module"), [("--video", "imageio_ffmpeg"), ("--render", "pygame")]
)
def test_a_film_and_a_window_name_their_extra(
    lab, tmp_path, monkeypatch, option, module
):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert lab(command(tmp_path, "train", "--quiet"))[0].returncode == 0
    done, lines = lab(command(tmp_path, "enjoy@latest", option))
    assert done.returncode == 2
    assert len(lines) == 1
    assert line_of(module, "video") in lines[0]


def test_a_spec_of_a_search_is_checked_without_ray(lab, tmp_path):
    check = [str(LAB), "spec", "check", str(tmp_path / "spec.json")]
    done, lines = lab(check)
    assert (done.returncode, lines) == (0, [])


@pytest.mark.parametrize(
    ("extra", "file", "sets"),
    [
        ("mujoco", "ppo_mujoco", ("-s", "env=Hopper-v5")),
        ("box2d", "ppo_lunar", ()),
        ("atari", "ppo_atari", ("-s", "env=ALE/Pong-v5")),
    ],
)
def test_an_extra_alone_makes_its_environments(lab, extra, file, sets):
    check = [str(LAB), "spec", "check", file, *sets]
    done, lines = lab(check, extra)
    assert (done.returncode, lines) == (0, [])
    assert done.stdout.split()[-1] == "ok", done.stdout
    without = lab(check)[0].stdout
    assert f'pip install "slm-lab[{extra}]"' in " ".join(without.split())
