"""Fixtures of the tests of searches."""

import os

import pytest

from slm_lab.storage.run_dir import FOLDERS, RunDir
from slm_lab.studies.search import agenda as module
from tests.unit.studies.search.fake_pool import copy_rows
from tests.unit.studies.search.played import spec_once


@pytest.fixture
def quickly(monkeypatch):
    """Nothing waits for the disk, and no environment is made."""
    monkeypatch.setattr(os, "fsync", lambda stream: None)
    monkeypatch.setattr(module, "check_spaces", lambda where, spec: None)
    monkeypatch.setattr(module, "copy_checkpoints", copy_rows)
    monkeypatch.setattr(module, "spec_at", spec_once)


@pytest.fixture
def run_dir(tmp_path):
    for part in FOLDERS:
        (tmp_path / part).mkdir()
    return RunDir(tmp_path, "small")
