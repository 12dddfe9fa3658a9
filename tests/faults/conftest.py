"""What several tests of faults need: finished runs, folders, disks, a cluster."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.faults.lab import Done, call_here, command, mounted_disk, write_spec
from tests.support import made_once, ppo

PACKAGE = Path(__file__).parents[2] / "docs" / "examples" / "lab_extras"


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with a run of two Sessions that came to its end, and how it ended."""

    def make(folder):
        write_spec(folder, ppo(meta__max_session=2))
        (folder / "data").mkdir()
        done = call_here(command(folder, "train"), folder)
        (folder / "done.json").write_text(json.dumps(asdict(done)))

    folder = made_once(tmp_path_factory, "finished", make)
    return folder, Done(**json.loads((folder / "done.json").read_text()))


@pytest.fixture
def folder(tmp_path):
    """A fresh folder for runs."""
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def cluster():
    """A head that has no room for Sessions, and two nodes with room for one each."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "disabled")
        environment.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE), *sys.path[1:]]))
        head = {"num_cpus": 0, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        yield cluster
        cluster.shutdown()


@pytest.fixture
def small_disk(folder):
    """The folder of data on a disk of 3 MB."""
    data = folder / "data"
    with mounted_disk(data, "-t", "tmpfs", "-o", "size=3m", "tmpfs"):
        yield data
