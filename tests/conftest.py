"""Settings of the whole suite."""

import os
from contextlib import ExitStack
from pathlib import Path
from shutil import disk_usage
from unittest.mock import patch

import gymnasium
import pytest
import torch
from hypothesis import settings

from slm_lab.charts.picture import render_png
from slm_lab.core.registry import ALGORITHMS, ENVS, MEMORIES, NETS
from tests.blank_pictures import sitecustomize as blank_pictures

# A deadline per example measures the machine's load, not the code.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

# As a Session has it: on networks as small as these, two threads take six times as
# long.
torch.set_num_threads(1)


# Every file of a checkpoint waits some milliseconds for a disk, and not for memory.
MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30


def pytest_configure() -> None:
    """Lays temporary folders into memory, where there is room for them. Pictures of
    this process and of those that it starts are blank."""
    if MEMORY.is_dir() and disk_usage(MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    folder = str(Path(blank_pictures.__file__).parent)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, before]))


@pytest.fixture
def pictures_drawn(monkeypatch):
    """Has the pictures of a test drawn, those of its processes too."""
    _, _, before = os.environ["PYTHONPATH"].partition(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", before)
    monkeypatch.setattr("slm_lab.charts.write.render_png", render_png)


@pytest.fixture(autouse=True)
def _with_subnormal_numbers():
    """A test before this one that ran a Session within its own process has set them to
    zero."""
    torch.set_flush_denormal(False)


@pytest.fixture
def registries():
    """Forgets the parts that a test registers."""
    with ExitStack() as stack:
        for registry in (ALGORITHMS, MEMORIES, NETS, ENVS):
            stack.enter_context(patch.dict(registry._entries))
        yield


@pytest.fixture
def registered():
    """Registers environments with Gymnasium for the length of a test; returns their
    name."""
    names = []

    def register(name, entry_point=None, **keys):
        gymnasium.register(name, entry_point=entry_point, **keys)
        names.append(name)
        return name

    yield register
    for name in names:
        gymnasium.registry.pop(name, None)
