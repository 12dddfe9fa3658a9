"""Actors on the two nodes of a Ray cluster, with room for one each, and a learner
beside it."""

import os

import pytest

from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import (
    all_gone,
    children_of,
    command_line,
    interrupt,
    manifest,
    row_count,
    run,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo, soft

pytestmark = pytest.mark.slow
ACTORS = 2
START = 120.0
"""Seconds that the first rows may take, with all that has to start before."""


def trained_by_actors(spec, max_frame, **changes):
    """A spec that takes some seconds, with a checkpoint at every row."""
    meta = {"distributed": "actor_learner", "max_session": ACTORS, "log_frequency": 800}
    env = {**spec["env"], "max_frame": max_frame}
    return {
        **spec,
        "env": env,
        "meta": {**spec["meta"], **meta, "save_interval": 0, **changes},
    }


def sac(max_frame, **changes):
    return trained_by_actors(soft("SoftActorCritic"), max_frame, **changes)


def on_policy(max_frame, **changes):
    return trained_by_actors(ppo(), max_frame, **changes)


def actors():
    """The processes of the actors on the nodes, which are this process's."""
    return [
        each for each in children_of(os.getpid()) if "RayActor" in command_line(each)
    ]


def the_run(folder):
    """What is left of the training: the learner's checkpoint, and frames and restarts
    of each."""
    sessions = trial_metrics(folder)["sessions"]
    saved = read_manifest(manifest(folder))
    return (
        saved,
        [each["frame"] for each in sessions],
        [each["restarts"] for each in sessions],
    )


def test_two_nodes_play_the_whole_budget_of_one_learner_and_nothing_more(
    folder, cluster
):
    write_spec(folder, on_policy(9600))
    run(folder, "train", "--cluster", cluster.address)
    saved, (learner, *played), restarts = the_run(folder)
    assert (saved.frame, saved.finished, learner) == (9600, True, 9600)
    assert sum(played) == 9600
    assert min(played) > 0
    assert restarts == [0, 0, 0]
    wait_until(lambda: not actors())


def test_when_a_node_is_lost_its_actor_is_replaced_on_another(folder, cluster):
    write_spec(folder, sac(8000))
    with started(folder, "train", "--cluster", cluster.address) as running:
        wait_until(lambda: row_count(folder) > 1, START)
        cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        cluster.nodes.append(cluster.add_node(num_cpus=1))
        done = running.end(START)
    assert done.outcome == (0, "")
    saved, frames, restarts = the_run(folder)
    assert (saved.frame, saved.finished) == (8000, True)
    assert sorted(restarts) == [0, 0, 1]
    assert sum(frames[1:]) >= 8000


def test_a_stopped_run_resumes_without_the_cluster(folder, cluster):
    write_spec(folder, on_policy(32_000))
    with started(folder, "train", "--cluster", cluster.address) as running:
        wait_until(lambda: row_count(folder) > 1, START)
        interrupt(running)
        done = running.end()
    assert done.code == 130, done.err
    frame = read_manifest(manifest(folder)).frame
    assert 0 < frame < 32_000
    wait_until(lambda: not actors())
    run(folder, "train@latest", "-s", "meta.cluster=null")
    saved, (_, *played), _ = the_run(folder)
    assert (saved.frame, saved.finished) == (32_000, True)
    assert sum(played) == 32_000


def test_the_actors_end_with_their_learner(folder, cluster):
    write_spec(folder, on_policy(32_000))
    with started(folder, "train", "--cluster", cluster.address) as running:
        wait_until(lambda: row_count(folder) > 1, START)
        others = actors()
        running.session(0).kill()
        done = running.end()
    assert done.code == 1
    assert "killed by signal 9" in done.err
    assert 0 < read_manifest(manifest(folder)).frame < 32_000
    assert len(others) == ACTORS
    wait_until(lambda: all_gone(others))


def test_when_an_actor_is_lost_for_good_the_others_continue(folder, cluster):
    write_spec(folder, on_policy(32_000, max_restart=0))
    with started(folder, "train", "--cluster", cluster.address) as running:
        wait_until(lambda: row_count(folder) > 1, START)
        actors()[0].kill()
        done = running.end(START)
    assert done.code == 1
    assert "its node or its process was lost" in done.err
    saved, _, restarts = the_run(folder)
    assert (saved.frame, saved.finished) == (32_000, True)
    assert restarts == [0, 0, 0]
