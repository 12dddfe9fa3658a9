"""The space of a search: what is drawn, and the specs that are made of it."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.core.errors import SpecError
from slm_lab.spec.parse import parse as parse_raw
from slm_lab.spec.search import (
    ALL_SAMPLERS,
    LISTS,
    SAMPLERS,
    Dimension,
)
from slm_lab.studies.search.space import (
    OF_SEARCH,
    Space,
    check_has_search,
    draw,
    mutate,
    spec_at,
)
from tests.support import parse, ppo
from tests.unit.studies.search.small import (
    ARGUMENTS,
    GAMMA,
    LAYERS,
    RATE,
    assert_drawn,
    lists,
    numbers,
    searched,
)

SEEDS = st.integers(0, 2**32 - 1)
ANY = st.one_of(numbers(), lists())


def test_every_sampler_is_tried_here():
    assert set(ARGUMENTS) == set(SAMPLERS)
    assert {*SAMPLERS, *LISTS} == set(ALL_SAMPLERS)


@given(ANY, SEEDS)
@settings(max_examples=300)
def test_samples_have_the_type_and_stay_within_the_bounds(dimension, seed):
    rng = np.random.default_rng(seed)
    for _ in range(5):
        assert_drawn(dimension, draw(dimension, rng))


@pytest.mark.parametrize(
    "sampler", ["loguniform", "qloguniform", "lograndint", "qlograndint"]
)
def test_a_base_that_tune_no_longer_uses_is_taken_without_a_warning(sampler):
    arguments = [2, 64, 2] if sampler.startswith("q") else [2, 64]
    dimension = Dimension("", "a.x", sampler, [*arguments, 10])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = draw(dimension, np.random.default_rng(0))
    assert 2 <= value <= 64


@given(numbers(), SEEDS, st.sampled_from([0.1, 0.8, 1.2, 10.0]))
@settings(max_examples=300)
def test_a_changed_number_is_one_that_could_have_been_drawn(dimension, seed, factor):
    rng = np.random.default_rng(seed)
    assert_drawn(dimension, mutate(dimension, draw(dimension, rng), factor, rng))


@given(st.integers(2, 98), st.sampled_from([0.8, 1.2]), st.sampled_from([1, 2]))
def test_a_changed_whole_number_is_another_one(number, factor, q):
    # A share of a small one is less than a step: 2 · 1.2 would be 2 again.
    dimension = Dimension("", "a.x", "qrandint", [q, 100 * q, q])
    after = mutate(dimension, number * q, factor, np.random.default_rng(0))
    assert (after > number * q) if factor > 1 else (after < number * q)


@given(st.lists(st.integers(), min_size=1, max_size=6, unique=True), st.data(), SEEDS)
def test_a_changed_choice_is_a_neighbour_in_the_list(values, data, seed):
    place = data.draw(st.integers(0, len(values) - 1))
    dimension = Dimension("", "a.x", "choice", values)
    after = mutate(dimension, values[place], 1.2, np.random.default_rng(seed))
    assert abs(values.index(after) - place) <= 1
    if 0 < place < len(values) - 1:
        assert after != values[place]


def test_both_neighbours_are_taken():
    dimension = Dimension("", "a.x", "choice", [[8], [16], [32]])
    rng = np.random.default_rng(0)
    assert {mutate(dimension, [16], 1.2, rng)[0] for _ in range(50)} == {8, 32}


def test_numbers_of_numpy_become_plain_ones():
    space = Space(searched({f"{GAMMA}__uniform": [0.9, 0.99]}))
    (value,) = space.params({GAMMA: np.float32(0.5)}).values()
    assert type(value) is float


POINT = st.fixed_dictionaries(
    {
        GAMMA: st.floats(0.5, 0.999),
        RATE: st.floats(1e-5, 1e-1),
        LAYERS: st.lists(st.sampled_from([8, 16]), min_size=1, max_size=3),
        "env.num_envs": st.integers(2, 8),
        "agent.algorithm.entropy_coef_spec.start_val": st.floats(0.011, 0.1),
    }
)
BASE = {
    f"{GAMMA}__uniform": [0.5, 0.999],
    f"{RATE}__loguniform": [1e-5, 1e-1],
    f"{LAYERS}__choice": [[8], [16]],
    "env.num_envs__randint": [2, 9],
    "agent.algorithm.entropy_coef_spec.start_val__uniform": [0.011, 0.1],
}
META = {
    "meta__max_trial": 7,
    "meta__search_scheduler": {"grace_period": 100},
    "meta__search_resources": {"cpu": 0.5},
    "meta__confirm": {"top": 1, "max_session": 2},
}


def at(data, path):
    for key in path.split("."):
        data = data[key]
    return data


def without(data, paths):
    """The JSON data less the keys at `paths`."""
    found = {}
    for key, value in data.items():
        here = [path[len(key) + 1 :] for path in paths if path.startswith(f"{key}.")]
        if key not in paths:
            found[key] = without(value, here) if here else value
    return found


@given(POINT)
@settings(max_examples=12)
def test_the_spec_of_a_trial_differs_from_the_search_in_the_point_alone(params):
    base = searched(BASE, **META)
    made, given_before = spec_at(base, params).to_json(), base.to_json()
    assert {path: at(made, path) for path in params} == params
    of_search = ["search", *(f"meta.{key}" for key in OF_SEARCH)]
    ours, theirs = (
        without(data, [*params, *of_search]) for data in (made, given_before)
    )
    assert ours == theirs


def test_nothing_of_the_search_is_left_in_the_spec_of_a_trial():
    base = searched(BASE, **META)
    made = spec_at(base, {GAMMA: 0.9})
    default = parse(ppo()).meta
    assert not made.search
    assert {key: getattr(made.meta, key) for key in OF_SEARCH} == {
        key: getattr(default, key) for key in OF_SEARCH
    }
    parsed = parse_raw(made.name, made.to_json())
    assert parsed.spec == made
    assert not parsed.problems


@pytest.mark.parametrize(
    ("path", "value"), [(GAMMA, 1.5), ("agent.algorithm.name.x", 1)]
)
def test_a_value_outside_the_schema_is_refused_at_its_path(path, value):
    base = searched({f"{GAMMA}__uniform": [0.9, 0.99]})
    with pytest.raises(SpecError) as caught:
        spec_at(base, {path: value})
    assert any(path.startswith(problem.path) for problem in caught.value.problems)


def test_a_spec_without_a_search_block_is_no_search():
    with pytest.raises(SpecError, match="search: is missing"):
        check_has_search("demo.json: small", parse(ppo()))
    check_has_search("demo.json: small", searched({f"{GAMMA}__uniform": [0.9, 0.99]}))
