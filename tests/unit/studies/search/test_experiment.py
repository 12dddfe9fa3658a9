"""A search with simulated trials: which begins, how failures are handled, what is
kept."""

import json

import pytest

from slm_lab.core.errors import LabError
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import Began, Reported, Retried
from slm_lab.studies.search import agenda as module
from tests.unit.studies.search.fake_pool import FakePool, Fault, Listed
from tests.unit.studies.search.played import (
    FOUR,
    MAX_FRAME,
    Scripted,
    began,
    events,
    points,
    run,
    score_at,
    search_of,
    statuses,
)
from tests.unit.studies.search.small import GAMMA

pytestmark = pytest.mark.usefixtures("quickly")


def test_trials_run_in_order_when_they_fit(run_dir):
    search = run(search_of(run_dir))
    assert search.slots.began == [(t, False, 0) for t in range(4)]
    assert set(statuses(search).values()) == {"finished"}
    assert began(run_dir) == [0, 1, 2, 3]
    assert search.study_state.is_over
    assert not search.slots.running


@pytest.mark.parametrize("cpus", [1, 2, 3, 8])
def test_only_trials_that_fit_run_at_a_time(run_dir, cpus):
    search, most = search_of(run_dir, pool=FakePool(score_at, cpus)), []
    search.run(lambda: most.append(len(search.slots.running)))
    assert max(most) <= cpus
    assert len(search.slots.began) == 4


def test_a_trial_is_proposed_when_it_can_begin(run_dir):
    # A searcher uses the ended trials for its next proposal.
    search = search_of(run_dir, pool=FakePool(score_at, cpus=1))
    run(search)
    kinds = [
        (type(e).__name__, e.trial)
        for e in events(run_dir)
        if not isinstance(e, Reported)
    ]
    one = lambda t: [("Proposed", t), ("Began", t), ("Ended", t)]  # noqa: E731
    assert kinds == [each for trial in range(4) for each in one(trial)]


def test_the_searcher_receives_every_report_and_every_end(run_dir):
    searcher = Listed(FOUR[:1])
    state = run(search_of(run_dir, searcher=searcher)).study_state.trials[0]
    assert (state.frame, state.reports, state.seconds) == (MAX_FRAME, 5, 1)
    assert state.score == state.metrics["strength"] == pytest.approx(450)
    assert searcher.calls[:-1] == [(0, k, pytest.approx(90 * k)) for k in range(1, 6)]
    assert searcher.calls[-1] == (0, pytest.approx(450))


def test_every_trial_has_a_spec_file_that_can_be_run_alone(run_dir):
    run(search_of(run_dir))
    for trial, params in enumerate(FOUR):
        (spec,) = json.loads(run_dir.trial_spec_file(trial).read_text()).values()
        assert spec["agent"]["algorithm"]["gamma"] == params[GAMMA]
        assert "search" not in spec or not spec["search"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_trial_that_failed_continues_where_it_was(run_dir, times):
    pool = FakePool(score_at, cpus=1, faults={1: Fault(200, times)})
    search = run(search_of(run_dir, pool=pool, meta__max_restart=2))
    assert set(statuses(search).values()) == {"finished"}
    tries = [(resumed, frame) for trial, resumed, frame in pool.began if trial == 1]
    assert tries == [(False, 0), *[(True, 200)] * times]
    assert search.study_state.trials[1].restarts == times
    assert [e.frame for e in events(run_dir, Reported) if e.trial == 1] == [
        100,
        200,
        300,
        400,
        500,
    ]


@pytest.mark.parametrize("max_restart", [0, 2])
def test_a_trial_that_fails_too_often_is_listed_with_its_error_and_without_a_score(
    run_dir, max_restart
):
    searcher = Listed(FOUR)
    pool = FakePool(score_at, faults={1: Fault(200, 100, "no memory")})
    search = run(
        search_of(run_dir, searcher=searcher, pool=pool, meta__max_restart=max_restart)
    )
    state = search.study_state.trials[1]
    assert (state.status, state.error, state.score) == (
        Status.FAILED,
        "no memory",
        None,
    )
    assert began(run_dir).count(1) == 1 + max_restart
    assert (1, None) in searcher.calls
    assert {t: s for t, s in statuses(search).items() if t != 1} == dict.fromkeys(
        (0, 2, 3), "finished"
    )


def test_a_failure_that_would_repeat_is_not_retried(run_dir):
    pool = FakePool(score_at, faults={1: Fault(200, 100, "NaN", would_repeat=True)})
    search = run(search_of(run_dir, pool=pool, meta__max_restart=3))
    assert search.study_state.trials[1].status is Status.FAILED
    assert began(run_dir).count(1) == 1
    assert not events(run_dir, Retried)


def test_failed_trials_are_retried_before_others_begin(run_dir):
    pool = FakePool(score_at, cpus=1, faults={0: Fault(200)})
    run(search_of(run_dir, pool=pool))
    assert began(run_dir) == [0, 0, 1, 2, 3]


def test_a_point_that_makes_no_spec_is_listed_as_failed_and_never_begins(run_dir):
    searcher = Listed(points(0.9, 1.5, 0.8))
    search = run(search_of(run_dir, searcher=searcher))
    state = search.study_state.trials[1]
    assert state.status is Status.FAILED
    assert state.error.startswith("agent.algorithm.gamma = 1.5: must be <= 1")
    assert [trial for trial, *_ in search.slots.began] == [0, 2]
    assert (1, None) in searcher.calls


@pytest.mark.parametrize("check_name", ["check_spaces", "check_machine"])
def test_a_trial_that_cannot_run_here_is_listed_as_failed(
    run_dir, monkeypatch, check_name
):
    def check(where, spec):
        if where == "trial 1":
            raise LabError(f"{where} has no actions")

    monkeypatch.setattr(module, check_name, check)
    search = run(search_of(run_dir))
    assert search.study_state.trials[1].error == "trial 1 has no actions"
    assert [trial for trial, *_ in search.slots.began] == [0, 2, 3]


def test_a_trial_that_never_has_room_is_listed_as_failed(run_dir):
    search = search_of(run_dir, meta__search_resources={"cpu": 4.0})
    run(search)
    assert set(statuses(search).values()) == {"failed"}
    assert all("cpu = 4" in state.error for state in search.study_state.trials.values())


class ManyFirst(Scripted):
    def __init__(self):
        super().__init__({}, needs_all=True)


def test_a_scheduler_that_needs_all_trials_gets_them_before_the_first_begins(run_dir):
    run(search_of(run_dir, scheduler=ManyFirst()))
    first = next(
        n for n, event in enumerate(events(run_dir)) if isinstance(event, Began)
    )
    assert first == 4


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("keep", [0, 1, 2])
def test_only_the_best_and_those_that_run_keep_their_models(run_dir, keep, cpus):
    pool = FakePool(score_at, cpus, faults={2: Fault(0, 100)})
    search = search_of(run_dir, pool=pool, keep=keep)
    models = {
        t: run_dir.session(t, 0).models / f"small_t{t}_s0_state_000001_5.pt"
        for t in range(4)
    }
    start = pool.start

    def starting(trial, *args, **options):
        models[trial].touch()
        start(trial, *args, **options)

    pool.start = starting
    search.run(lambda: [models[trial].stat() for trial in pool.running])
    assert [t for t, model in models.items() if model.exists()] == [0, 3][:keep]
