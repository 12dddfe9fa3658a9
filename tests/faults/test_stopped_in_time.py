"""A hanging Session does not block Ctrl-C: it is ended, and its last checkpoint is
kept."""

import signal
import time
from pathlib import Path

import psutil
import pytest

from slm_lab.core.process import ONE_SIGNAL
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    NAME,
    all_gone,
    interrupt,
    manifest,
    started,
    wait_until,
    write_spec,
)
from tests.support import ppo

IN_TIME = 80.0
"""Seconds from Ctrl-C to the end on a busy machine, four of them for the step."""
ENDLESS = 100_000_000
TOO_LATE = "its step did not end within"


def endless(**changes):
    """The time between two checkpoints is long enough to stop a process in."""
    sizes = {
        "env__max_frame": ENDLESS,
        "meta__log_frequency": 500,
        "meta__save_interval": 2,
    }
    return ppo(**{**sizes, **changes})


def together(mode, **changes):
    return endless(meta__distributed=mode, meta__max_session=2, **changes)


def end(running):
    """Ctrl-C, as soon as a process is really stopped; how it ended, and the seconds
    until then."""
    began = time.monotonic()
    interrupt(running)
    return running.end(IN_TIME), time.monotonic() - began


def manifest_exists(folder, session=0):
    return any(folder.glob(f"data/*/model/{NAME}_t0_s{session}_latest.json"))


def has_saved(running, session):
    """Whether the files of older checkpoints are deleted, with which a save ends."""
    (latest,) = running.data.glob(f"data/**/model/*_s{session}_latest.json")
    kept = map(read_manifest, (latest, Path(str(latest).replace("latest", "previous"))))
    named = {name for each in kept if each is not None for name in each.names}
    return named >= {file.name for file in latest.parent.glob(f"*_s{session}_*.pt")}


def stop_one(running, session, saves=True):
    """Just after a checkpoint if it saves: a Session that is saving is not killed."""
    process = wait_until(lambda: running.session(session))
    (log,) = running.data.glob(f"data/**/log/*_s{session}.log")
    if saves:
        before = log.read_text().count("checkpoint")
        wait_until(lambda: log.read_text().count("checkpoint") > before)
        wait_until(lambda: has_saved(running, session))
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)


ACTOR = "an actor"
MODES = {
    "a plain Session": (endless(), 0),
    "shared": (together("shared"), 1),
    "synced": (together("synced"), 1),
    "all_reduce": (together("all_reduce"), 1),
    "a learner": (together("actor_learner"), 0),
    ACTOR: (together("actor_learner"), 1),
    "actors in turn": (
        together("actor_learner", meta__actor_learner={"serial": True}),
        0,
    ),
}


PLAIN, *OTHERS = MODES


@pytest.mark.medium
@pytest.mark.parametrize(
    "mode", [PLAIN, *(pytest.param(m, marks=pytest.mark.slow) for m in OTHERS)]
)
def test_a_hanging_session_is_ended_and_reported_and_its_checkpoint_kept(mode, folder):
    spec, hangs = MODES[mode]
    write_spec(folder, spec)
    with started(folder) as running:
        wait_until(lambda: manifest_exists(folder))
        stop_one(running, hangs, saves=mode != ACTOR)
        done, _ = end(running)
    assert done.code == 130
    (line,) = (
        each for each in done.err.splitlines() if each.startswith(f"Session {hangs}")
    )
    assert TOO_LATE in line
    assert "resume with: slm-lab run" in done.out
    assert "Traceback" not in done.err
    saved = read_manifest(manifest(folder))
    assert saved is not None
    assert saved.frame > 0


@pytest.mark.slow
def test_a_training_event_of_minutes_does_not_hold_ctrl_c(folder):
    minutes = {"time_horizon": 1024, "minibatch_size": 4, "training_epoch": 900}
    keys = {f"agent__algorithm__{key}": value for key, value in minutes.items()}
    write_spec(folder, endless(**keys))
    with started(folder) as running:
        began = "Session 0: started"
        wait_until(lambda: began in (folder / "out").read_text())
        process = running.session(0)
        before = process.cpu_times().user
        # it is learning now
        wait_until(lambda: process.cpu_times().user > before + 0.5)
        done, seconds = end(running)
    assert done.code == 130
    assert TOO_LATE in done.err
    assert "it has no checkpoint yet" in done.err
    assert seconds < IN_TIME


@pytest.mark.slow
def test_a_second_ctrl_c_prints_how_to_resume(folder):
    write_spec(folder, endless())
    with started(folder) as running:
        wait_until(lambda: manifest_exists(folder))
        stop_one(running, 0)
        interrupt(running)
        wait_until(lambda: "saving, then stopping" in (folder / "out").read_text())
        shown = time.monotonic()
        wait_until(lambda: time.monotonic() > shown + ONE_SIGNAL)
        interrupt(running)
        done = running.end(IN_TIME)
    assert done.outcome == (130, "stopped\n")
    assert "slm-lab run train@" in done.out.splitlines()[-1]


STUCK = """
import ctypes, pathlib
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Stuck(CartPoleEnv):
    def step(self, action):
        if pathlib.Path("hang").exists():
            pathlib.Path("hangs").touch()
            library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
            library.pthread_mutex_lock(mutex)
            library.pthread_mutex_lock(mutex)
        return super().step(action)

gymnasium.register("Stuck-v0", entry_point=Stuck)
"""
"""Its steps hang in C, where Python handles no signal, once a file named hang
exists."""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["eval", "enjoy"])
@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_an_environment_that_hangs_does_not_hold_ctrl_c_of_an_evaluation(
    folder, mode, vectorization
):
    (folder / "stuck.py").write_text(STUCK)
    environment = {"env__name": "Stuck-v0", "env__vectorization_mode": vectorization}
    write_spec(folder, ppo(env__max_frame=200, env__num_envs=2, **environment))
    plug_in = ("--import", "stuck")
    with started(folder, "train", *plug_in) as running:
        assert running.end().code == 0
    (folder / "hang").touch()
    with started(folder, f"{mode}@latest", *plug_in) as running:
        wait_until((folder / "hangs").exists)
        processes = running.children()
        done, _ = end(running)
    assert bool(processes) == ((mode, vectorization) == ("eval", "async"))
    assert wait_until(lambda: all_gone(processes))
    assert done.outcome == (130, "stopped\n")
