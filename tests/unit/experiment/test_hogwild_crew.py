"""Hogwild! workers that meet on one board: parked together, entered late, ended, replaced."""

import signal
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slm_lab.agent.optim import shared_memory
from slm_lab.core.errors import LabError, NonFiniteLossError
from slm_lab.experiment import hogwild
from slm_lab.experiment.hogwild import GlobalState, Hogwild
from slm_lab.experiment.launch import hogwild as launch
from slm_lab.experiment.launch import processes
from slm_lab.experiment.launch.hogwild import Checkpoints, as_left_off, global_state
from slm_lab.experiment.launch.processes import SPAWN, Processes
from slm_lab.experiment.progress import ASIDE, END, Board, Phase
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.worker import SessionTask
from tests.faults.lab import wait_until
from tests.support import actor_critic, make_session, parse, ppo, soft
from tests.unit.experiment.acts import (
    act,
    begin,
    die_after_frames,
    die_at_once,
    die_then_fail_to_begin,
    fail_at_once,
    finish,
    hang,
    nothing,
)

SPEC = parse(actor_critic(meta__distributed="shared", meta__max_session=2))
TIMEOUT = 30.0


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """One Session; its agent and environment stand for those of every worker."""
    made = make_session(SPEC, tmp_path_factory.mktemp("session"))
    yield made
    made.close()


@pytest.fixture
def crews(session):
    """A board with the crews of W workers that run."""

    def make(count):
        board = Board.allocate(SPAWN, count)
        state = GlobalState.of("synced", session.agent, session.env, count)
        made = [Hogwild(board, worker, state) for worker in range(count)]
        for worker, crew in enumerate(made):
            crew.join(session.agent, session.env)
            crew.enter()
            board.write(worker, phase=Phase.RUNNING)
        return board, made

    return make


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(hogwild, "PARK_SECONDS", 0.05)
    monkeypatch.setattr(hogwild, "STOP_SECONDS", 0.05)


def state():
    """As much of a Session's state as a crew looks at."""
    return {"agent": {"learner": {"units": {"net": {"rule": {}}}}}}


def rule_of(saved):
    return saved["agent"]["learner"]["units"]["net"]["rule"]


@contextmanager
def thread(target):
    """What another worker does at the same time."""
    errors = []

    def run():
        try:
            target()
        except BaseException as error:
            errors.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    try:
        yield
    finally:
        running.join(TIMEOUT)
        assert not running.is_alive()
        assert errors == []


def test_workers_begin_when_all_are_ready(crews):
    board, made = crews(3)
    board.write(0, phase=Phase.STARTING)
    board.write(1, phase=Phase.STARTING)
    board.write(2, phase=Phase.FAILED)
    began = []

    def begin():
        made[0].assemble()
        began.append(board.phase(1))

    with thread(begin):
        wait_until(lambda: board.phase(0) is Phase.READY)
        assert not made[0]._may_begin()
        made[1].assemble()
    assert began == [Phase.READY]


def test_one_that_comes_later_waits_for_nobody_who_starts(crews):
    board, made = crews(3)
    board.write(0, phase=Phase.STARTING)
    board.write(2, phase=Phase.WAITING)
    made[0].assemble()
    assert board.phase(2) is Phase.WAITING


def test_one_that_never_starts_is_waited_for_a_bounded_time(crews, monkeypatch):
    monkeypatch.setattr(hogwild, "START_SECONDS", 0.05)
    board, made = crews(2)
    board.write(1, phase=Phase.STARTING)
    made[0].assemble()
    assert board.phase(0) is Phase.READY


def test_copies_are_made_only_while_all_stand_still(crews, monkeypatch):
    """Each worker steps as fast as it can, adding one to a word that no other may see half-done."""
    monkeypatch.setattr(hogwild, "PARK_SECONDS", 2 * TIMEOUT)  # the machine may stop us for long
    board, made = crews(3)
    words, checkpoints = np.zeros(3, dtype=np.int64), 20
    seen = []

    def work(me):
        crew = made[me]
        rounds = 0
        while rounds < checkpoints:
            if crew.asks_to_save:

                def copy():
                    assert (words % 2 == 0).all()
                    seen.append((board.save_requested, tuple(words)))
                    return state()

                assert crew.save_together(copy) is not None
                rounds += 1
            board.clock_slots[me] += 1
            words[me] += 1  # odd: in the middle of a step
            words[me] += 1

    with thread(lambda: work(0)), thread(lambda: work(1)), thread(lambda: work(2)):
        for checkpoint in range(1, checkpoints + 1):
            board.request_save()
            wait_until(lambda: board.copied.min() == checkpoint)  # noqa: B023
    assert len(seen) == 3 * checkpoints
    assert len(set(seen)) == checkpoints, "those of one checkpoint saw the same words"
    assert board.arrived.tolist() == [0, 0, 0]
    assert (board.parked > 0).all()


def test_the_optimizers_state_is_in_the_copy_of_the_first_that_runs(crews):
    board, made = crews(3)
    board.write(0, phase=Phase.FAILED)
    board.request_save()
    states = {}

    def save(me):
        states[me] = made[me].save_together(state)

    with thread(lambda: save(2)):
        save(1)
    assert rule_of(states[1]) is not None
    assert rule_of(states[2]) is None


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.RUNNING])
def test_one_that_does_not_run_is_not_waited_for(crews, phase):
    board, made = crews(2)
    board.write(1, phase=phase)
    board.request_save()
    assert made[0].save_together(state) is not None
    assert made[0].end_together(state) is not None
    assert board.parked[0] < 1e6


def test_one_that_does_not_come_in_time_has_nobody_save_and_everybody_go_on(crews, impatient):
    """Whoever comes too late finds that the first has gone on, and does not wait for it."""
    board, made = crews(2)
    board.request_save()
    assert made[0].save_together(pytest.fail) is None
    assert not made[0].asks_to_save
    began = board.parked[0]
    assert began >= 0.05e6
    assert made[1].save_together(pytest.fail) is None
    assert board.parked[1] < began
    assert board.copied.tolist() == [1, 1]
    assert board.arrived.tolist() == [0, 0]


def test_a_copy_during_which_someone_steps_is_not_kept(crews):
    board, made = crews(2)
    board.write(1, phase=Phase.STARTING)
    board.request_save()

    def copy():
        board.clock_slots[1] += 1  # it began to run when nobody looked
        return state()

    assert made[0].save_together(copy) is None


def test_one_that_begins_while_others_stand_still_waits_till_they_have_copied(crews):
    board, made = crews(2)
    board.write(1, phase=Phase.STARTING)
    board.request_save()
    entered = threading.Event()

    def begin_late():
        made[1].enter()
        board.write(1, phase=Phase.RUNNING)
        entered.set()

    def copy():
        late = threading.Thread(target=begin_late)
        late.start()
        late.join(0.05)
        assert not entered.is_set()
        return state()

    assert made[0].save_together(copy) is not None
    assert entered.wait(TIMEOUT)
    assert not made[1].asks_to_save, "this checkpoint is over"
    board.request_save()
    assert made[1].asks_to_save


def test_one_that_begins_when_a_checkpoint_has_been_asked_for_takes_part(crews):
    board, made = crews(2)
    board.write(1, phase=Phase.STARTING)
    board.request_save()
    made[1].enter()
    board.write(1, phase=Phase.RUNNING)
    assert made[1].asks_to_save
    with thread(lambda: made[1].save_together(state)):
        assert made[0].save_together(state) is not None


def test_one_that_replaces_another_that_died_at_the_end_begins_anew(crews):
    board, made = crews(2)
    board.arrived[1] = board.copied[1] = END
    made[1].enter()
    assert board.arrived[1] == 0
    assert board.copied[1] == board.save_requested == 0


def test_one_that_stands_aside_is_not_waited_for_and_takes_part_again_after(crews):
    board, made = crews(2)
    made[1].stand_aside()
    assert board.arrived[1] == ASIDE
    board.request_save()
    assert made[0].save_together(state) is not None
    assert board.parked[0] < 1e6
    made[1].enter()
    assert not made[1].asks_to_save
    board.request_save()
    assert made[1].asks_to_save


def test_one_at_its_end_and_one_at_a_checkpoint_do_not_wait_for_each_other(crews):
    board, made = crews(2)
    board.request_save()
    ends = []
    with thread(lambda: ends.append(made[1].end_together(state))):
        wait_until(lambda: board.arrived[1] == END)
        assert made[0].save_together(state) is not None
        assert board.copied[1] < END, "it waits for the other"
        assert rule_of(made[0].end_together(state)) is not None
    assert rule_of(ends[0]) is None
    assert (board.parked < 1e6).all()


def test_the_end_is_copied_even_if_someone_does_not_come_and_then_by_the_first_that_does(
    crews, impatient
):
    _, made = crews(2)
    assert rule_of(made[1].end_together(state)) is not None


def test_statistics_that_are_not_finite_are_not_merged_into_those_of_all(crews):
    _, made = crews(2)
    crew = made[0]
    crew._pulled = crew._total = np.zeros(3)
    own = np.array([1.0, np.nan, 0.0])
    crew._env = SimpleNamespace(statistics=own, moments=(slice(0, 3),))
    with pytest.raises(NonFiniteLossError, match="not finite"):
        crew.learned({}, lambda: 0.0)
    assert (crew._total == 0).all()


def test_a_row_without_a_gradient_step_says_that_there_was_none(crews):
    _, made = crews(1)
    assert made[0].report(2.0) == {"updates_per_s": 0.0}


def test_a_checkpoint_is_asked_for_when_the_last_one_is_done_and_old_enough(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    board = Board.allocate(SPAWN, 2)
    checkpoints = Checkpoints(board, 10.0)

    def requested_at(moment):
        now[0] = moment
        checkpoints.tick()
        return board.save_requested

    assert requested_at(150) == 0, "nobody runs"
    board.write(0, phase=Phase.RUNNING)
    assert requested_at(150) == 1
    assert requested_at(170) == 1, "nobody has made the first"
    board.copied[0] = 1
    assert requested_at(159) == 1
    assert requested_at(160) == 2
    board.copied[0] = 2
    board.parked[0] = 500_000
    board.parked[1] = 900_000  # of one that does not run any more
    assert requested_at(209) == 2, "half a second of standing still is paid off in 50"
    assert requested_at(210) == 3


def test_a_worker_that_does_not_come_to_a_checkpoint_for_minutes_hangs(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    board = Board.allocate(SPAWN, 3)
    checkpoints = Checkpoints(board, 10.0)
    for session in (0, 1):
        board.write(session, phase=Phase.RUNNING)
    now[0] = 110.0
    assert checkpoints.tick() == []
    board.copied[0] = board.save_requested
    now[0] = 110.0 + launch.HANG_SECONDS - 0.1
    assert checkpoints.tick() == []
    now[0] += 0.2
    assert checkpoints.tick() == [1]
    board.copied[1] = board.save_requested
    assert checkpoints.tick() == []


@pytest.mark.parametrize(("interval", "due"), [(0, 1.0), (30, 30.0)])
def test_workers_stand_still_once_a_second_at_most(monkeypatch, interval, due):
    now = [0.0]
    monkeypatch.setattr(launch.time, "monotonic", lambda: now[0])
    board = Board.allocate(SPAWN, 1)
    board.write(0, phase=Phase.RUNNING)
    checkpoints = Checkpoints(board, interval)
    now[0] = due - 0.01
    checkpoints.tick()
    assert board.save_requested == 0
    now[0] = due
    checkpoints.tick()
    assert board.save_requested == 1


def tasks_of(folder, spec, count):
    run_dir = RunDir(folder, spec.name)
    workers = range(count)
    return [SessionTask(spec, run_dir, 0, 0, s, count, True, workers=workers) for s in workers]


def test_a_worker_whose_checkpoint_is_older_goes_on_from_the_frames_that_the_others_know_of(
    tmp_path, monkeypatch
):
    board = Board.allocate(SPAWN, 3)
    board.clock_slots[:] = [400, 300, 0]
    saved = [{"frames": [350, 300, 20]}, {"frames": [400, 300, 50]}]
    monkeypatch.setattr(launch, "_saved", lambda *where: iter(saved))
    tasks = as_left_off(tasks_of(tmp_path, SPEC, 3), board)
    assert board.clock_slots.tolist() == [400, 300, 50]
    assert [task.resume for task in tasks] == [True, True, False]
    assert tasks[2].replaces is not None


def test_the_parent_of_workers_has_no_replay_memory_of_its_own(tmp_path):
    memory = {"name": "Replay", "batch_size": 16, "max_size": 10**13}  # no machine has so much
    spec = parse(soft("SoftActorCritic", agent__memory=memory, meta__distributed="shared"))
    state = global_state(spec, "shared", RunDir(tmp_path, spec.name), 0, range(2), 0, False)
    assert set(state.units) >= {"actor", "critic"}


def test_the_global_weights_are_those_that_a_session_alone_would_draw(tmp_path):
    """The decomposition behind orthogonal weights hangs on the number of threads."""
    spec = parse(ppo(agent__net__hid_layers=[64, 64], meta__distributed="shared"))
    session = make_session(spec, tmp_path / "alone", seed=3)
    session.close()
    torch.set_num_threads(2)
    state = global_state(spec, "shared", RunDir(tmp_path, spec.name), 0, range(1), 3, False)
    assert torch.get_num_threads() == 1
    for name, flat in session.agent.learner.flats.items():
        assert torch.equal(state.units[name].vector, flat.vector)


def test_what_torch_leaves_where_shared_memory_is_full_is_cleared(tmp_path, monkeypatch):
    cleared = []
    monkeypatch.setattr(shared_memory, "clear_left_over", lambda: cleared.append(True))

    def full(self, *arguments, **keywords):
        raise RuntimeError("No space left on device (28)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", full)
    with pytest.raises(LabError, match="make room there"):
        global_state(SPEC, "shared", RunDir(tmp_path, SPEC.name), 0, range(1), 0, False)
    assert cleared


@pytest.fixture
def make(monkeypatch, tmp_path):
    """Processes of which each does one of the acts, and is replaced."""
    monkeypatch.setattr(processes, "session_main", act)
    spec = parse(ppo())

    def make(*acts, **limits):
        board = Board.allocate(SPAWN, len(acts))
        names = [(what.__name__,) for what in acts]
        tasks = tasks_of(tmp_path, spec, len(acts))
        tasks = [
            SessionTask(**{**vars(task), "imports": name})
            for task, name in zip(tasks, names, strict=True)
        ]
        return Processes(tasks, board, len(acts), **limits), board

    return make


def test_a_killed_worker_is_replaced_as_often_as_allowed(make):
    """Each adds a frame before it dies; they see how the one before died."""
    launcher, board = make(die_after_frames, finish, max_restart=2)
    dead, whole = launcher.run(nothing)
    assert (dead.ending, dead.exit_code, dead.restarts) == (Ending.FAILED, -signal.SIGKILL, 2)
    assert (whole.ending, whole.restarts) == (Ending.FINISHED, 0)
    assert dead.frame == 3
    assert board.read(0).restarts == 2


def test_a_worker_that_is_killed_before_its_first_step_is_replaced_too(make):
    launcher, _ = make(die_at_once, max_restart=1)
    (dead,) = launcher.run(nothing)
    assert (dead.ending, dead.restarts) == (Ending.FAILED, 1)


def test_a_worker_that_fails_before_its_first_step_is_not_replaced(make):
    launcher, _ = make(fail_at_once, max_restart=5)
    (failed,) = launcher.run(nothing)
    assert (failed.ending, failed.restarts, failed.error) == (Ending.FAILED, 0, "it cannot begin")


def test_a_worker_that_has_stepped_is_replaced_though_its_replacement_cannot_begin(make):
    launcher, _ = make(die_then_fail_to_begin, max_restart=2)
    (failed,) = launcher.run(nothing)
    assert (failed.ending, failed.restarts, failed.frame) == (Ending.FAILED, 2, 0)


def test_a_worker_that_hangs_is_ended_and_replaced_and_the_reason_is_told(make):
    launcher, board = make(hang, max_restart=1)

    def tick():
        if board.phase(0) is Phase.RUNNING:
            launcher.end_hung(0, "it hangs")

    (hung,) = launcher.run(tick)
    assert (hung.ending, hung.restarts, hung.error) == (Ending.FAILED, 1, "it hangs")


def test_no_worker_is_replaced_once_a_stop_was_asked_for(make):
    launcher, board = make(die_after_frames, max_restart=5)
    board.request_stop()
    (stopped,) = launcher.run(nothing)
    assert (stopped.ending, stopped.restarts) == (Ending.INTERRUPTED, 0)


def test_after_a_stop_a_worker_that_has_not_begun_is_ended_at_once(make):
    launcher, board = make(begin, max_restart=5, stop_seconds=TIMEOUT)
    (stopped,) = launcher.run(stop_once(board, Phase.STARTING))
    assert (stopped.ending, stopped.frame) == (Ending.INTERRUPTED, 7)
    assert board.phase(0) is Phase.STOPPED


def test_after_a_stop_a_worker_that_hangs_is_ended_in_time(make):
    launcher, board = make(hang, max_restart=5, stop_seconds=0.1)
    (stopped,) = launcher.run(stop_once(board, Phase.RUNNING))
    assert (stopped.ending, stopped.restarts) == (Ending.INTERRUPTED, 0)


def test_after_a_stop_a_worker_that_saves_may_take_its_time(make):
    launcher, board = make(hang, stop_seconds=0.0)
    board.arrived[0] = END
    ticks = []

    def tick():
        stop_once(board, Phase.RUNNING)()
        if board.stop_requested:
            ticks.append(board.phase(0))
        if len(ticks) == 3:
            raise KeyboardInterrupt  # the second Ctrl-C

    with pytest.raises(KeyboardInterrupt):
        launcher.run(tick)
    assert ticks == [Phase.RUNNING] * 3


def stop_once(board, phase):
    def tick():
        if board.phase(0) is phase:
            board.request_stop()

    return tick
