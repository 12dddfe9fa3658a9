"""The keyword arguments of an environment, and values that their annotations rule
out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Optional, Union

import gymnasium
import numpy as np
import pytest

from slm_lab.core.errors import SpecError
from slm_lab.env.check import check_env
from slm_lab.env.wrappers import arguments_of
from tests.support import needs

if TYPE_CHECKING:
    from collections.abc import Mapping as OnlyForCheckers


class Corridor(gymnasium.Env):
    """Its annotations are strings, as this module asks for."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self,
        gap: int = 3,
        width: float = 1,
        dark: bool = False,
        label: str = "",
        size: Optional[int] = None,  # noqa: UP045
        speed: Union[int, str] = 1,  # noqa: UP007
        goal: float | None = None,
        sloppy: int = None,  # noqa: RUF013
        sloppier: bool = 0.5,
        kind: Literal["a", "b"] = "a",
        shape: int | tuple[int, int] = 1,
        options: OnlyForCheckers[str, int] | None = None,
        free=1,
    ):
        pass


class LongCorridor(Corridor):
    """Passes on unknown arguments, and accepts any width."""

    def __init__(self, width=None, length: int = 9, **kwargs):
        super().__init__(**kwargs)


def evaluated(gap, size=None):
    pass


evaluated.__annotations__ = {"gap": int, "size": int | None}


@pytest.fixture
def refused(env_spec, registered):
    """What is refused of keys for Corridor, by key, after it was registered with
    others."""

    def check(keys, creator=Corridor, **given):
        gymnasium.registry.pop("Corridor-v0", None)
        registered("Corridor-v0", creator, kwargs=given)
        problems = check_env(env_spec("Corridor-v0", kwargs=keys))
        return {
            problem.path.removeprefix("env."): problem.message for problem in problems
        }

    return check


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("gap", "three", "must be a whole number"),
        ("gap", True, "must be a whole number"),
        ("gap", None, "must be a whole number"),
        ("gap", 2.5, "must be a whole number"),
        ("gap", 1e3, "must be a whole number; write 1000"),
        ("gap", [3], "must be a whole number"),
        ("width", "wide", "must be a number"),
        ("width", True, "must be a number"),
        ("dark", 1, "must be true or false"),
        ("dark", "true", "must be true or false"),
        ("label", 3, "must be a string"),
        ("size", "3", "must be a whole number or null"),
        ("speed", 0.5, "must be a whole number or a string"),
        ("goal", {}, "must be a number or null"),
        ("sloppy", "x", "must be a whole number"),
        ("sloppier", "x", "must be true or false"),
    ],
)
def test_a_value_that_an_annotation_rules_out_is_refused(refused, key, value, words):
    assert refused({key: value}) == {key: words}
    assert refused({key: value}, LongCorridor) == (
        {} if key == "width" else {key: words}
    )


@pytest.mark.parametrize(
    "keys",
    [
        {
            "gap": 4,
            "width": 2.5,
            "dark": True,
            "label": "x",
            "size": None,
            "speed": "fast",
        },
        {"width": 2, "size": 3, "speed": 7, "goal": 1},
        {"sloppy": None, "sloppier": 0.7},
        {"kind": 7, "shape": "x", "options": 3, "free": "x"},
    ],
)
@pytest.mark.parametrize("creator", [Corridor, LongCorridor])
def test_a_value_that_may_be_good_is_accepted(refused, keys, creator):
    assert refused(keys, creator) == {}


def test_a_value_of_the_type_that_an_id_is_registered_with_is_good(refused):
    assert refused({"gap": "wide"}, gap="narrow") == {}
    assert refused({"gap": None}, gap="narrow") == {"gap": "must be a whole number"}


def test_annotations_that_are_no_strings_count_as_well(refused):
    assert refused({"gap": "three", "size": 1.5}, evaluated) == {
        "gap": "must be a whole number",
        "size": "must be a whole number or null",
    }


def test_keys_and_values_are_reported_together(refused):
    assert list(refused({"gpa": 3, "gap": "three"})) == ["gpa", "gap"]


@pytest.mark.parametrize(
    ("name", "keys", "key"),
    [
        ("CartPole-v1", {"sutton_barto_reward": "yes"}, "sutton_barto_reward"),
        pytest.param(
            *("FrozenLake-v1", {"is_slippery": "no"}, "is_slippery"),
            marks=needs("gymnasium", "1.3"),  # whose arguments have types
        ),
    ],
)
@pytest.mark.parametrize("mode", [None, "sync"])
def test_environments_of_gymnasium_are_compared_as_well(
    env_spec, build, name, keys, key, mode
):
    (problem,) = check_env(env_spec(name, kwargs=keys, vectorization_mode=mode))
    assert (problem.path, problem.message) == (f"env.{key}", "must be true or false")
    with pytest.raises(SpecError, match="must be true or false"):
        build(name, kwargs=keys, vectorization_mode=mode)


def test_arguments_passed_on_to_a_base_class_are_accepted():
    class Base:
        def __init__(self, size, **kwargs):
            pass

    class Closed(Base):
        def __init__(self, colour="red"):
            pass

    class Passing(Closed):
        def __init__(self, speed=1, **kwargs):
            pass

    def function(width, **kwargs):
        pass

    def taken(creator):
        arguments = arguments_of(creator)
        return set(arguments.named), arguments.open_ended

    assert taken(Passing) == ({"speed", "colour"}, False)
    assert taken(Closed) == ({"colour"}, False)
    assert taken(Base) == ({"size"}, True)
    assert taken(function) == ({"width"}, True)
    assert taken(gymnasium.Env) == (set(), False)
