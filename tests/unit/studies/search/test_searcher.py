"""What proposes the points of a search."""

import json
import random
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest

from slm_lab.core.errors import MissingExtraError
from slm_lab.spec.search import NOT_OF_SEARCHER, Dimension
from slm_lab.studies.search.searcher import (
    GridRandomSearcher,
    build_searcher,
)
from slm_lab.studies.search.space import Space
from tests.unit.studies.search.small import (
    GAMMA,
    LAYERS,
    RATE,
    assert_drawn,
    searched,
)

LAM = "agent.algorithm.lam"
SEARCHERS = ["random", "optuna", "hyperopt"]
SPACE = {
    f"{GAMMA}__uniform": [0.9, 0.99],
    f"{RATE}__loguniform": [1e-4, 1e-2],
    "env.num_envs__qrandint": [2, 8, 2],
    "agent.algorithm.training_epoch__randint": [1, 5],
    f"{LAYERS}__choice": [[8], [16, 16], [32]],
}


def searcher_for(name, search=SPACE, seed=0, max_trial=12):
    if name != "random":
        pytest.importorskip(name)
    spec = searched(search, meta__search_alg=name, meta__max_trial=max_trial)
    return build_searcher(Space(spec), spec.meta, seed)


def score_of(params):
    return -abs(params[GAMMA] - 0.95) - abs(np.log10(params.get(RATE, 1e-3)) + 3)


def proposals(searcher, count, *, fails=(), reports=True):
    """The points of `count` trials, of which each ends before the next is proposed."""
    points = []
    for trial in range(count):
        points.append(dict(searcher.propose(trial)))
        if reports:
            for number in (1, 2):
                searcher.report(trial, number, score_of(points[-1]) - 1 / number)
            searcher.end(trial, None if trial in fails else score_of(points[-1]))
    return points


GRID = {
    f"{GAMMA}__grid_search": [0.9, 0.95, 0.99],
    f"{LAYERS}__grid_search": [[8], [16, 16]],
}


def key(params):
    return json.dumps(params, sort_keys=True)


@pytest.mark.parametrize("max_trial", [1, 4, 6, 100])
def test_a_grid_is_visited_once_whatever_max_trial_says(max_trial):
    searcher = searcher_for("random", GRID, max_trial=max_trial)
    assert searcher.num_trials == 6
    points = proposals(searcher, 6)
    wanted = [
        {GAMMA: g, LAYERS: n} for g, n in product([0.9, 0.95, 0.99], [[8], [16, 16]])
    ]
    assert Counter(map(key, points)) == Counter(map(key, wanted))


@pytest.mark.parametrize(("max_trial", "rounds"), [(1, 1), (6, 1), (7, 2), (18, 3)])
def test_a_grid_with_something_to_draw_is_visited_in_whole_rounds(max_trial, rounds):
    search = {**GRID, f"{LAM}__uniform": [0.9, 0.95]}
    searcher = searcher_for("random", search, max_trial=max_trial)
    assert searcher.num_trials == 6 * rounds
    points = proposals(searcher, searcher.num_trials)
    on_grid = [
        key({path: params[path] for path in (GAMMA, LAYERS)}) for params in points
    ]
    for first in range(0, 6 * rounds, 6):
        assert len(set(on_grid[first : first + 6])) == 6
    assert len({params[LAM] for params in points}) == 6 * rounds
    assert all(0.9 <= params[LAM] <= 0.95 for params in points)


@pytest.mark.parametrize("more", [2, 40])
def test_more_trials_do_not_change_the_first(more):
    few, many = (
        searcher_for("random", max_trial=2),
        searcher_for("random", max_trial=2 + more),
    )
    assert proposals(few, 2) == proposals(many, 2)


NARROW = {
    "uniform": [0.5, 0.75],
    "quniform": [0.5, 0.75, 0.25],
    "loguniform": [0.5, 0.75],
    "qloguniform": [0.5, 0.75, 0.25],
    "randint": [1, 3],
    "qrandint": [2, 4, 2],
    "lograndint": [1, 3],
    "qlograndint": [2, 4, 2],
    "normal": [0.9, 1e-3],
    "randn": [0.9, 1e-3],
    "qrandn": [0.9, 1e-3, 0.001],
}
"""Arguments of each sampler with few values, so that the ends are drawn."""


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize("sampler", NARROW)
def test_a_searcher_samples_from_every_sampler(name, sampler):
    if sampler in NOT_OF_SEARCHER.get(name, ()):
        pytest.skip(f"{name} has no {sampler}, and a spec that asks for it is refused")
    path = "agent.algorithm.training_epoch" if "int" in sampler else GAMMA
    searcher = searcher_for(name, {f"{path}__{sampler}": NARROW[sampler]}, max_trial=24)
    dimension = Dimension("", path, sampler, NARROW[sampler])
    drawn = set()
    for trial in range(24):
        (value,) = searcher.propose(trial).values()
        assert_drawn(dimension, value)
        drawn.add(value)
        searcher.end(trial, float(value))
    assert len(drawn) > 1


@pytest.mark.parametrize("name", SEARCHERS)
def test_the_same_seed_and_history_make_the_same_proposals(name):
    first = proposals(searcher_for(name, seed=3), 12, fails=(2, 7))
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002 - as what it must not depend on
    assert proposals(searcher_for(name, seed=3), 12, fails=(2, 7)) == first
    assert proposals(searcher_for(name, seed=4), 12, fails=(2, 7)) != first


@pytest.mark.parametrize("name", SEARCHERS[1:])
def test_a_searcher_adapts_to_reports(name):
    count = 30  # hyperopt draws the first twenty at random
    with_reports = proposals(searcher_for(name, max_trial=count), count)
    without_reports = proposals(
        searcher_for(name, max_trial=count), count, reports=False
    )
    assert with_reports != without_reports


@pytest.mark.parametrize("name", SEARCHERS)
@pytest.mark.parametrize(
    "values",
    [
        [[8], [16, 16], [8, 8, 8]],
        [{"name": "Adam", "lr": 0.1}, {"name": "SGD"}],
        [None, 1],
    ],
)
def test_a_choice_of_lists_or_blocks_is_returned_unchanged(name, values):
    path = {
        list: LAYERS,
        dict: "agent.net.optim_spec",
        type(None): "agent.net.clip_grad_val",
    }
    searcher = searcher_for(
        name, {f"{path[type(values[0])]}__choice": values}, max_trial=16
    )
    drawn = [value for trial in range(16) for value in searcher.propose(trial).values()]
    assert {key(value) for value in drawn} == {key(value) for value in values}


@pytest.mark.parametrize("name", SEARCHERS[1:])
def test_a_missing_searcher_package_is_reported_with_its_install_command(
    name, monkeypatch
):
    monkeypatch.setitem(sys.modules, name, None)
    spec = searched(SPACE, meta__search_alg=name)
    with pytest.raises(
        MissingExtraError, match=rf'pip install "slm-lab\[{name}\]"'
    ) as caught:
        build_searcher(Space(spec), spec.meta, 0)
    assert str(caught.value).startswith(f"meta.search_alg = {name}")


def test_a_seed_of_any_size_is_accepted():
    space = Space(searched(SPACE))
    one, other = (GridRandomSearcher(space, 1, 2**40 + 1) for _ in range(2))
    assert one.propose(0) == other.propose(0)
