"""What a search does with a trial that its scheduler stops, pauses, or lets copy
another."""

import json

import pytest

from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Copied, Ended, Paused
from slm_lab.storage.result import Ending
from slm_lab.studies.search import agenda as module
from slm_lab.studies.study import Decision, Intervention
from tests.unit.studies.search.fake_pool import FakePool, Fault, Listed, copy_rows
from tests.unit.studies.search.played import (
    FOUR,
    MAX_FRAME,
    Scripted,
    assert_whole,
    began,
    events,
    run,
    score_at,
    search_of,
    statuses,
)
from tests.unit.studies.search.small import GAMMA

pytestmark = pytest.mark.usefixtures("quickly")


def test_a_stopped_trial_saves_and_ends_with_its_score(run_dir):
    scheduler = Scripted({(1, 200): [Decision(1, Intervention.STOP)]})
    search = run(search_of(run_dir, scheduler=scheduler))
    state = search.study_state.trials[1]
    assert state.status is Status.STOPPED
    assert (state.frame, state.score) == (200, pytest.approx(120))
    assert search.slots.stopped == [1]
    assert began(run_dir) == [0, 1, 2, 3]


def test_a_paused_trial_continues_when_the_scheduler_chooses_it(run_dir):
    scheduler = Scripted({(0, 200): [Decision(0, Intervention.PAUSE)]})
    search = run(
        search_of(run_dir, scheduler=scheduler, pool=FakePool(score_at, cpus=1))
    )
    assert set(statuses(search).values()) == {"finished"}
    assert search.slots.began[:2] == [(0, False, 0), (0, True, 200)]
    assert [event.trial for event in events(run_dir, Paused)] == [0]


def test_paused_trials_that_are_never_chosen_again_are_stopped_at_the_end(run_dir):
    scheduler = Scripted({(0, 200): [Decision(0, Intervention.PAUSE)]})
    search = search_of(run_dir, scheduler=scheduler, pool=FakePool(score_at, cpus=1))
    scheduler.choose = lambda waiting: next(
        (t for t in waiting if t not in began(run_dir)), None
    )
    run(search)
    state = search.study_state.trials[0]
    assert (state.status, state.frame) == (Status.STOPPED, 200)
    assert state.score == pytest.approx(180)
    assert statuses(search)[3] == "finished"


def test_a_copying_trial_continues_from_the_donor_with_its_own_values(run_dir):
    scheduler = Scripted({(1, 200): [Decision(1, Intervention.COPY, 0, {GAMMA: 0.99})]})
    search = run(search_of(run_dir, scheduler=scheduler))
    (copied,) = events(run_dir, Copied)
    assert (copied.trial, copied.donor, copied.params) == (1, 0, {GAMMA: 0.99})
    state = search.study_state.trials[1]
    assert (state.status, state.donor, state.copies) == (Status.FINISHED, 0, 1)
    assert state.score == pytest.approx(0.99 * MAX_FRAME)
    (spec,) = json.loads(run_dir.trial_spec_file(1).read_text()).values()
    assert spec["agent"]["algorithm"]["gamma"] == 0.99
    assert set(search.slots.stopped) == {1}


def test_without_a_donor_checkpoint_a_trial_continues_from_its_own(
    run_dir, monkeypatch
):
    monkeypatch.setattr(module, "copy_checkpoints", lambda *args: None)
    scheduler = Scripted({(1, 200): [Decision(1, Intervention.COPY, 0, {GAMMA: 0.99})]})
    search = run(search_of(run_dir, scheduler=scheduler))
    (copied,) = events(run_dir, Copied)
    assert (copied.donor, copied.frame) == (1, 200)
    assert (1, True, 200) in search.slots.began


@pytest.mark.parametrize("what", Intervention)
def test_a_trial_that_ends_with_its_last_row_is_ended_once(run_dir, what):
    # Schedulers stop what has reached max_t, which is the end of its budget.
    decision = Decision(1, what, donor=0, params={GAMMA: 0.99})
    scheduler = Scripted({(1, MAX_FRAME): [decision]})
    pool = FakePool(score_at)
    pool.late = {1: (MAX_FRAME, Ending.FINISHED)}
    searcher = Listed(FOUR)
    search = run(search_of(run_dir, searcher=searcher, scheduler=scheduler, pool=pool))
    assert [e.status for e in events(run_dir, Ended) if e.trial == 1] == [
        Status.FINISHED
    ]
    ends = [call for call in searcher.calls if call[0] == 1 and len(call) == 2]
    assert ends == [(1, pytest.approx(300))]
    state = search.study_state.trials[1]
    assert (state.seconds, state.params, state.copies) == (1, FOUR[1], 0)


def test_a_trial_that_is_to_pause_does_so_though_its_report_has_its_end(run_dir):
    # It saves because the search is stopped; its last row makes it wait for others.
    scheduler = Scripted({(1, 200): [Decision(1, Intervention.PAUSE)]})
    scheduler.held = {1}
    pool = FakePool(score_at)
    pool.late = {1: (200, Ending.INTERRUPTED)}
    search = search_of(run_dir, scheduler=scheduler, pool=pool)
    scheduler.choose = lambda waiting: next(
        (t for t in waiting if t != 1 or 1 not in began(run_dir)), None
    )
    search.run(
        lambda: search.stop() if search.study_state.trials[0].frame == 200 else None
    )
    assert search.study_state.trials[1].frame == 200
    assert statuses(search)[1] == "paused"


def test_a_trial_that_another_ends_while_it_is_ending_is_ended_once(run_dir):
    # Both processes end at once: the one that was to pause, and the last that it waited
    # for.
    scheduler = Scripted(
        {
            (1, 200): [Decision(1, Intervention.PAUSE)],
            (0, 300): [Decision(1, Intervention.STOP)],
        }
    )
    pool = FakePool(score_at)
    pool.late = {0: (300, Ending.FINISHED)}
    search = run(search_of(run_dir, scheduler=scheduler, pool=pool))
    assert [e.status for e in events(run_dir, Ended) if e.trial == 1] == [
        Status.STOPPED
    ]
    assert began(run_dir).count(1) == 1
    assert search.study_state.trials[1].seconds == 1


@pytest.mark.parametrize(
    ("what", "status"),
    [(Intervention.STOP, Status.STOPPED), (Intervention.PAUSE, Status.FINISHED)],
)
def test_a_trial_that_fails_after_a_decision_follows_the_decision(
    run_dir, what, status
):
    # The scheduler has ended it, and would accept no more reports of it.
    scheduler = Scripted({(1, 200): [Decision(1, what)]})
    pool = FakePool(score_at, faults={1: Fault(200)})
    search = run(search_of(run_dir, scheduler=scheduler, pool=pool))
    assert search.study_state.trials[1].status is status
    if what is Intervention.STOP:
        assert began(run_dir).count(1) == 1


@pytest.mark.parametrize("cpus", [1, 2, 3])
@pytest.mark.parametrize("taker", [0, 1])
def test_a_copy_is_what_the_donor_saves_when_it_pauses(
    run_dir, cpus, taker, monkeypatch
):
    donor, seen = 2, []

    def copy(run_dir, spec, donor, trial):
        seen.append((donor in search.slots.running, trial in search.slots.running))
        return copy_rows(run_dir, spec, donor, trial)

    monkeypatch.setattr(module, "copy_checkpoints", copy)
    decisions = [
        Decision(donor, Intervention.PAUSE),
        Decision(taker, Intervention.COPY, donor, {GAMMA: 0.99}),
    ]
    script = {
        (0, 200): [Decision(0, Intervention.PAUSE)],
        (1, 200): [Decision(1, Intervention.PAUSE)],
    }
    scheduler = Scripted({**script, (donor, 200): decisions})
    scheduler.choose = lambda waiting: next(
        (t for t in waiting if donor in began(run_dir) or t not in began(run_dir)), None
    )
    search = search_of(run_dir, scheduler=scheduler, pool=FakePool(score_at, cpus=cpus))
    run(search)
    assert seen == [(False, False)]
    (copied,) = events(run_dir, Copied)
    assert (copied.trial, copied.donor) == (taker, donor)
    assert set(statuses(search).values()) == {"finished"}
    assert_whole(run_dir, 4)
