"""What the mode of the example package does besides the contract of modes."""

import importlib.util
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from slm_lab.testing.sessions import (
    assert_same_vectors,
    vectors,
)
from tests.contract.table import ALGORITHM_ROWS
from tests.faults.lab import (
    LAB,
    NAME,
    all_gone,
    call,
    row_count,
    rows_file,
    session_of,
    started_as,
    wait_until,
    write_spec,
)
from tests.support import ppo, rows, run_ranks

PACKAGE = Path(__file__).parents[2] / "docs" / "examples" / "lab_extras"
CASES = [
    (name, next(iter(ALGORITHM_ROWS[name])))
    for name in ("PPO", "DQN", "SoftActorCritic")
]
EVERY = 2

ONE_EACH = pytest.mark.parametrize("case", CASES, ids="-".join)


@pytest.fixture
def package(monkeypatch):
    """The package is on the path of every process that is started."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PACKAGE), *sys.path[1:]]))


@pytest.fixture
def kind():
    """Makes the strategy of a rank. Its module is loaded alone: the package would
    register its parts in this process, and other tests would see them."""
    file = PACKAGE / "lab_extras" / "local_sgd_ranks.py"
    found = importlib.util.spec_from_file_location("local_sgd_ranks", file)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return partial(module.LocalSGDStrategy, EVERY)


@pytest.fixture
def row(case):
    return ALGORITHM_ROWS[case[0]][case[1]]


@pytest.fixture
def spec(row):
    """With frames for several rows of each of two ranks."""
    return row.with_budget(600)


@ONE_EACH
def test_ranks_differ_between_averages_and_are_equal_in_the_end(spec, kind, tmp_path):
    seen = {}

    def look(rank, events, network):
        seen.setdefault(events, {})[rank] = [tensor.clone() for tensor in network]

    class Watched(kind.func):
        def learned(self, report, cpu_t):
            report = super().learned(report, cpu_t)
            look(self._group.rank, self._events, self.networks())
            return report

    first, second = run_ranks(spec, tmp_path, 2, partial(Watched, EVERY))
    assert_same_vectors(vectors(first), vectors(second))
    assert len(seen) >= 2 * EVERY
    for events, (one, other) in ((e, (by[0], by[1])) for e, by in seen.items()):
        equal = all(torch.equal(*pair) for pair in zip(one, other, strict=True))
        assert equal is (events % EVERY == 0), f"after {events} training events"
    assert rows(first)["total_frame"].iloc[-1] >= spec.env.max_frame
    assert not second.paths.rows.exists()


def quick(**changes):
    """Two ranks for some seconds, with a checkpoint at every row."""
    together = {"meta__distributed": "local_sgd", "meta__max_session": 2}
    sizes = {
        "env__max_frame": 8000,
        "meta__log_frequency": 200,
        "meta__save_interval": 0,
    }
    return ppo(**{**together, **sizes, "agent__algorithm__time_horizon": 32, **changes})


@pytest.mark.slow
def test_after_a_rank_was_killed_all_resume_and_spend_the_budget(package, tmp_path):
    write_spec(tmp_path, quick())
    (tmp_path / "data").mkdir()
    args = [
        str(LAB),
        "run",
        "spec.json",
        NAME,
        "train",
        "--seed",
        "5",
        "--import",
        "lab_extras",
    ]
    whole = tmp_path / "whole"
    whole.mkdir()
    write_spec(whole, quick())
    assert call(args, whole).code == 0
    with started_as(tmp_path, args) as running:
        wait_until(lambda: row_count(tmp_path) > 5)
        victim = wait_until(lambda: session_of(running.process.pid, 1))
        victim.send_signal(signal.SIGKILL)
        assert running.process.wait(120) == 0
    assert all_gone([victim])
    ours, theirs = (
        np.genfromtxt(rows_file(f), delimiter=",", names=True)
        for f in (tmp_path, whole)
    )
    for column in ("total_frame", "total_reward", "loss"):
        np.testing.assert_array_equal(ours[column], theirs[column])
    assert ours["total_frame"][-1] == 8000


@pytest.mark.medium
@pytest.mark.slow
def test_a_comparison_offers_it_and_its_keys_are_checked(package, tmp_path):
    write_spec(tmp_path, quick(env__max_frame=1200, meta__local_sgd={"sync_every": 4}))
    modes = [
        "--modes",
        "local_sgd",
        "--workers",
        "2",
        "--seeds",
        "1",
        "--import",
        "lab_extras",
    ]
    done = call([str(LAB), "compare", "spec.json", NAME, *modes], tmp_path)
    assert done.code == 0, done.err
    assert "local_sgd × 2" in done.out
    (folder,) = (tmp_path / "data").glob("*_compare_*")
    done = call([str(LAB), "plot", str(folder)], tmp_path)
    assert "install the package that has it, or name it with --import" in done.out
    assert "local_sgd" not in done.out.partition("left out")[0]
    done = call([str(LAB), "plot", str(folder), "--import", "lab_extras"], tmp_path)
    assert done.code == 0, done.err
    spec = json.loads((tmp_path / "spec.json").read_text())
    spec[NAME]["meta"]["local_sgd"] = {"sync_evry": 4}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    done = call(
        [str(LAB), "spec", "check", "spec.json", "--import", "lab_extras"], tmp_path
    )
    assert (
        "meta.local_sgd.sync_evry = 4: unknown key; did you mean sync_every?"
        in done.out
    )
    done = call([str(LAB), "spec", "check", "spec.json"], tmp_path)
    assert "meta.distributed = 'local_sgd': must be one of" in done.out
    assert "install the package that has it, or name it with --import" in done.out
