"""What a run records of the world."""

import functools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.recorded import MOST_VALUES, differences, recordable
from slm_lab.spec.limits import JSON_VALUES, MOST_KEYS, check_text, nodes
from slm_lab.spec.read import read_file

CYCLE = []
CYCLE.append(CYCLE)


class Unshown:
    def __repr__(self):
        raise OSError("no")


HOSTILE = {
    "infinite": math.inf,
    "not a number": [math.nan, -math.inf],
    "table": [[float(i)] * 5 for i in range(60_000)],
    "keys": {f"key_{i}": i for i in range(500)},
    "tuples": {(0, 1): "wall", None: (1, {2})},
    "surrogate": ["a\udcff", {"\ud800": "\udfff"}],
    "control": "\x1b[2J\x00\r",
    "functions": [len, functools.partial(len, []), lambda: 0, Unshown],
    "cycle": CYCLE,
    "array": np.zeros((1000, 1000)),
    "arrays": [np.arange(3), np.array(2), np.array([object()]), np.array([math.nan])],
    "scalars": [np.float32(0.5), np.longdouble(1), np.bool_(True), np.int64(-1)],
    "large": [10**5000, -(2**63), 2**64],
    "unshown": Unshown(),
    "bytes": b"\xff" * 100_000,
    "text": "x" * 1_000_000,
    "key": {"k" * 10_000: 1},
}


def test_values_that_json_has_are_recorded_as_they_are():
    plain = {"a": [1, 2.5, None, True, "text"], "b": {"c": -3}}
    assert recordable(plain) == plain
    assert recordable(np.arange(3)) == [0, 1, 2]
    assert recordable({(0, 1): len}) == {"(0, 1)": "builtins.len"}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_recorded_of_any_object_can_be_read_as_a_spec_file(tmp_path, name):
    recorded = recordable(HOSTILE[name])
    file = tmp_path / "spec.json"
    file.write_text(json.dumps({"_run": {"value": recorded}}, indent=2))
    assert file.stat().st_size < 500_000
    assert read_file(file) == {"_run": {"value": recorded}}
    assert len(list(nodes(recorded))) <= 2 * MOST_VALUES


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary(),
    lambda tree: (
        st.lists(tree) | st.dictionaries(st.text() | st.integers() | st.floats(), tree)
    ),
)


@given(TREES)
def test_a_record_is_json_of_bounded_size_and_does_not_change_when_recorded_again(tree):
    recorded = recordable(tree)
    json.dumps(recorded, allow_nan=False).encode()
    check_text({"record": recorded}, "here")
    assert recordable(recorded) == recorded


def test_the_bounds_of_records_are_within_those_of_the_readers():
    many = recordable({i: dict.fromkeys(range(1000), 0) for i in range(1000)})
    found = [value for _, value in nodes(many)]
    assert len(found) < JSON_VALUES
    assert max(len(value) for value in found if isinstance(value, dict)) <= MOST_KEYS


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text("xyz", max_size=3)
    | st.lists(st.integers(), max_size=3)
)
nested = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), leaves, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner | leaves, max_size=3),
    max_leaves=10,
)


@given(nested, nested)
def test_differences_read_backwards_have_old_and_new_swapped(one, other):
    forward, backward = differences(one, other), differences(other, one)
    by_path = sorted((path, repr(new), repr(old)) for path, old, new in backward)
    assert sorted((path, repr(old), repr(new)) for path, old, new in forward) == by_path


@given(nested, nested)
def test_every_difference_names_the_values_found_at_its_path(one, other):
    def at(spec, path):
        for key in path.split("."):
            spec = spec.get(key)
        return spec

    for path, old, new in differences(one, other):
        assert (at(one, path), at(other, path)) == (old, new)
        assert old != new


def test_differences_are_dotted_paths_with_the_old_and_the_new_value():
    old = {
        "agent": {"lr": 1, "same": 2, "gone": 3, "hid": [64, 64]},
        "env": {"name": "a"},
    }
    new = {
        "agent": {"lr": 5, "same": 2, "hid": [64, 32]},
        "env": {"name": "a", "k": {"g": 1}},
    }
    assert differences(old, new) == [
        ("agent.lr", 1, 5),
        ("agent.gone", 3, None),
        ("agent.hid", [64, 64], [64, 32]),
        ("env.k", None, {"g": 1}),
    ]
