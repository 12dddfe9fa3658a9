"""Hogwild! workers of one training: paused together, started late, ended, replaced."""

import threading
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from slm_lab.core.errors import NonFiniteLossError
from slm_lab.parallel import wait
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hogwild import pauses as module
from slm_lab.parallel.hogwild import strategy as strategy_module
from slm_lab.parallel.hogwild.strategy import GlobalState, HogwildStrategy
from slm_lab.session.status_board import EARLY, END, PAUSED, Phase, StatusBoard
from slm_lab.testing.play import Play
from tests.faults.lab import wait_until
from tests.support import actor_critic, make_session, parse

SPEC = parse(actor_critic(meta__distributed="shared", meta__max_session=2))
TIMEOUT = 30.0


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """One Session; every worker uses its agent and environment."""
    made = make_session(SPEC, tmp_path_factory.mktemp("session"))
    yield made
    made.close()


@pytest.fixture
def workers(session):
    """A status board, and the strategies of W workers that run."""

    def make(count):
        status_board = StatusBoard.allocate(CONTEXT, count)
        state = GlobalState.of("synced", session.agent, session.env, count)
        made = [HogwildStrategy(state, status_board, worker) for worker in range(count)]
        for worker, strategy in enumerate(made):
            strategy.join(session.agent, session.env)
            strategy.barrier.resume()
            status_board.write(worker, phase=Phase.RUNNING)
        return status_board, made

    return make


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(module, "STOP_PAUSE_SECONDS", 0.05)


def state():
    """The part of a Session's state that a strategy reads."""
    return {"agent": {"learner": {"train_state": {"net": {"rule": {}}}}}}


def rule_of(saved):
    return saved["agent"]["learner"]["train_state"]["net"]["rule"]


@contextmanager
def thread(target):
    """Runs what another worker does at the same time."""
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


def test_workers_begin_when_all_are_ready(workers):
    status_board, made = workers(3)
    status_board.write(0, phase=Phase.STARTING)
    status_board.write(1, phase=Phase.STARTING)
    status_board.write(2, phase=Phase.FAILED)
    began = []

    def begin():
        made[0].barrier.wait_for_start()
        began.append(status_board.phase(1))

    with thread(begin):
        wait_until(lambda: status_board.phase(0) is Phase.READY)
        assert began == []
        made[1].barrier.wait_for_start()
    assert began == [Phase.READY]


def test_a_replacement_worker_does_not_wait_for_others_to_start(workers):
    status_board, made = workers(3)
    status_board.write(0, phase=Phase.STARTING)
    status_board.write(2, phase=Phase.WAITING)
    made[0].barrier.wait_for_start()
    assert status_board.phase(2) is Phase.WAITING


def test_a_worker_that_never_starts_is_waited_for_up_to_a_timeout(workers, monkeypatch):
    monkeypatch.setattr(module, "START_SECONDS", 0.05)
    status_board, made = workers(2)
    status_board.write(1, phase=Phase.STARTING)
    made[0].barrier.wait_for_start()
    assert status_board.phase(0) is Phase.READY


def test_copies_are_made_only_while_all_workers_pause(workers, monkeypatch):
    """Each worker steps at full speed, and no other may see a half-done step of it."""
    monkeypatch.setattr(
        module, "PAUSE_SECONDS", 2 * TIMEOUT
    )  # the machine may pause this process for long
    status_board, made = workers(3)
    words = np.zeros(3, dtype=np.int64)
    checkpoints = 20
    seen = []

    def work(me):
        strategy = made[me]
        rounds = 0
        while rounds < checkpoints:
            if strategy.checkpoint.is_requested:

                def copy():
                    assert (words % 2 == 0).all()
                    seen.append((status_board.save_requested, tuple(words)))
                    return state()

                assert strategy.checkpoint.joint_state(copy) is not None
                rounds += 1
            status_board.clock_slots[me] += 1
            words[me] += 1  # odd: in the middle of a step
            words[me] += 1

    with thread(lambda: work(0)), thread(lambda: work(1)), thread(lambda: work(2)):
        for checkpoint in range(1, checkpoints + 1):
            status_board.request_save()
            wait_until(lambda: status_board.checkpointed.min() == checkpoint)  # noqa: B023
    assert len(seen) == 3 * checkpoints
    assert len(set(seen)) == checkpoints, "those of one checkpoint saw the same words"
    assert status_board.at_barrier.tolist() == [0, 0, 0]
    assert (status_board.paused_us > 0).all()


def test_the_optimizer_state_is_in_the_copy_of_the_first_running_worker(workers):
    status_board, made = workers(3)
    status_board.write(0, phase=Phase.FAILED)
    status_board.request_save()
    states = {}

    def save(me):
        states[me] = made[me].checkpoint.joint_state(state)

    with thread(lambda: save(2)):
        save(1)
    assert rule_of(states[1]) is not None
    assert rule_of(states[2]) is None


@pytest.mark.parametrize("phase", [p for p in Phase if p is not Phase.RUNNING])
def test_a_worker_that_does_not_run_is_not_waited_for(workers, phase):
    status_board, made = workers(2)
    status_board.write(1, phase=phase)
    status_board.request_save()
    assert made[0].checkpoint.joint_state(state) is not None
    assert made[0].checkpoint.final_state(state, True) is not None
    assert status_board.paused_us[0] < 1e6


def test_if_one_worker_misses_the_barrier_none_saves_and_all_continue(
    workers, impatient
):
    """A late worker finds that the first has continued, and does not wait for it."""
    status_board, made = workers(2)
    status_board.request_save()
    assert made[0].checkpoint.joint_state(pytest.fail) is None
    assert not made[0].checkpoint.is_requested
    began = status_board.paused_us[0]
    assert began >= 0.05e6
    assert made[1].checkpoint.joint_state(pytest.fail) is None
    assert status_board.paused_us[1] < began
    assert status_board.checkpointed.tolist() == [1, 1]
    assert status_board.at_barrier.tolist() == [0, 0]


def test_a_copy_during_which_a_worker_steps_is_discarded(workers):
    status_board, made = workers(2)
    status_board.write(1, phase=Phase.STARTING)
    status_board.request_save()

    def copy():
        status_board.clock_slots[1] += 1  # it started to run unnoticed
        return state()

    assert made[0].checkpoint.joint_state(copy) is None


def test_a_worker_that_starts_during_a_checkpoint_waits_until_the_others_have_copied(
    workers,
):
    status_board, made = workers(2)
    status_board.write(1, phase=Phase.STARTING)
    status_board.request_save()
    entered = threading.Event()

    def begin_late():
        made[1].barrier.resume()
        status_board.write(1, phase=Phase.RUNNING)
        entered.set()

    def copy():
        late = threading.Thread(target=begin_late)
        late.start()
        late.join(0.05)
        assert not entered.is_set()
        return state()

    assert made[0].checkpoint.joint_state(copy) is not None
    assert entered.wait(TIMEOUT)
    assert not made[1].checkpoint.is_requested, "this checkpoint is over"
    status_board.request_save()
    assert made[1].checkpoint.is_requested


def test_a_worker_that_starts_after_a_checkpoint_request_takes_part(workers):
    status_board, made = workers(2)
    status_board.write(1, phase=Phase.STARTING)
    status_board.request_save()
    made[1].barrier.resume()
    status_board.write(1, phase=Phase.RUNNING)
    assert made[1].checkpoint.is_requested
    with thread(lambda: made[1].checkpoint.joint_state(state)):
        assert made[0].checkpoint.joint_state(state) is not None


def test_the_replacement_of_a_worker_that_died_at_its_end_starts_with_a_clean_state(
    workers,
):
    status_board, made = workers(2)
    status_board.at_barrier[1] = status_board.checkpointed[1] = END
    made[1].barrier.resume()
    assert status_board.at_barrier[1] == 0
    assert status_board.checkpointed[1] == status_board.save_requested == 0


def test_a_paused_worker_is_not_waited_for_and_takes_part_after_it_resumes(workers):
    status_board, made = workers(2)
    made[1].barrier.pause()
    assert status_board.at_barrier[1] == PAUSED
    status_board.request_save()
    assert made[0].checkpoint.joint_state(state) is not None
    assert status_board.paused_us[0] < 1e6
    made[1].barrier.resume()
    assert not made[1].checkpoint.is_requested
    status_board.request_save()
    assert made[1].checkpoint.is_requested


def test_a_finishing_worker_and_a_checkpointing_worker_do_not_deadlock(workers):
    status_board, made = workers(2)
    status_board.request_save()
    ends = []
    with thread(lambda: ends.append(made[1].checkpoint.final_state(state, True))):
        wait_until(lambda: status_board.at_barrier[1] == END)
        assert made[0].checkpoint.joint_state(state) is not None
        assert status_board.checkpointed[1] < END, "it waits for the other"
        assert rule_of(made[0].checkpoint.final_state(state, True)) is not None
    assert rule_of(ends[0]) is None
    assert (status_board.paused_us < 1e6).all()


def test_the_final_state_is_copied_even_if_a_worker_misses_the_barrier(
    workers, impatient
):
    _, made = workers(2)
    assert rule_of(made[1].checkpoint.final_state(state, True)) is not None


def test_the_last_of_the_final_copies_has_everything(workers, monkeypatch):
    """The first has stopped waiting: the weights changed after its copy."""
    status_board, made = workers(3)
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.05)
    assert rule_of(made[0].checkpoint.final_state(state, True)) is not None
    assert status_board.checkpointed[0] == EARLY
    monkeypatch.setattr(module, "PAUSE_SECONDS", TIMEOUT)
    last = []
    with thread(lambda: last.append(made[2].checkpoint.final_state(state, True))):
        assert rule_of(made[1].checkpoint.final_state(state, True)) is not None
    assert rule_of(last[0]) is None


def test_a_paused_worker_does_not_save_the_optimizer_state(workers):
    status_board, made = workers(2)
    made[0].barrier.pause()
    status_board.request_save()
    assert rule_of(made[1].checkpoint.joint_state(state)) is not None


@pytest.mark.parametrize(("event", "is_saved"), [(1.0, False), (10.0, True)])
def test_a_worker_with_long_training_events_waits_as_long_for_the_others(
    workers, monkeypatch, event, is_saved
):
    status_board, made = workers(2)
    now = [0.0]

    def sleep(seconds):
        now[0] += 1.0
        if now[0] >= event + 8.0:
            status_board.at_barrier[1] = status_board.save_requested
            status_board.checkpointed[1] = status_board.save_requested

    clock = SimpleNamespace(perf_counter=lambda: now[0], sleep=sleep)
    for each in (module, strategy_module, wait):
        monkeypatch.setattr(each, "time", clock)
    made[0].refresh()
    now[0] += event
    made[0].learned({}, lambda: 0.0)
    status_board.request_save()
    assert (made[0].checkpoint.joint_state(state) is not None) is is_saved


def test_statistics_that_are_not_finite_are_not_merged_into_the_shared_ones(session):
    shared = torch.zeros(3, dtype=torch.float64)
    state = replace(
        GlobalState.of("synced", session.agent, session.env, 1), statistics=shared
    )
    strategy = HogwildStrategy(state, StatusBoard.allocate(CONTEXT, 1), 0)
    env = SimpleNamespace(statistics=np.zeros(3), moments=(slice(0, 3),))
    strategy.join(session.agent, env)
    env.statistics[:] = [1.0, np.nan, 0.0]
    with pytest.raises(NonFiniteLossError, match="not finite"):
        strategy.learned({}, lambda: 0.0)
    assert (shared == 0).all()


def test_a_row_without_a_gradient_step_reports_zero_updates(workers):
    _, made = workers(1)
    assert made[0].report(2.0) == {"updates_per_s": 0.0}


@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_a_resumed_worker_reports_the_steps_that_no_row_had_reported(mode):
    spec = parse(actor_critic(meta__distributed=mode, meta__max_session=1))
    status_board = StatusBoard.allocate(CONTEXT, 1)
    plays = [Play(spec), Play(spec)]
    for play in plays:
        for _ in range(8):
            play.step()
        play.env.close()
    state = GlobalState.of(mode, plays[0].agent, plays[0].env, 1)
    stopped, resumed = (HogwildStrategy(state, status_board, 0) for _ in plays)
    stopped.join(plays[0].agent, plays[0].env)
    plays[0].agent.learn(8)
    resumed.load_state_dict(stopped.state_dict())
    plays[1].agent.learner.load_state_dict(plays[0].agent.learner.state_dict())
    resumed.join(plays[1].agent, plays[1].env)
    report = resumed.report(2.0)
    assert report["staleness_mean"] == 0.0
    assert report["updates_per_s"] == plays[0].agent.learner.opt_step / 2.0 > 0
    assert resumed.report(2.0) == {"updates_per_s": 0.0}
