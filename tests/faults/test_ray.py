"""Trainings on a Ray cluster of two nodes, which are on one machine here."""

import pytest

from slm_lab.experiment.manifest import read_manifest
from tests.faults.lab import (
    call,
    command,
    interrupt,
    manifest,
    repeatable,
    row_count,
    rows_file,
    started,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.slow
RANKS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head that has no room for Sessions, and two nodes with room for one each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.nodes = [cluster.add_node(num_cpus=1) for _ in range(RANKS)]
        yield cluster
        cluster.shutdown()


def ranks(**changes):
    """A spec that takes some seconds, with a checkpoint at every row."""
    together = {"meta__distributed": "all_reduce", "meta__max_session": RANKS}
    sizes = {"env__max_frame": 24_000, "meta__log_frequency": 400, "meta__save_interval": 0}
    return ppo(**{**together, **sizes, "agent__algorithm__time_horizon": 32, **changes})


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory):
    """The rows of the training where the ranks are processes."""
    folder = tmp_path_factory.mktemp("one")
    write_spec(folder, ranks())
    done = call(command(folder, "train", "--seed", "5"), folder)
    assert (done.code, done.err) == (0, "")
    return repeatable(rows_file(folder))


def test_ranks_on_two_nodes_train_as_on_one_machine(folder, cluster, on_one_machine):
    write_spec(folder, ranks())
    done = call(command(folder, "train", "--seed", "5", "--cluster", cluster.address), folder)
    assert (done.code, done.err) == (0, "")
    assert repeatable(rows_file(folder)) == on_one_machine
    saved = [read_manifest(manifest(folder, rank)) for rank in range(RANKS)]
    assert [(each.frame, each.finished) for each in saved] == [(12_000, True)] * RANKS
    evaluated = call(command(folder, "eval@latest", "--episodes", "2"), folder)
    assert evaluated.code == 0, evaluated.err


def test_what_was_stopped_on_a_cluster_goes_on_without_one(folder, cluster, on_one_machine):
    write_spec(folder, ranks())
    with started(folder, "train", "--seed", "5", "--cluster", cluster.address) as running:
        wait_until(lambda: row_count(folder) > 2, timeout=120)
        interrupt(running)
        done = running.end()
    assert done.code == 130
    assert 0 < read_manifest(manifest(folder)).frame < 12_000
    done = call(command(folder, "train@latest", "-s", "meta.cluster=null"), folder)
    assert (done.code, done.err) == (0, "")
    assert repeatable(rows_file(folder)) == on_one_machine


def test_when_a_node_is_lost_the_ranks_begin_again_elsewhere(folder, cluster, on_one_machine):
    write_spec(folder, ranks())
    with started(folder, "train", "--seed", "5", "--cluster", cluster.address) as running:
        wait_until(lambda: manifest_exists(folder), timeout=120)
        cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        cluster.nodes.append(cluster.add_node(num_cpus=1))
        done = running.end(timeout=180)
    assert done.code == 0, done.err
    assert repeatable(rows_file(folder)) == on_one_machine
    assert [each["restarts"] for each in trial_metrics(folder)["sessions"]] == [1, 1]


def manifest_exists(folder):
    return any(folder.glob("data/*/model/*_s1_latest.json"))


def test_independent_seeds_are_spread_over_the_cluster(folder, cluster):
    spec = ppo(meta__max_session=3, env__max_frame=1000)
    write_spec(folder, spec)
    done = call(command(folder, "train", "--seed", "5", "--cluster", cluster.address), folder)
    assert (done.code, done.err) == (0, "")
    on_cluster = [repeatable(rows_file(folder, session)) for session in range(3)]
    (folder / "here").mkdir()
    write_spec(folder / "here", spec)
    assert call(command(folder / "here", "train", "--seed", "5"), folder).code == 0
    assert on_cluster == [repeatable(rows_file(folder / "here", session)) for session in range(3)]


def test_a_cluster_that_is_too_small_is_told_before_anything_starts(folder, cluster):
    write_spec(folder, ranks(meta__max_session=4, agent__algorithm__minibatch_size=16))
    done = call(command(folder, "train", "--cluster", cluster.address), folder)
    assert done.code == 1
    assert "4 ranks need 4 CPU of the Ray cluster, which has 2" in done.err


def test_where_there_is_no_cluster_it_is_told_how_to_start_one(folder):
    write_spec(folder, ranks())
    done = call(command(folder, "train", "--cluster", "127.0.0.1:1"), folder)
    assert done.code == 1
    assert "there is no Ray cluster at 127.0.0.1:1" in done.err
    assert "Traceback" not in done.err
