"""What a Trial's parent sees of ranks: who hangs, and who only takes long."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from slm_lab.parallel import hang_detector as silence
from slm_lab.parallel.all_reduce.launch import HANG_SECONDS, OneMachine, Watch
from slm_lab.parallel.processes import SPAWN, Processes
from slm_lab.session.status_board import StatusBoard
from tests.support import parse, ppo, read_rows, run_ranks

RANKS = 3
LONG = HANG_SECONDS + 1


class Watched:
    """Ranks on a clock that only moves when it is told to."""

    def __init__(self):
        self.now = 50.0
        self.board = StatusBoard.allocate(SPAWN, RANKS)
        self.common = OneMachine.of(RANKS)
        self.disk = set()

    def monotonic(self):
        return self.now

    def step(self, rank):
        self.board.clock_slots[rank] += 1

    def show(self, rank):
        self.common.progress[rank] += 1

    def arrive(self, *ranks):
        for rank in ranks:
            self.common.place.arrivals[rank] += 1

    def write(self, rank):
        self.disk.add(rank)


@pytest.fixture
def watched(monkeypatch):
    watched = Watched()
    monkeypatch.setattr(silence, "time", watched)
    return watched


@pytest.fixture
def watch(watched):
    watch = Watch(watched.board, watched.common)

    def after(seconds):
        """The ranks that are said to hang after so long."""
        watched.now += seconds
        return watch.tick(watched.disk.__contains__)

    return after


def test_one_that_is_waited_for_and_shows_no_sign_of_life_hangs(watched, watch):
    watched.arrive(0, 1)
    assert watch(1) == []
    assert watch(HANG_SECONDS - 1) == []
    assert watch(2) == [2]


@pytest.mark.parametrize("sign", ["step", "show", "write"])
def test_one_that_gets_on_is_waited_for_however_long_it_takes(watched, watch, sign):
    watched.arrive(0, 1)
    for _ in range(5):
        assert watch(HANG_SECONDS - 1) == []
        getattr(watched, sign)(2)
        assert watch(0) == []
    watched.disk.clear()
    assert watch(LONG) == [2]


def test_one_that_stops_getting_on_long_after_the_others_began_to_wait_hangs(watched, watch):
    watched.arrive(0, 1)
    watched.step(2)
    assert watch(HANG_SECONDS / 2) == []
    assert watch(HANG_SECONDS / 2 + 1) == []
    assert watch(HANG_SECONDS / 2) == [2]


def test_who_waits_does_not_hang_and_all_who_are_late_do(watched, watch):
    watched.arrive(0)
    assert watch(0) == []
    assert watch(LONG) == [1, 2]
    watched.arrive(1, 2)
    assert watch(0) == []


def test_nobody_hangs_whom_nobody_waits_for(watched, watch):
    assert watch(10 * LONG) == []
    watched.arrive(0, 1, 2)
    assert watch(10 * LONG) == []
    watched.arrive(0)
    assert watch(1) == []


def test_an_evaluation_and_a_checkpoint_show_that_a_rank_gets_on(tmp_path, monkeypatch):
    """Of two ranks one plays: the other, which waits, sees it with every step."""
    sizes = {"env__max_frame": 400, "meta__log_frequency": 200, "meta__eval_frequency": 200}
    together = {"meta__distributed": "all_reduce", "meta__max_session": 2}
    spec = parse(ppo(**sizes, **together, meta__rigorous_eval=1))
    first, second = run_ranks(spec, tmp_path, 2)
    steps = read_rows(first.paths.eval_rows)["episode_length"].sum()
    assert first.strategy.barrier._progress[0] > steps > 0
    assert 0 < second.strategy.barrier._progress[1] < 10


@pytest.mark.parametrize(("state", "waits"), [("D", True), ("S", False), ("R", False)])
def test_a_process_that_waits_for_the_disk_is_told_by_its_state(monkeypatch, state, waits):
    processes = Processes([], StatusBoard.allocate(SPAWN, 1), 1)
    processes._running[0] = SimpleNamespace(pid=os.getpid()), None
    assert not processes.waits_for_disk(0)  # it runs
    status = f"{os.getpid()} (odd) D name) {state} 1 1"
    monkeypatch.setattr(Path, "read_text", lambda path: status)
    assert processes.waits_for_disk(0) == waits
    assert not processes.waits_for_disk(1)
