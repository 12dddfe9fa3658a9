"""Sessions run in this process, alone or as the workers of a mode; and how two runs are
compared."""

import fcntl
import hashlib
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from slm_lab.parallel.actor_learner.strategy import LearnerStrategy, serial_source
from slm_lab.parallel.all_reduce.launch import MakeStrategy
from slm_lab.parallel.all_reduce.process_groups import (
    GroupBuffers,
    SharedMemoryGroup,
)
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hogwild.launch import global_state
from slm_lab.parallel.hogwild.strategy import HogwildMode, HogwildStrategy
from slm_lab.parallel.task import SessionTask
from slm_lab.session.seeding import session_seeds
from slm_lab.session.session import Session
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Strategy
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.copy import complete, copy_checkpoint
from slm_lab.storage.manifest import kept_manifests, read_manifest
from slm_lab.storage.run_dir import FOLDERS, RunDir

TIMING_COLUMNS: tuple[str, ...] = (
    "wall_t",
    "cpu_t",
    "fps",
    "sync_share",
    "eps",
    "actor_wait_share",
    "learner_wait_share",
)
"""The only columns that differ between two runs of one spec and seed. Other columns
differ only with Hogwild! workers and actors, which run in no fixed order."""


class Rank(NamedTuple):
    """One of the workers that train together in this process, a thread each."""

    number: int
    status_board: StatusBoard
    place: GroupBuffers
    kind: MakeStrategy = AllReduceStrategy


def make_session(
    spec: Spec,
    folder: Path,
    *,
    seed: int = 0,
    resume: bool = False,
    on_row: Callable[[Session], None] | None = None,
    hogwild: HogwildMode | None = None,
    rank: Rank | None = None,
    serially: bool = False,
) -> Session:
    """A Session that writes to `folder`, ready to run here.

    With `hogwild` it is the only Hogwild! worker. With `serially` its actors alternate
    with it.
    """
    run_dir = RunDir(folder, spec.name)
    for part in FOLDERS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    index = 0
    status_board = StatusBoard.allocate(CONTEXT, 1)
    strategy: Strategy | None = None
    task = SessionTask(
        spec=spec,
        run_dir=run_dir,
        root_seed=seed,
        trial=0,
        session=0,
        num_sessions=1,
        resume=resume,
        workers=range(1),
    )
    if hogwild is not None:
        strategy = HogwildStrategy(global_state(hogwild, task), status_board, 0)
    if rank is not None:
        index = rank.number
        status_board = rank.status_board
        group = SharedMemoryGroup(rank.place, index, seconds=60)
        strategy = rank.kind(status_board, group)
    if serially:
        spec = spec.as_learned()
        strategy = LearnerStrategy(spec, partial(serial_source, task), status_board, 0)
    return Session(
        spec=spec,
        index=index,
        seeds=session_seeds(seed, 0, index),
        paths=run_dir.session(0, index),
        status_board=status_board,
        resume=resume,
        on_row=on_row,
        strategy=strategy,
    )


def run_session(spec: Spec, folder: Path, **options: Any) -> Session:
    """Runs a Session to its end and closes it."""
    session = make_session(spec, folder, **options)
    try:
        session.run()
    finally:
        session.close()
    return session


def rows(session: Session) -> pd.DataFrame:
    """Its rows, less the columns that depend on the machine's speed."""
    return read_rows(session.paths.rows)


def read_rows(path: Path) -> pd.DataFrame:
    """The rows of a file, less the columns that depend on the machine's speed."""
    return pd.read_csv(path).drop(columns=list(TIMING_COLUMNS), errors="ignore")


def run_ranks(
    spec: Spec,
    folder: Path,
    count: int,
    kind: MakeStrategy = AllReduceStrategy,
    **options: Any,
) -> list[Session]:
    """Runs `count` ranks of one training to their end in threads; all raise what one
    raises."""
    status_board = StatusBoard.allocate(CONTEXT, count)
    place = GroupBuffers.of(count)

    def run(index: int) -> Session:
        return run_session(
            spec, folder, rank=Rank(index, status_board, place, kind), **options
        )

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """The folder that `make` has filled, once for all worker processes of pytest.

    Another process that asks for it waits until it is complete.
    """
    base = factory.getbasetemp()
    folder = (
        base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    ) / f"once_{name}"
    complete = folder.with_suffix(".complete")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # what a failure left
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder


class WholeRun(NamedTuple):
    """The results of an uninterrupted run."""

    rows: pd.DataFrame
    vectors: dict[str, Tensor]
    """The flat vector of every network at the end."""
    drew_from_global_generators: bool
    opt_step: int


def whole_run(factory: pytest.TempPathFactory, spec: Spec) -> WholeRun:
    """The run of `spec` under seed 0, with the global generators in an unusual state.
    It is made when a worker of pytest first asks for it."""
    whole: WholeRun = pickle.loads((whole_folder(factory, spec) / "whole").read_bytes())
    return whole


def whole_folder(factory: pytest.TempPathFactory, spec: Spec) -> Path:
    """The folder of that run."""

    def make(folder: Path) -> None:
        poison_global_generators(0)
        before = global_generators()
        session = run_session(spec, folder)
        whole = WholeRun(
            rows=rows(session),
            vectors=vectors(session),
            drew_from_global_generators=global_generators() != before,
            opt_step=session.agent.learner.opt_step,
        )
        (folder / "whole").write_bytes(pickle.dumps(whole))

    text = json.dumps(spec.to_json(), sort_keys=True)
    return made_once(factory, hashlib.sha256(text.encode()).hexdigest()[:16], make)


def copy_kept(spec: Spec, parent: Path, folder: Path) -> int:
    """Copies the first kept checkpoint of a Session in `parent` to `folder`, as a fork
    does; returns its frame."""
    for part in FOLDERS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    source = RunDir(parent, spec.name).session(0, 0)
    target = RunDir(folder, spec.name).session(0, 0)
    first = kept_manifests(source.models, source.prefix)[0]
    manifest = read_manifest(first.path)
    assert manifest is not None
    copy_checkpoint(manifest, source, target)
    complete(target)
    return manifest.frame


def vectors(session: Session) -> dict[str, Tensor]:
    """Copies of the flat vectors of a Session's networks."""
    return {
        name: flat.vector.clone() for name, flat in session.agent.learner.flats.items()
    }


def global_generators() -> tuple[object, ...]:
    """The state of Python's, NumPy's and torch's global generators."""
    of_numpy = pickle.dumps(np.random.get_state())  # noqa: NPY002
    return random.getstate(), of_numpy, torch.get_rng_state().tolist()


def poison_global_generators(seed: int) -> None:
    """Puts them into an unusual state."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def stop_at(frame: int) -> Callable[[Session], None]:
    """Stops a run at its first row from `frame` on."""

    def stop(session: Session) -> None:
        if session.clock.frame >= frame:
            session.status_board.request_stop()

    return stop


def difference_of_vectors(networks: dict[str, Tensor], other: dict[str, Tensor]) -> str:
    """The networks that are not equal bit for bit; empty if all are."""
    if networks.keys() != other.keys():
        return f"the networks {sorted(networks)} and {sorted(other)}"
    return ", ".join(
        part
        for part, vector in networks.items()
        if not torch.equal(vector, other[part])
    )


def difference(
    run: Session | WholeRun, expected: Session | WholeRun, without: Iterable[str] = ()
) -> str:
    """The place where two runs differ in rows or networks, outside the columns
    `without`. Empty if they are equal bit for bit."""
    result = _result(run)
    other = _result(expected)
    columns = list(without)
    shown = result.rows.drop(columns=columns, errors="ignore")
    expected_rows = other.rows.drop(columns=columns, errors="ignore")
    if list(shown) != list(expected_rows):
        names = sorted(map(str, set(shown) ^ set(expected_rows)))
        return f"in the columns of the rows, {', '.join(names)}"
    if len(shown) != len(expected_rows):
        return f"in the number of rows, {len(shown)} and {len(expected_rows)}"
    for name in expected_rows:
        pair = shown[name], expected_rows[name]
        if not pair[0].equals(pair[1]):
            return f"in the column {name}, {pair[0].tolist()} and {pair[1].tolist()}"
    networks = difference_of_vectors(result.vectors, other.vectors)
    return f"in the network {networks}" if networks else ""


def _result(run: Session | WholeRun) -> WholeRun:
    if isinstance(run, WholeRun):
        return run
    return WholeRun(rows(run), vectors(run), False, run.agent.learner.opt_step)


def assert_same_vectors(networks: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Asserts that networks are equal bit for bit."""
    differing = difference_of_vectors(networks, other)
    assert not differing, f"these networks differ: {differing}"


def assert_same_run(
    session: Session, expected: WholeRun | Session, without: Iterable[str] = ()
) -> None:
    """Asserts that rows and networks are equal bit for bit, but for the columns
    `without`."""
    differing = difference(session, expected, without)
    assert not differing, f"the two runs differ {differing}"
