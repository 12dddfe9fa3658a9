"""Trainings on a Ray cluster of two nodes, which are on one machine here."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress

import pytest

from slm_lab.parallel.ray import launch
from slm_lab.spec.load import load_spec
from slm_lab.storage.manifest import read_manifest
from slm_lab.studies.trial import Trial, TrialTask
from tests.faults.lab import (
    LAB,
    NAME,
    all_gone,
    call,
    command,
    empty_run,
    manifest,
    repeatable,
    row_count,
    rows_file,
    run,
    session_of,
    started,
    started_as,
    trial_metrics,
    wait_until,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.slow
RANKS = 2  # as many as the nodes of `cluster`


def ranks(**changes):
    """A spec that takes some seconds, with a checkpoint at every row."""
    together = {"meta__distributed": "all_reduce", "meta__max_session": RANKS}
    sizes = {
        "env__max_frame": 24_000,
        "meta__log_frequency": 400,
        "meta__save_interval": 0,
    }
    return ppo(**{**together, **sizes, "agent__algorithm__time_horizon": 32, **changes})


@pytest.fixture(scope="module")
def on_one_machine(tmp_path_factory):
    """The rows of the training where the ranks are processes."""
    folder = tmp_path_factory.mktemp("one")
    write_spec(folder, ranks())
    run(folder, "train", "--seed", "5")
    return repeatable(rows_file(folder))


def test_ranks_on_two_nodes_train_as_on_one_machine(folder, cluster, on_one_machine):
    write_spec(folder, ranks())
    run(folder, "train", "--seed", "5", "--cluster", cluster.address)
    assert repeatable(rows_file(folder)) == on_one_machine
    saved = [read_manifest(manifest(folder, rank)) for rank in range(RANKS)]
    assert [(each.frame, each.finished) for each in saved] == [(12_000, True)] * RANKS
    evaluated = call(command(folder, "eval@latest", "--episodes", "2"), folder)
    assert evaluated.code == 0, evaluated.err


def test_a_mode_of_another_package_trains_its_ranks_on_two_nodes(folder, cluster):
    write_spec(
        folder, ranks(meta__distributed="local_sgd", meta__local_sgd={"sync_every": 4})
    )
    words = "train", "--seed", "5", "--import", "lab_extras"
    rows = []
    for where in ((), ("--cluster", cluster.address)):
        run(folder, *words, *where)
        rows.append(repeatable(rows_file(folder)))
        shutil.rmtree(folder / "data")
        (folder / "data").mkdir()
    assert rows[0] == rows[1]


def test_nodes_execute_no_file_of_the_working_directory_but_find_its_modules(
    folder, cluster
):
    for module in (
        "typer",
        "queue",
        "yaml",
        "random",
        "pandas",
        "tempfile",
        "gymnasium",
    ):
        code = (
            f"open({str(folder)!r} + '/executed', 'a').write('{module} ')\nraise "
            "ImportError"
        )
        (folder / f"{module}.py").write_text(code)
    (folder / "of_this_folder.py").write_text("MODULE = __name__\n")
    write_spec(folder, ranks(env__max_frame=1600))
    words = (
        "train",
        "--seed",
        "5",
        "--import",
        "of_this_folder",
        "--cluster",
        cluster.address,
    )
    done = call(command(folder, *words), folder)
    assert done.code == 0, done.err
    assert not (folder / "executed").exists()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_on_a_cluster_resumes_on_one_machine(
    folder, cluster, on_one_machine, how
):
    write_spec(folder, ranks())
    with started(
        folder, "train", "--seed", "5", "--cluster", cluster.address
    ) as running:
        wait_until(lambda: row_count(folder) > 2, timeout=120)
        running.signal_group(how)
        done = running.end()
    assert done.outcome == (130, "")
    assert 0 < read_manifest(manifest(folder)).frame < 12_000
    run(folder, "train@latest", "-s", "meta.cluster=null")
    assert repeatable(rows_file(folder)) == on_one_machine


def test_when_a_node_is_lost_the_ranks_restart_on_another(
    folder, cluster, on_one_machine
):
    write_spec(folder, ranks())
    with started(
        folder, "train", "--seed", "5", "--cluster", cluster.address
    ) as running:
        wait_until(lambda: manifest_exists(folder), timeout=120)
        cluster.remove_node(cluster.nodes.pop(), allow_graceful=False)
        cluster.nodes.append(cluster.add_node(num_cpus=1))
        done = running.end(timeout=180)
    assert done.code == 0, done.err
    assert repeatable(rows_file(folder)) == on_one_machine
    assert [each["restarts"] for each in trial_metrics(folder)["sessions"]] == [1, 1]


def test_after_a_rank_is_killed_all_restart_from_the_last_checkpoint(
    folder, cluster, on_one_machine
):
    write_spec(folder, ranks())
    with started(
        folder, "train", "--seed", "5", "--cluster", cluster.address
    ) as running:
        wait_until(lambda: manifest_exists(folder), timeout=120)
        rank_on_a_node(1).kill()
        done = running.end(timeout=180)
    assert done.code == 0, done.err
    assert repeatable(rows_file(folder)) == on_one_machine
    assert [each["restarts"] for each in trial_metrics(folder)["sessions"]] == [1, 1]
    assert "restarted 1×, the last time because: rank 1 has ended" in done.out


def test_a_hanging_rank_is_not_waited_for_beyond_the_timeout(
    folder, cluster, on_one_machine, monkeypatch
):
    """It is suspended like a frozen node: no connection breaks, and nothing arrives."""
    monkeypatch.setattr(launch, "HANG_SECONDS", 15.0)
    write_spec(folder, ranks(meta__cluster=cluster.address))
    spec = load_spec(folder / "spec.json", NAME)
    frozen = []

    def freeze(status_board):
        if not frozen and manifest_exists(folder):
            frozen.append(rank_on_a_node(1))
            frozen[0].suspend()

    result = Trial(TrialTask(spec, empty_run(folder), 5), on_tick=freeze).run()
    assert [each.error for each in result.sessions] == [None, None]
    assert [each.restarts for each in result.sessions] == [1, 1]
    assert repeatable(rows_file(folder)) == on_one_machine
    wait_until(lambda: all_gone(frozen))


def rank_on_a_node(rank):
    """Its process: nodes are children of this one."""
    return wait_until(lambda: session_of(os.getpid(), rank))


def manifest_exists(folder):
    return any(folder.glob("data/*/model/*_s1_latest.json"))


def test_independent_seeds_are_spread_over_the_cluster(folder, cluster):
    spec = ppo(meta__max_session=3, env__max_frame=1000)
    write_spec(folder, spec)
    run(folder, "train", "--seed", "5", "--cluster", cluster.address)
    on_cluster = [repeatable(rows_file(folder, session)) for session in range(3)]
    (folder / "here").mkdir()
    write_spec(folder / "here", spec)
    assert call(command(folder / "here", "train", "--seed", "5"), folder).code == 0
    assert on_cluster == [
        repeatable(rows_file(folder / "here", session)) for session in range(3)
    ]


def test_a_benchmark_that_is_killed_goes_on_where_it_was(folder, cluster):
    spec = ppo(meta__cluster=cluster.address, env__max_frame=24_000)
    spec["meta"] |= {"log_frequency": 400, "save_interval": 0}
    suite = {
        "seeds": [5],
        "episodes": 0,
        "runs": [{"specs": [f"{write_spec(folder, spec)} {NAME}"]}],
    }
    (folder / "suite.json").write_text(json.dumps(suite))
    words = [LAB, "benchmark", "suite.json", "--data", "results", "--runs", "data"]
    with started_as(folder, [str(word) for word in words]) as running:
        wait_until(
            lambda: any(folder.glob("data/*/*/model/*_s0_latest.json")), timeout=120
        )
        running.process.kill()
    before = list(folder.glob("data/*/*/model"))
    done = call([str(word) for word in words], folder)
    assert done.code == 0, done.err
    assert list(folder.glob("data/*/*/model")) == before
    (result,) = folder.glob("results/suite/*.json")
    assert json.loads(result.read_text())["ending"] == "finished"


def test_a_cluster_that_is_too_small_is_reported_before_anything_starts(
    folder, cluster
):
    write_spec(folder, ranks(meta__max_session=8, agent__algorithm__minibatch_size=8))
    done = call(command(folder, "train", "--cluster", cluster.address), folder)
    assert done.code == 1
    assert "8 ranks need 8 CPU of the Ray cluster, which has" in done.err


@pytest.fixture
def two_hosts():
    """Two network namespaces with a wire between them, each with its part of a Ray
    cluster.

    Gives what runs a command on the first of them, and the address of the cluster.
    """
    names = [f"lab{os.getpid()}{end}" for end in "ab"]
    short = tempfile.mkdtemp(prefix="ray")  # the paths of sockets must be
    try:
        for name in names:
            _sh("ip", "netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")
    try:
        _sh("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for number, name in enumerate(names, 1):
            _sh("ip", "link", "set", name, "netns", name)
            _sh("ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name)
            _sh("ip", "-n", name, "link", "set", name, "up")
            _sh("ip", "-n", name, "link", "set", "lo", "up")
        ray = str(LAB.with_name("ray"))
        start = [ray, "start", "--num-cpus=1"]
        address = "10.77.0.1:6379"
        head = [
            "--head",
            "--port=6379",
            "--include-dashboard=false",
            f"--temp-dir={short}",
        ]
        on = [["ip", "netns", "exec", name] for name in names]
        _sh(*on[0], *start, *head, "--node-ip-address=10.77.0.1")
        _sh(*on[1], *start, f"--address={address}", "--node-ip-address=10.77.0.2")
        yield on[0], address
    finally:
        for name in names:
            pids = subprocess.run(
                ["ip", "netns", "pids", name],
                capture_output=True,
                text=True,
                check=False,
            )
            for pid in pids.stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], check=False)
        shutil.rmtree(short, ignore_errors=True)


def _sh(*words):
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    subprocess.run(words, check=True, capture_output=True, timeout=60, env=environment)


def test_ranks_train_across_a_network(folder, two_hosts, monkeypatch, on_one_machine):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    on_first, address = two_hosts
    write_spec(folder, ranks())
    run = [*on_first, *command(folder, "train", "--seed", "5", "--cluster", address)]
    done = call(run, folder)
    assert done.outcome == (0, "")
    assert repeatable(rows_file(folder)) == on_one_machine
