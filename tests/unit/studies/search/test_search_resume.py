"""A search that is stopped or killed at any moment resumes, and nothing is lost."""

import pytest

from slm_lab.records import event_log as record_module
from slm_lab.records.event_log import Copied, Ended, Interrupted, Proposed, Reported
from slm_lab.spec.schema.scheduler import (
    AshaSpec,
    HyperBandSpec,
    MedianStoppingSpec,
    PbtSpec,
)
from slm_lab.storage.run_dir import FOLDERS, RunDir
from slm_lab.studies.search.population import Population
from slm_lab.studies.search.scheduler import NoScheduler, tune_scheduler
from slm_lab.studies.search.searcher import GridRandomSearcher, build_searcher
from slm_lab.studies.search.space import Space
from tests.unit.storage.disk import Killed
from tests.unit.studies.search.fake_pool import FakePool, Fault, Listed
from tests.unit.studies.search.played import (
    FOUR,
    MAX_FRAME,
    SEARCH,
    assert_whole,
    base_once,
    events,
    points,
    run,
    score_at,
    search_of,
    statuses,
)
from tests.unit.studies.search.small import searched

pytestmark = pytest.mark.usefixtures("quickly")


def test_after_a_stop_running_trials_save_and_later_resume(run_dir):
    search = search_of(run_dir)
    search.run(
        lambda: search.stop() if search.study_state.trials[0].frame == 200 else None
    )
    assert statuses(search) == {0: "waiting", 1: "waiting"}
    assert [event.trial for event in events(run_dir, Interrupted)] == [0, 1]
    assert not search.study_state.is_over
    again = run(search_of(run_dir))
    assert again.slots.began[:2] == [(0, True, 200), (1, True, 200)]
    assert set(statuses(again).values()) == {"finished"}
    assert again.study_state.trials[0].seconds == 2
    assert_whole(run_dir, 4)


def test_a_trial_that_fails_while_the_search_is_stopped_is_not_given_up(run_dir):
    pool = FakePool(score_at, faults={0: Fault(200, 1)})
    search = search_of(run_dir, pool=pool, meta__max_restart=0)
    search.run(
        lambda: search.stop() if search.study_state.trials[0].frame == 200 else None
    )
    assert statuses(search)[0] == "waiting"
    again = run(search_of(run_dir))
    assert set(statuses(again).values()) == {"finished"}


def test_a_stop_while_trials_begin_reaches_all_of_them(run_dir):
    class Interrupting(FakePool):
        """A signal arrives while the first trial is being started."""

        def start(self, trial, task, request):
            if not self.began:
                search.stop()
            super().start(trial, task, request)

    search = search_of(run_dir, pool=Interrupting(score_at, cpus=4))
    search.run(lambda: None)
    assert "finished" not in statuses(search).values()


def test_nothing_is_left_running_when_something_is_raised(run_dir):
    search = search_of(run_dir)

    def on_tick():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search.run(on_tick)
    assert not search.slots.running
    assert sorted(search.slots.killed) == [0, 1]
    run(search_of(run_dir))
    assert_whole(run_dir, 4)


def test_a_resumed_search_may_have_fewer_trials(run_dir):
    space = Space(searched(SEARCH))
    search = search_of(
        run_dir,
        searcher=GridRandomSearcher(space, 4, 0),
        pool=FakePool(score_at, cpus=4),
    )
    search.run(search.stop)
    assert len(search.study_state.trials) == 4
    again = run(search_of(run_dir, searcher=GridRandomSearcher(space, 2, 0)))
    assert len(again.study_state.trials) == 4
    assert again.study_state.is_over


def test_a_resumed_search_may_have_more_trials(run_dir):
    space = Space(searched(SEARCH))
    run(search_of(run_dir, searcher=GridRandomSearcher(space, 2, 0)))
    again = run(search_of(run_dir, searcher=GridRandomSearcher(space, 4, 0)))
    assert again.slots.began == [(2, False, 0), (3, False, 0)]
    assert not again.has_strayed
    assert_whole(run_dir, 4)


def test_a_searcher_with_differing_proposals_is_reported_and_the_log_wins(run_dir):
    search = search_of(run_dir, pool=FakePool(score_at, cpus=1))
    search.run(search.stop)
    again = run(search_of(run_dir, searcher=Listed(points(0.5, 0.5, 0.5, 0.5))))
    assert again.has_strayed
    assert again.study_state.trials[0].params == FOUR[0]


TRIALS = 4
SPECS = {
    "no_scheduler": None,
    "asha": AshaSpec(grace_period=100, reduction_factor=2),
    "median": MedianStoppingSpec(grace_period=200, min_samples_required=1),
    "hyperband": HyperBandSpec(grace_period=100, reduction_factor=2),
    "pbt": PbtSpec(perturbation_interval=200, quantile_fraction=0.4),
}


def new_search(run_dir, scheduler, cpus=2):
    """A search as a fresh process has it."""
    space, spec = Space(base_once({})), SPECS[scheduler]
    if spec is None:
        scheduler = NoScheduler()
    elif isinstance(spec, PbtSpec):
        scheduler = Population(spec, space.dimensions, MAX_FRAME, 1)
    else:
        scheduler = tune_scheduler(spec, MAX_FRAME, 1)
    pool = FakePool(
        score_at, cpus, {1: Fault(200, 1), 2: Fault(300, 9, would_repeat=True)}
    )
    return search_of(
        run_dir,
        searcher=GridRandomSearcher(space, TRIALS, 3),
        scheduler=scheduler,
        pool=pool,
    )


def run_to(search, count, monkeypatch, after=True):
    """Runs a search that dies when it writes its `count`-th event, before or after
    that."""
    write, seen = record_module.EventLog.write, [0]

    def writing(self, event):
        seen[0] += 1
        if seen[0] == count and not after:
            raise Killed
        write(self, event)
        if seen[0] == count:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(record_module.EventLog, "write", writing)
        run(search)


def killed_at(run_dir, scheduler, count, after, monkeypatch):
    """Whether a search died at its `count`-th event; False where there are not so
    many."""
    try:
        run_to(new_search(run_dir, scheduler), count, monkeypatch, after)
    except Killed:
        return True
    return False


def point_of(run_dir):
    return {event.trial: event.params for event in events(run_dir, Proposed)}


def fresh(tmp_path, name):
    folder = tmp_path / name
    for part in FOLDERS:
        (folder / part).mkdir(parents=True)
    return RunDir(folder, "small")


@pytest.mark.medium
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("scheduler", SPECS)
def test_a_search_that_is_killed_at_any_event_continues_and_loses_nothing(
    tmp_path, scheduler, after, monkeypatch
):
    whole = fresh(tmp_path, "whole")
    run(new_search(whole, scheduler))
    assert_whole(whole, TRIALS)
    for count in range(1, 10_000):
        run_dir = fresh(tmp_path, f"at_{count}")
        if not killed_at(run_dir, scheduler, count, after, monkeypatch):
            break
        over = {event.trial for event in events(run_dir, Ended)}
        again = run(new_search(run_dir, scheduler))
        assert_whole(run_dir, TRIALS)
        assert over.isdisjoint(trial for trial, *_ in again.slots.began)
        assert point_of(run_dir) == point_of(whole)
        assert not again.has_strayed
        frames = {}
        for event in events(run_dir, (Reported, Copied)):
            last = frames.get(event.trial, 0)
            assert isinstance(event, Copied) or event.frame > last
            frames[event.trial] = event.frame
    assert count > 5 * TRIALS


@pytest.mark.parametrize("scheduler", SPECS)
def test_a_search_that_is_killed_repeatedly_ends(tmp_path, scheduler, monkeypatch):
    run_dir = fresh(tmp_path, "again")
    kills = 0
    while killed_at(run_dir, scheduler, 9, True, monkeypatch):
        kills += 1
        assert kills < 200
    assert kills > 2
    assert_whole(run_dir, TRIALS)


@pytest.mark.medium
@pytest.mark.parametrize("alg", ["optuna", "hyperopt"])
def test_a_resumed_searcher_repeats_its_proposals(tmp_path, alg, monkeypatch):
    pytest.importorskip(alg)

    def search():
        changes = {
            "meta__search_alg": alg,
            "meta__max_trial": 26,
            "env__max_frame": 200,
        }
        spec = base_once(changes)
        searcher = build_searcher(Space(spec), spec.meta, 3)
        return search_of(run_dir, searcher=searcher, **changes)

    for count in (20, 60, 110, 125):  # hyperopt draws the first twenty at random
        run_dir = fresh(tmp_path, f"at_{count}")
        with pytest.raises(Killed):
            run_to(search(), count, monkeypatch)
        again = run(search())
        assert not again.has_strayed
        assert_whole(run_dir, 26)


@pytest.mark.parametrize("scheduler", ["no_scheduler", "asha", "median", "hyperband"])
def test_a_search_ends_the_same_whenever_it_was_stopped_between_two_looks(
    tmp_path, scheduler
):
    def outcome(search):
        state = search.study_state.trials.values()
        return {each.trial: (each.status, each.params) for each in state}

    whole = outcome(run(new_search(fresh(tmp_path, "whole"), "no_scheduler")))
    for tick in range(1, 6):
        run_dir = fresh(tmp_path, f"at_{tick}")
        search, ticks = new_search(run_dir, scheduler), []

        def on_tick(search=search, ticks=ticks, tick=tick):
            ticks.append(1)
            if len(ticks) == tick:
                search.stop()

        search.run(on_tick)
        again = run(new_search(run_dir, scheduler))
        assert_whole(run_dir, TRIALS)
        found = outcome(again)
        assert {t: params for t, (_, params) in found.items()} == {
            t: params for t, (_, params) in whole.items()
        }
        if scheduler == "no_scheduler":
            assert found == whole
