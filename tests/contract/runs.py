"""Whole runs of rows of the table, kept for the suites that compare others with
them."""

import pickle
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from torch import Tensor

from slm_lab.session.session import Session
from tests.contract.table import ALGORITHM_ROWS
from tests.support import made_once, rows, run_session


class WholeRun(NamedTuple):
    """The results of an uninterrupted run."""

    rows: pd.DataFrame
    vectors: dict[str, Tensor]
    """The flat vector of every network at the end."""
    drew_from_global_generators: bool
    opt_step: int


class WholeRuns:
    """Runs by (algorithm, variant), each made when a worker of pytest first asks for
    it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory

    def get(self, name: str, variant: str) -> WholeRun:
        """The run of the row under seed 0, with the global generators in an unusual
        state."""

        def make(folder: Path) -> None:
            poison_global_generators(0)
            before = global_generators()
            session = run_session(ALGORITHM_ROWS[name][variant].spec, folder)
            drew = global_generators() != before
            opt_step = session.agent.learner.opt_step
            whole = WholeRun(rows(session), vectors(session), drew, opt_step)
            (folder / "whole").write_bytes(pickle.dumps(whole))

        folder = made_once(self._factory, f"{name}_{variant}", make)
        whole: WholeRun = pickle.loads((folder / "whole").read_bytes())
        return whole


def vectors(session: Session) -> dict[str, Tensor]:
    """Copies of the flat vectors of a Session's networks."""
    return {
        name: flat.vector.clone() for name, flat in session.agent.learner.flats.items()
    }


def global_generators() -> tuple[object, ...]:
    """The state of Python's, NumPy's and torch's global generators."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), kind, keys.tobytes(), rest, torch.get_rng_state().tolist()


def poison_global_generators(seed: int) -> None:
    """Puts them into an unusual state."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def stop_at(frame: int) -> Callable[[Session], None]:
    """Stops a run at its first row from `frame` on."""

    def stop(session: Session) -> None:
        if session.clock.frame >= frame:
            session.board.request_stop()

    return stop


def assert_same_vectors(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    """Asserts that networks are equal bit for bit."""
    assert one.keys() == other.keys()
    for part, vector in one.items():
        assert torch.equal(vector, other[part]), part


def assert_same_run(
    session: Session, expected: WholeRun | Session, without: Iterable[str] = ()
) -> None:
    """Asserts that rows and networks are equal bit for bit, but for the columns
    `without`."""
    if isinstance(expected, Session):
        wanted = (
            rows(expected).drop(columns=list(without), errors="ignore"),
            vectors(expected),
        )
    else:
        wanted = expected.rows, expected.vectors
    found = rows(session).drop(columns=list(without), errors="ignore")
    assert_frame_equal(found, wanted[0], check_exact=True)
    assert_same_vectors(vectors(session), wanted[1])
