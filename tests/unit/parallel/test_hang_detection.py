"""Which processes count as hanging: one suite over the signs of every mode."""

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from slm_lab.env.vector.raw import RESETTING, STEPPING
from slm_lab.parallel import hang_detector
from slm_lab.parallel.actor_learner.launch import (
    LEAVE_SECONDS,
    actor_due,
    evaluation_due,
    late_due,
    learner_due,
)
from slm_lab.parallel.actor_learner.queue import RING, LearnerQueue, UnrollQueue
from slm_lab.parallel.actor_learner.unroll import UnrollLayout
from slm_lab.parallel.actor_learner.weights import WeightStore
from slm_lab.parallel.all_reduce.launch import rank_due
from slm_lab.parallel.all_reduce.process_groups import GroupBuffers
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hang_detector import (
    CHECKS_TO_HANG,
    PATIENCE_SECONDS,
    HangDetector,
    Limits,
    session_due,
)
from slm_lab.parallel.hogwild.launch import worker_due
from slm_lab.parallel.processes import Processes
from slm_lab.session.status_board import EARLY, END, PAUSED, Phase, StatusBoard
from tests.support import memory_layout, parse, ppo, read_rows, run_ranks

COPIES = 3
LIMITS = Limits(step=300.0, reset=None)
SLOTS = 2
"""Of each actor's ring."""


class Running:
    """Three running Sessions; the one numbered `silent` makes no progress."""

    fixed = None
    """A limit that is no key of the spec."""
    silent = 1
    sessions = range(3)

    def __init__(self):
        self.status_board = StatusBoard.allocate(CONTEXT, 3, COPIES)
        for session in range(3):
            self.status_board.write(session, phase=Phase.RUNNING)

    def step(self):
        self.status_board.clock_slots[self.silent] += 1

    @property
    def seconds(self):
        if self.fixed is None:
            return LIMITS.step
        return self.fixed

    def be(self, phase, restarts=0):
        self.status_board.write(self.silent, phase=phase, restarts=restarts)

    def beat(self):
        self.status_board.heartbeats[self.silent] += 1

    def mark(self, slot, number):
        getattr(self.status_board, slot)[self.silent] = number

    def copies(self, *marks):
        self.status_board.marks[self.silent] = marks


class Independent(Running):
    """Of no mode."""

    def __init__(self):
        super().__init__()
        self.due = partial(session_due, self.status_board, self.sessions)

    def others(self):
        self.status_board.clock_slots[[0, 2]] += 1


class Worker(Running):
    """Of Hogwild!"""

    def __init__(self):
        super().__init__()
        self.due = partial(worker_due, self.status_board)

    def others(self):
        self.status_board.clock_slots[[0, 2]] += 1


class Rank(Running):
    """Of all_reduce: the others wait for it in an exchange."""

    def __init__(self):
        super().__init__()
        self.place = GroupBuffers.of(3)
        self.due = partial(rank_due, self.status_board, self.place)
        self.place.arrivals[[0, 2]] += 1

    def others(self):
        """They only wait."""

    def arrive(self):
        self.place.arrivals[self.silent] += 1

    def enter_an_exchange(self):
        self.place.arrivals[[0, 2]] += 1
        self.arrive()


class Actor(Running):
    """Of actor_learner. Session 0 is the learner's."""

    def __init__(self):
        super().__init__()
        layout = memory_layout((1,))
        unrolls = UnrollLayout(layout, 0)
        self.queue = UnrollQueue(
            layout=unrolls,
            slots=torch.zeros((2, SLOTS, unrolls.record.itemsize), dtype=torch.uint8),
            ring_bytes=torch.zeros((2, RING.itemsize), dtype=torch.uint8),
            weights=WeightStore.of({}, 0),
            requests=None,
            max_unrolls=100,
        )
        self.due = partial(actor_due, self.status_board, self.queue)
        self.sessions = range(1, 3)

    def others(self):
        self.status_board.clock_slots[2] += 1

    def fill(self, actor=0):
        rings = self.queue.rings
        rings["handed"][actor] = rings["returned"][actor] + SLOTS


class LateActor(Actor):
    """One whose step still runs although the learner has ended."""

    fixed = LEAVE_SECONDS

    def __init__(self):
        super().__init__()
        self.due = partial(late_due, self.status_board)
        self.status_board.write(2, phase=Phase.DONE)
        LearnerQueue(self.queue, self.status_board).end()


class Learner(Actor):
    """It learns nothing, and an actor's ring is full."""

    fixed = PATIENCE_SECONDS
    silent = 0

    def __init__(self):
        super().__init__()
        self.due = partial(learner_due, self.status_board, self.queue)
        self.sessions = range(1)
        self.fill(1)

    def others(self):
        """They only wait."""

    def give_back(self):
        for count in ("handed", "returned"):
            self.queue.rings[count][1] += 1


class EvaluatingLearner(Learner):
    """One that pauses for an evaluation."""

    fixed = None

    def __init__(self):
        super().__init__()
        self.due = partial(evaluation_due, self.status_board)
        self.mark("at_barrier", PAUSED)


CASES = (Independent, Worker, Rank, Actor, LateActor, Learner, EvaluatingLearner)
PROGRESS = {
    Independent: {"step": Running.step, "evaluation": Running.beat},
    EvaluatingLearner: {"step": Running.beat},
    Worker: {
        "step": Running.step,
        "barrier": partial(Worker.mark, slot="at_barrier", number=1),
        "saved": partial(Worker.mark, slot="checkpointed", number=1),
        "restart": partial(Running.be, phase=Phase.RUNNING, restarts=1),
        "evaluation": Running.beat,
    },
    Rank: {
        "step": Running.step,
        "evaluation": Running.beat,
        "exchange": Rank.enter_an_exchange,
    },
    Actor: {
        "step": Running.step,
        "restart": partial(Running.be, phase=Phase.RUNNING, restarts=1),
    },
    Learner: {"step": Running.step, "unroll": Learner.give_back},
}
NOT_DUE = {
    Worker: {
        "has not started": partial(Running.be, phase=Phase.WAITING),
        "has ended": partial(Running.be, phase=Phase.DONE),
        "saved early": partial(Worker.mark, slot="at_barrier", number=EARLY),
        "saves at the end": partial(Worker.mark, slot="at_barrier", number=END),
    },
    Rank: {"has ended": partial(Running.be, phase=Phase.DONE)},
    Independent: {
        "has not started": partial(Running.be, phase=Phase.WAITING),
        "has ended": partial(Running.be, phase=Phase.DONE),
    },
    EvaluatingLearner: {"trains": lambda self: self.status_board.at_barrier.fill(0)},
    Actor: {
        "waits for a slot": Actor.fill,
        "has not started": partial(Running.be, phase=Phase.WAITING),
        "is ready": partial(Running.be, phase=Phase.READY),
        "has ended": partial(Running.be, phase=Phase.DONE),
        "was stopped": partial(Running.be, phase=Phase.STOPPED),
    },
    LateActor: {
        "has ended": partial(Running.be, phase=Phase.DONE),
        "user stops": lambda self: self.status_board.request_stop(),
        "learner continues": lambda self: self.status_board.at_barrier.fill(0),
    },
    Learner: {
        "no actor waits": lambda self: self.queue.ring_bytes.zero_(),
        "pauses": lambda self: LearnerQueue(self.queue, self.status_board).pause_actors(
            True
        ),
        "starts": partial(Running.be, phase=Phase.STARTING),
    },
}


class Clock:
    def __init__(self):
        self.now = 50.0

    def monotonic(self):
        return self.now


@pytest.fixture
def watch(monkeypatch):
    """`watch(case)` makes a function: the processes that hang after so many seconds
    more."""
    clock = Clock()
    monkeypatch.setattr(hang_detector, "time", clock)

    def of(case, limits=LIMITS, reasons=False):
        detector = HangDetector(
            status_board=case.status_board,
            sessions=case.sessions,
            due=case.due,
            limits=limits,
            seconds=case.fixed,
        )

        def after(seconds):
            hung = detector.hung()
            for _ in range(2 * CHECKS_TO_HANG):
                clock.now += seconds / (2 * CHECKS_TO_HANG)
                case.others()
                hung = detector.hung()
            if reasons:
                return hung
            return [session for session, _ in hung]

        return after

    return of


@pytest.mark.parametrize("kind", CASES)
def test_a_process_without_progress_hangs_after_the_timeout(watch, kind):
    case = kind()
    after = watch(case)
    assert after(case.seconds - 1) == []
    assert after(2) == [case.silent]


def rows(table):
    """(kind, what, act) for each act of the table."""
    return [
        (kind, what, act) for kind, acts in table.items() for what, act in acts.items()
    ]


@pytest.mark.parametrize(("kind", "what", "act"), rows(PROGRESS))
def test_any_progress_restarts_the_timeout(watch, kind, what, act):
    case = kind()
    after = watch(case)
    assert after(case.seconds - 1) == []
    act(case)
    assert after(case.seconds - 1) == []
    assert after(2) != []


@pytest.mark.parametrize(("kind", "what", "act"), rows(NOT_DUE))
def test_a_process_without_work_does_not_hang(watch, kind, what, act):
    case = kind()
    after = watch(case)
    assert after(case.seconds - 1) == []
    act(case)
    assert after(10 * case.seconds) == []


def test_all_late_ranks_hang(watch):
    case = Rank()
    case.place.arrivals[2] = 0
    assert watch(case)(case.seconds + 1) == [1, 2]


def test_a_rank_that_waits_for_others_does_not_hang(watch):
    case = Rank()
    case.place.arrivals[:] = torch.tensor([0, 1, 0])
    assert watch(case)(case.seconds + 1) == [0, 2]


def test_ranks_that_all_hang_in_their_environments_hang(watch):
    case = Rank()
    case.place.arrivals[:] = 1
    assert watch(case)(case.seconds + 1) == [0, 1, 2]


@pytest.mark.parametrize("kind", [Independent, Worker, Rank, Actor])
def test_a_start_takes_as_long_as_a_reset_may_for_it_makes_environments(watch, kind):
    case = kind()
    case.be(Phase.STARTING)
    assert watch(case)(1e6) == []
    assert watch(case, Limits(step=1.0, reset=50.0))(49) == []
    assert watch(case, Limits(step=1.0, reset=50.0))(51) == [case.silent]


WATCHED = [Independent, Worker, Rank, Actor, EvaluatingLearner]
IDLE = 0


@pytest.mark.parametrize("kind", WATCHED)
def test_a_reset_does_not_count_as_a_step(watch, kind):
    case = kind()
    case.copies(IDLE, RESETTING, IDLE)
    assert watch(case)(1e6) == []
    bounded = watch(case, Limits(step=1.0, reset=500.0), reasons=True)
    assert bounded(499) == []
    why = "the reset of copy 1 has not ended for 500 s; see meta.reset_seconds"
    assert bounded(2) == [(case.silent, f"Session {case.silent} hangs: {why}")]


def test_a_step_in_a_worker_process_is_named_though_another_copy_resets(watch):
    case = Independent()
    case.copies(RESETTING, STEPPING, STEPPING)
    ((_, why),) = watch(case, reasons=True)(301)
    assert (
        "hangs: the step of copies 1, 2 has not ended for 300 s; see meta.step_seconds"
        in why
    )


@pytest.mark.parametrize("slot", ["learning", "saving"])
@pytest.mark.parametrize("kind", [Independent, Worker, Rank])
def test_a_training_event_and_a_save_take_longer_than_a_step_may(watch, kind, slot):
    case = kind()
    case.mark(slot, 1)
    after = watch(case, Limits(step=1.0, reset=1.0))
    assert after(PATIENCE_SECONDS - 1) == []
    assert after(2) == [case.silent]


def test_an_observer_that_was_suspended_blames_no_process(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(hang_detector, "time", clock)
    case = Worker()
    detector = HangDetector(case.status_board, case.sessions, case.due, LIMITS)
    detector.hung()
    for _ in range(CHECKS_TO_HANG):
        clock.now += 100 * case.seconds
        assert detector.hung() == []
    clock.now += 100 * case.seconds
    assert [session for session, _ in detector.hung()] == [0, 1, 2]


def test_an_evaluation_and_a_checkpoint_show_that_a_rank_makes_progress(tmp_path):
    """One of two ranks evaluates: the other, which waits, sees it with every step."""
    sizes = {
        "env__max_frame": 400,
        "meta__log_frequency": 200,
        "meta__eval_frequency": 200,
    }
    together = {"meta__distributed": "all_reduce", "meta__max_session": 2}
    spec = parse(ppo(**sizes, **together, meta__rigorous_eval=1))
    first, second = run_ranks(spec, tmp_path, 2)
    steps = read_rows(first.paths.eval_rows)["episode_length"].sum()
    evaluating, waiting = (
        rank.status_board.heartbeats[rank.index] for rank in (first, second)
    )
    assert evaluating > steps > 0
    assert 0 < waiting < 10


@pytest.mark.parametrize(("state", "waits"), [("D", True), ("S", False), ("R", False)])
def test_a_process_that_waits_for_the_disk_is_recognised_by_its_state(
    monkeypatch, state, waits
):
    processes = Processes(StatusBoard.allocate(CONTEXT, 1))
    processes._running[0] = SimpleNamespace(process=SimpleNamespace(pid=os.getpid()))
    assert not processes.waits_for_disk(0)  # it runs
    status = f"{os.getpid()} (odd) D name) {state} 1 1"
    monkeypatch.setattr(Path, "read_text", lambda path: status)
    assert processes.waits_for_disk(0) == waits
    assert not processes.waits_for_disk(1)
