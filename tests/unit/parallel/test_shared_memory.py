"""Room in shared memory is checked before it is used."""

import shutil
from types import SimpleNamespace

import pytest

from slm_lab.core.errors import LabError
from slm_lab.parallel import shared_memory
from slm_lab.parallel.shared_memory import check_room

WHAT = "the unrolls"
FIX = "shorter ones take less"


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """One with 1 000 bytes of shared memory, and 8 000 kB of memory to fill them."""
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 9000 kB\nMemFree: 1 kB\nMemAvailable: 8000 kB\n")
    monkeypatch.setattr(shared_memory, "MEMINFO", memory)
    monkeypatch.setattr(shared_memory, "SHARED", tmp_path)
    room = SimpleNamespace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: room)
    return SimpleNamespace(memory=memory, room=room)


def test_a_request_that_fits_is_accepted():
    check_room(1000, WHAT, FIX)


def test_a_request_beyond_shared_memory_is_refused_with_the_numbers_and_the_fix():
    with pytest.raises(
        LabError, match=r"the unrolls take 1,001 bytes .* has 1,000; shorter"
    ):
        check_room(1001, WHAT, FIX)


def test_a_request_that_would_fill_memory_during_the_move_is_refused(machine):
    machine.room.free = 10**9
    check_room(4000 * 1024, WHAT, FIX)
    with pytest.raises(
        LabError, match=r"briefly 2 times as much, but only 8,192,000 bytes"
    ):
        check_room(4000 * 1024 + 1, WHAT, FIX)


def test_with_an_unknown_amount_of_memory_only_shared_memory_is_checked(machine):
    machine.memory.unlink()
    machine.room.free = 10**15
    check_room(10**15, WHAT, FIX)
