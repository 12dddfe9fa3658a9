"""Runs that several tests look at, each made once."""

import shutil

import pytest

from tests.faults.lab import call, command, write_spec
from tests.support import ppo


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with a run of two Sessions that came to its end, and how it ended."""
    folder = tmp_path_factory.mktemp("finished")
    write_spec(folder, ppo(meta__max_session=2))
    return folder, call(command(folder, "train"), folder)


@pytest.fixture
def folder(tmp_path, finished):
    """A fresh folder that knows the Random agent's return on CartPole, so that runs are quick."""
    (tmp_path / "data").mkdir()
    shutil.copy(finished[0] / "data" / "random_returns.json", tmp_path / "data")
    return tmp_path
