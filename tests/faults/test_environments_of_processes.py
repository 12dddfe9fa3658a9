"""Whole runs of environments that start programs, draw from global generators, or end
processes."""

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from slm_lab.core.process import OURS
from tests.faults.lab import (
    call,
    command,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run,
    started,
    wait_until,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.medium
linux = pytest.mark.skipif(
    sys.platform != "linux", reason="what Linux knows of processes"
)

MODULE = """
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces


class Plain(gymnasium.Env):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2), {}

    def step(self, action):
        self.t += 1
        return np.zeros(2), float(action), self.t == 5, False, {}


class Starting(Plain):
    def __init__(self):
        code = "import signal; signal.pause()"
        program = subprocess.Popen([sys.executable, "-c", code])
        Path("programs", str(program.pid)).touch()


class Drawing(Plain):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.array([random.random(), np.random.uniform()]), {}


class Ending(Plain):
    count = 0

    def step(self, action):
        Ending.count += 1
        if Ending.count == 250:
            self.end()
        return super().step(action)

    def end(self):
        os._exit(0)


class Crashing(Ending):
    def end(self):
        os.kill(os.getpid(), signal.SIGSEGV)


class Leaving(Ending):
    def end(self):
        sys.exit("the window was closed")


for kind in (Starting, Drawing, Ending, Crashing, Leaving):
    gymnasium.register(f"{kind.__name__}-v0", kind)
"""
IMPORTED = ("--import", "odd_envs")


@pytest.fixture
def folder_of(tmp_path):
    """A folder with the module, and a spec for one of its environments."""

    def make(kind, part="", **keys):
        folder = tmp_path / part
        (folder / "programs").mkdir(parents=True)
        (folder / "odd_envs.py").write_text(MODULE)
        options = {
            "env__max_frame": 320,
            "env__num_envs": 2,
            "meta__log_frequency": 32,
            **keys,
        }
        write_spec(folder, ppo(env__name=f"{kind}-v0", **options))
        return folder

    return make


@linux
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_environments_start_ends_with_the_run(folder_of, mode):
    folder = folder_of("Starting", env__vectorization_mode=mode)
    run(folder, "train", *IMPORTED)
    run(folder, "eval@latest", "--episodes", "2", *IMPORTED)
    programs = [int(path.name) for path in (folder / "programs").iterdir()]
    left = [pid for pid in programs if psutil.pid_exists(pid) and is_running(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(programs) > 4
    assert left == []


def is_running(pid):
    return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "mode", [pytest.param("sync", marks=pytest.mark.slow), "async"]
)
def test_a_seed_repeats_environments_that_draw_from_global_generators(folder_of, mode):
    repeated = []
    for part in ("one", "two"):
        folder = folder_of(
            "Drawing", part, env__vectorization_mode=mode, meta__max_session=2
        )
        run(folder, "train", *IMPORTED)
        repeated.append([repeatable(rows_file(folder, n)) for n in (0, 1)])
    assert repeated[0] == repeated[1]
    assert repeated[0][0] != repeated[0][1], "Sessions differ"


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            "Ending",
            "the process ended early (exit code 0): its environment or a library "
            "called",
        ),
        (
            "Crashing",
            "killed by signal 11 (exit code -11): compiled code, such as a simulator's",
        ),
    ],
)
def test_the_end_of_the_process_is_one_line_with_the_checkpoint(folder_of, kind, line):
    folder = folder_of(kind, env__max_frame=2000)
    done = call(command(folder, "train", *IMPORTED), folder)
    assert manifest(folder).exists(), "the premise"
    assert done.code == 1
    (told,) = [each for each in done.err.splitlines() if line in each]
    assert "; its checkpoint at frame " in told
    assert "Traceback" not in done.err
    assert "resume with: slm-lab run train@" in done.out


def test_sys_exit_is_told_as_an_error_and_the_state_is_saved(folder_of):
    folder = folder_of("Leaving", env__max_frame=2000, meta__save_interval=1000)
    done = call(command(folder, "train", *IMPORTED), folder)
    assert done.code == 1
    assert (
        "EnvironmentExitError: the environment called sys.exit: the window was closed"
        in done.err
    )
    assert (
        "in step() of environment 1 of 2 (<Leaving<Leaving-v0>>), with action"
        in done.err
    )
    assert "the state is saved at frame 248" in done.err
    assert '"frame": 248' in manifest(folder).read_text()


@linux
def test_a_killed_group_leaves_nothing_in_the_temporary_folder(folder_of, monkeypatch):
    folder = folder_of("Drawing", env__vectorization_mode="async", env__max_frame=10**6)
    short = Path(tempfile.mkdtemp(dir="/tmp"))  # the path of a socket is short
    monkeypatch.setenv("TMPDIR", str(short))
    try:
        with started(folder, "train", *IMPORTED) as running:
            wait_until(lambda: row_count(folder) > 0)
            for process in running.children():
                maps = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
                named = [line for line in maps if "sem.mp-" in line]
                assert [line for line in named if "(deleted)" not in line] == []
            running.signal_group(signal.SIGKILL)
            running.process.wait()
        assert list(short.glob(f"pymp-*/{OURS}")), "the premise"
        again = folder / "again"
        write_spec(again, ppo(env__max_frame=200))
        run(again, "train")
        assert list(short.glob("pymp-*")) == []
    finally:
        shutil.rmtree(short)
