"""A single worker or rank, through the real launcher, equals a plain Session."""

import pytest

from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.hogwild.strategy import HogwildStrategy
from tests.contract.table import ALGORITHM_ROWS
from tests.faults.lab import TIMING_COLUMNS, call, command, rows_file, write_spec

GLOBAL_ADAM = {"name": "GlobalAdam", "lr": 1e-3}
LEARNING = [
    name for name, rows in ALGORITHM_ROWS.items() if next(iter(rows.values())).learns
]


def columns(folder, spec, distributed):
    """What a run of `spec` writes into each column of a plain Session, as text."""
    agent = spec["agent"]
    net = {**agent["net"], "optim_spec": GLOBAL_ADAM}
    spec = {**spec, "agent": {**agent, "net": net}}
    env = {**spec["env"], "max_frame": 600}
    if env["name"].startswith("Probe"):  # known to the tests' own process only
        env["name"] = "Pendulum-v1"
    meta = {**spec["meta"], "distributed": distributed, "max_session": 1}
    write_spec(folder, {**spec, "meta": meta, "env": env})
    done = call(command(folder, "train", "--seed", "3"), folder)
    assert done.code == 0, done.err  # it may say which keys of a row have no meaning
    names, *rows = (
        line.split(",") for line in rows_file(folder).read_text().splitlines()
    )
    assert len(rows) > 2
    cells = zip(names, zip(*rows, strict=True), strict=True)
    timed = (*TIMING_COLUMNS, *HogwildStrategy.columns, *AllReduceStrategy.columns)
    return {name: column for name, column in cells if name not in timed}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", LEARNING)
def test_one_worker_writes_what_a_session_without_workers_writes(folder, algorithm):
    spec = next(iter(ALGORITHM_ROWS[algorithm].values())).data
    alone = columns(folder / "alone", spec, False)
    for mode in ("shared", "synced", "all_reduce"):
        assert columns(folder / mode, spec, mode) == alone
