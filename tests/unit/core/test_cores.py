import os
from pathlib import Path

import pytest

import slm_lab
from slm_lab.core.process import usable_cores
from tests.faults.lab import call, write_spec
from tests.faults.lab import command as lab_command
from tests.support import ppo


def test_the_cores_are_those_that_this_process_may_run_on():
    assert usable_cores() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("known", "expected"), [(6, 6), (None, 1)])
def test_where_the_system_knows_no_affinity_all_cores_count(monkeypatch, known, expected):
    """As on macOS."""
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: known)
    assert usable_cores() == expected


def test_nothing_else_asks_the_system():
    package = Path(slm_lab.__file__).parent
    asking = [path for path in package.rglob("*.py") if "sched_getaffinity" in path.read_text()]
    assert [path.name for path in asking] == ["process.py"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "search"])
def test_commands_run_where_the_system_knows_no_affinity(tmp_path, monkeypatch, command):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\ndel os.sched_getaffinity\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    search = {"agent.algorithm.gamma__grid_search": [0.9, 0.99]}
    write_spec(tmp_path, ppo(env__max_frame=300, search=search))
    done = call(lab_command(tmp_path, command), tmp_path)
    assert (done.code, done.err) == (0, "")
