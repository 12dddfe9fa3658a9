import os

import pytest

from slm_lab.core.process import usable_cores
from tests.faults.lab import call, write_spec
from tests.faults.lab import command as lab_command
from tests.support import ppo


def test_the_cores_are_those_that_this_process_may_run_on():
    assert usable_cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("known", "expected"), [(6, 6), (None, 1)])
def test_where_the_system_knows_no_affinity_all_cores_count(
    monkeypatch, known, expected
):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: known)
    assert usable_cores() == expected


WITHOUT_LINUX = """
import os, pathlib
for name in (
    "sched_getaffinity", "sched_setaffinity", "posix_fallocate", "posix_fadvise",
    "pidfd_open", "memfd_create", "eventfd",
):
    if hasattr(os, name):
        delattr(os, name)
read_text, exists = pathlib.Path.read_text, pathlib.Path.exists
def is_of_linux(path):
    return str(path).startswith(("/proc/", "/sys/", "/dev/shm"))
def read_known(path, *args, **keys):
    if is_of_linux(path):
        raise FileNotFoundError(2, "as on macOS", str(path))
    return read_text(path, *args, **keys)
pathlib.Path.read_text = read_known
def exists_here(path, **keys):
    return not is_of_linux(path) and exists(path, **keys)
pathlib.Path.exists = exists_here
"""
"""A `sitecustomize` that takes away what macOS lacks, in every process of a command."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("train", {}),
        ("train", {"meta__distributed": "shared", "meta__max_session": 2}),
        ("train", {"meta__distributed": "all_reduce", "meta__max_session": 2}),
        ("train", {"meta__distributed": "actor_learner", "meta__max_session": 2}),
        ("train", {"env__vectorization_mode": "async"}),
        ("search", {"search": {"agent.algorithm.gamma__grid_search": [0.9, 0.99]}}),
    ],
)
def test_commands_run_without_the_names_that_macos_lacks(
    tmp_path, monkeypatch, command, changes
):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT_LINUX)
    path = os.pathsep.join(
        filter(None, (str(tmp_path / "site"), os.environ.get("PYTHONPATH")))
    )
    monkeypatch.setenv("PYTHONPATH", path)
    write_spec(tmp_path, ppo(env__max_frame=300, **changes))
    done = call(lab_command(tmp_path, command), tmp_path)
    assert (done.code, done.err) == (0, "")
