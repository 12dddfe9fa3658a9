"""Trainings that are made once and only read by commands."""

import shutil

import pytest

from tests.support import made_once
from tests.unit.cli.trained import RANDOM, SPEC, trained


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return made_once(tmp_path_factory, "trained", lambda folder: trained(folder, SPEC))


@pytest.fixture
def copy(run, tmp_path):
    """A copy of it, to be damaged."""
    return shutil.copytree(run, tmp_path / "copy")


@pytest.fixture(scope="session")
def random_run(tmp_path_factory):
    return made_once(tmp_path_factory, "random", lambda folder: trained(folder, RANDOM))
