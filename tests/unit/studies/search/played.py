"""Searches with simulated trials, and their results."""

from collections import Counter

from slm_lab.records.event_log import (
    Began,
    Copied,
    Ended,
    EventLog,
    Interrupted,
    Paused,
    Proposed,
    Retried,
)
from slm_lab.studies.search.agenda import SearchAgenda
from slm_lab.studies.search.scheduler import NoScheduler, Scheduler
from slm_lab.studies.search.space import spec_at
from slm_lab.studies.study import Study
from tests.unit.studies.search.fake_pool import FakePool, Listed
from tests.unit.studies.search.small import GAMMA, searched

MAX_FRAME = 500
SEARCH = {f"{GAMMA}__uniform": [0.5, 0.99]}

SPECS_MADE = {}
"""Specs by what they are made of: the same few are made hundreds of times."""


def spec_once(base, params):
    key = (id(base), str(params))  # the bases are kept here as well
    if key not in SPECS_MADE:
        SPECS_MADE[key] = spec_at(base, params)
    return SPECS_MADE[key]


def base_once(changes):
    key = str(changes)
    if key not in SPECS_MADE:
        SPECS_MADE[key] = searched(SEARCH, **{"env__max_frame": MAX_FRAME, **changes})
    return SPECS_MADE[key]


def score_at(spec, frame):
    """The nearer gamma is to one, the better; later more than early."""
    return frame * spec.agent.algorithm.gamma


def points(*gammas):
    return [{GAMMA: gamma} for gamma in gammas]


FOUR = points(0.9, 0.6, 0.8, 0.7)


def search_of(
    run_dir, *, searcher=None, scheduler=None, pool=None, keep=None, **changes
):
    spec = base_once(changes)
    pool = FakePool(score_at) if pool is None else pool
    searcher = Listed(FOUR) if searcher is None else searcher
    agenda = SearchAgenda(
        spec=spec,
        run_dir=run_dir,
        root_seed=0,
        searcher=searcher,
        scheduler=NoScheduler() if scheduler is None else scheduler,
        cores=pool.resources.cpus,
        keep=keep,
    )
    return Study(agenda, pool, EventLog(run_dir.event_log_file))


def run(search, ticks=10_000):
    """Runs it to its end, which it must reach."""
    left = [ticks]

    def on_tick():
        left[0] -= 1
        assert left[0], "the search does not end"

    search.run(on_tick)
    return search


def events(run_dir, kind=None):
    found = list(EventLog(run_dir.event_log_file).read())
    return [each for each in found if kind is None or isinstance(each, kind)]


def began(run_dir):
    return [event.trial for event in events(run_dir, Began)]


def statuses(search):
    return {
        trial: str(state.status) for trial, state in search.study_state.trials.items()
    }


class Scripted(Scheduler):
    """Gives the decisions of a script, each once, at a trial's frame."""

    def __init__(self, decisions, needs_all=False):
        self.decisions, self.needs_all = dict(decisions), needs_all
        self.held = set()

    def report(self, trial, frame, score):
        return self.decisions.pop((trial, frame), [])

    def choose(self, waiting):
        free = [trial for trial in waiting if trial not in self.held]
        return free[0] if free else None


def assert_whole(run_dir, trials):
    """Asserts that every trial was proposed and ended once, and none began after its
    end."""
    found = events(run_dir)
    assert Counter(e.trial for e in found if isinstance(e, Proposed)) == Counter(
        range(trials)
    )
    assert Counter(e.trial for e in found if isinstance(e, Ended)) == Counter(
        range(trials)
    )
    over, running = set(), set()
    for event in found:
        assert event.trial not in over
        if isinstance(event, Began):
            assert event.trial not in running
            running.add(event.trial)
        if isinstance(event, Paused | Copied | Retried | Interrupted | Ended):
            running.discard(event.trial)
        if isinstance(event, Ended):
            over.add(event.trial)
    assert not running
