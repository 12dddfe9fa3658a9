"""Any file gives a Spec or a SpecError, never another exception."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slm_lab.core.errors import SpecError
from slm_lab.spec.load import check_file, load_spec, parse_spec
from tests.unit.spec.spec_data import ALL, set_at

WORDS = st.sampled_from(
    [
        "name",
        "type",
        "agent",
        "env",
        "algorithm",
        "net",
        "memory",
        "search",
        "PPO",
        "MLPNet",
        "optim_spec",
        "actor_optim_spec",
        "args",
        "kwargs",
        "gamma__uniform",
        "agent.net",
        "__",
        "",
        "Adam",
        "lr",
        "arc",
        "Sequential",
        "${x}",
        "_",
        "start_val",
        "critic_",
        "actor_type",
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(max_size=5)
    | WORDS
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def paths(tree, path=()):
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from paths(value, (*path, str(key)))
        else:
            yield (*path, str(key))


PLACES = [(name, path) for name, raw in ALL.items() for path in paths(raw) if path]


def only_spec_errors(action, *args):
    try:
        action(*args)
    except SpecError as error:
        caught = error
    else:
        return
    assert caught.problems
    assert all(problem.message for problem in caught.problems)
    assert str(caught)


@pytest.mark.medium
@settings(max_examples=300, **COMMON)
@given(st.dictionaries(WORDS, JSON, max_size=5))
def test_any_json_object_is_a_spec_or_a_spec_error(raw):
    only_spec_errors(parse_spec, "fuzz", raw)


@pytest.mark.medium
@settings(max_examples=600, **COMMON)
@given(st.sampled_from(PLACES), JSON)
def test_any_value_at_any_place_of_a_valid_spec(place, value):
    name, path = place
    raw = copy.deepcopy(ALL[name])
    set_at(raw, list(path), value)
    only_spec_errors(parse_spec, name, raw)


@settings(max_examples=200, **COMMON)
@given(
    JSON,
    st.lists(st.builds("{}={}".format, WORDS | st.text(), JSON.map(str)), max_size=3),
)
def test_any_file_and_any_settings(tmp_path_factory, content, sets):
    path = tmp_path_factory.getbasetemp() / "fuzz.json"
    path.write_text(json.dumps({"s": content}), encoding="utf-8")
    only_spec_errors(load_spec, path, "s", sets)
    only_spec_errors(check_file, path, sets)


@settings(max_examples=200, **COMMON)
@given(st.text(max_size=60), st.sampled_from([".json", ".yaml"]))
def test_any_text_in_a_file(tmp_path_factory, text, suffix):
    path = tmp_path_factory.getbasetemp() / f"fuzz{suffix}"
    path.write_text(text, encoding="utf-8", newline="")
    only_spec_errors(load_spec, path, None)
