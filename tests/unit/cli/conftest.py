"""One training per module, which commands then only read."""

import shutil

import pytest

from tests.unit.cli.trained import RANDOM, SPEC, trained


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("trained"), SPEC)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of it, to be spoilt."""
    return shutil.copytree(run, tmp_path / "copy")


@pytest.fixture(scope="module")
def random_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("random"), RANDOM)
