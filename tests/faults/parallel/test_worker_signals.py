"""Ctrl-C and SIGTERM where environments run in worker processes."""

import signal
from itertools import product

import pytest

from slm_lab.core.process import STOP_SIGNALS
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    all_gone,
    command_line,
    manifest,
    row_count,
    run_here,
    started,
    wait_until,
    write_spec,
)
from tests.support import made_once, needs, ppo

SPEC = ppo(env__vectorization_mode="async", env__num_envs=2, env__max_frame=300)
PROMPT = 10.0
"""Seconds, on a busy machine; a deadlocked process takes longer."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    def make(folder):
        (folder / "data").mkdir()
        write_spec(folder, SPEC)
        run_here(folder, "train")

    return made_once(tmp_path_factory, "with_workers", make)


def forkservers(running):
    return [
        child for child in running.children() if "forkserver" in command_line(child)
    ]


def workers(running):
    """Those that have been forked from the forkserver."""
    return [child for child in running.children() if child.ppid() != running.pid]


MOMENTS = {
    "the forkserver starts": lambda running: len(forkservers(running)) == 1,
    "the first worker starts": lambda running: len(workers(running)) >= 1,
    "it steps": lambda running: (
        len(workers(running)) == SPEC["env"]["num_envs"]
        and all(worker.cpu_times().user > 0.05 for worker in workers(running))
    ),
}


QUICK = ("it steps", signal.SIGINT, "group")


# An older one may print a harmless line of its own when it is stopped.
@needs("gymnasium", "1.4")
@pytest.mark.medium
@pytest.mark.parametrize(
    ("moment", "number", "receiver"),
    [
        pytest.param(*case, marks=() if case == QUICK else pytest.mark.slow)
        for case in product(MOMENTS, STOP_SIGNALS, ("group", "alone"))
    ],
)
def test_an_evaluation_that_is_stopped_leaves_no_worker_and_no_traceback(
    trained, moment, number, receiver
):
    with started(trained, "eval@latest", "--episodes", "100000") as running:
        wait_until(lambda: MOMENTS[moment](running))
        children = running.children()
        if receiver == "group":
            running.signal_group(number)
        else:
            running.process.send_signal(number)
        done = running.end(PROMPT)
        wait_until(lambda: all_gone(children), timeout=3)
    assert done.outcome == (130, "stopped\n")


@pytest.mark.slow
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_training_whose_workers_get_the_signal_too_is_saved(folder, number):
    write_spec(folder, {**SPEC, "env": {**SPEC["env"], "max_frame": 1_000_000}})
    with started(folder) as running:
        wait_until(lambda: row_count(folder) > 2)
        children = running.children()
        running.signal_group(number)
        done = running.end()
        wait_until(lambda: all_gone(children), timeout=3)
    assert done.outcome == (130, "")
    assert read_manifest(manifest(folder)).frame > 0
