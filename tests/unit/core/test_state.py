"""A class lists what a checkpoint holds of it."""

from collections import Counter, defaultdict, deque
from typing import ClassVar

import numpy as np
import pytest
import torch

from slm_lab.core.state import HasState, SavedFields


class Part(SavedFields):
    saved: ClassVar = {"count": "_count"}

    def __init__(self, count=0):
        self._count = count


class Whole(SavedFields):
    saved: ClassVar = {
        "array": "array",
        "rng": "rng",
        "recent": "recent",
        "pieces": "pieces",
        "best": "best",
        "share": "share",
        "part": "part",
        "absent": "absent",
    }

    def __init__(self, seed, has_absent=False):
        self.array = np.full(3, float(seed))
        self.rng = np.random.default_rng(seed)
        self.recent = deque([seed], maxlen=2)
        self.pieces = {seed: [np.arange(seed)]}
        self.best = None if seed == 0 else float(seed)
        self.share = float(seed)
        self.part = Part(seed)
        self.absent = Part(seed) if has_absent else None


def test_an_object_continues_as_the_saved_one():
    saved = Whole(3)
    fresh = Whole(0)
    view = fresh.array[:2]
    part = fresh.part
    fresh.load_state_dict(saved.state_dict())
    assert view.tolist() == [3.0, 3.0]  # in place, as others share or view it
    assert fresh.part is part
    assert fresh.part._count == 3
    assert fresh.rng.random() == saved.rng.random()
    assert (list(fresh.recent), fresh.recent.maxlen) == ([3], 2)
    assert fresh.pieces.keys() == {3}
    assert fresh.best == 3.0


def test_a_state_is_a_copy():
    whole = Whole(2)
    state = whole.state_dict()
    whole.array += 1
    whole.recent.append(5)
    whole.pieces[2].append(None)
    whole.pieces[7] = []
    assert state["array"].tolist() == [2.0] * 3
    assert state["recent"] == [2]
    assert list(state["pieces"]) == [2]
    assert len(state["pieces"][2]) == 1


def test_the_state_of_a_part_that_is_no_longer_there_is_dropped():
    whole = Whole(0)
    whole.load_state_dict(Whole(2, has_absent=True).state_dict())
    assert whole.absent is None


def test_a_number_keeps_its_type():
    whole = Whole(0)
    whole.load_state_dict({**Whole(2).state_dict(), "share": 1})
    assert isinstance(whole.share, float)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("part", None, TypeError),
        ("share", None, TypeError),
        ("array", np.zeros(2), ValueError),
        ("part", {}, KeyError),
    ],
)
def test_a_misshapen_state_raises(key, value, error):
    state = Whole(1).state_dict()
    with pytest.raises(error):
        Whole(1).load_state_dict({**state, key: value})
    del state[key]
    with pytest.raises(KeyError):
        Whole(1).load_state_dict(state)


def test_a_class_without_fields_has_an_empty_state():
    class Stateless(SavedFields):
        pass

    Stateless().load_state_dict(Stateless().state_dict())
    assert Stateless().state_dict() == {}
    with pytest.raises(TypeError, match="abstract"):
        HasState()


def test_a_field_of_another_type_is_refused_when_it_is_saved():
    part = Part(object())
    with pytest.raises(TypeError, match="a object cannot be a saved field"):
        part.state_dict()


class Tensors(SavedFields):
    saved: ClassVar = {
        "vector": "vector",
        "generator": "generator",
        "count": "part._count",
    }
    merged: ClassVar = ("moments", "inner")

    def __init__(self, seed):
        self.vector = torch.full((3,), float(seed), requires_grad=True)
        self.generator = torch.Generator().manual_seed(seed)
        self.moments = {
            "mean": torch.full((2,), float(seed)),
            "step": torch.tensor(seed),
        }
        self.part = Part(seed)
        self.inner = Inner(seed)


class Inner(SavedFields):
    saved: ClassVar = {"parts": "parts", "limit": "limit", "names": "names"}
    optional: ClassVar = ("limit",)

    def __init__(self, seed, limit=None):
        self.parts = [Part(seed), Part(seed + 1)]
        self.limit = limit
        self.names = ("a", "b")
        self.total = 2 * seed + 1

    def after_load(self):
        self.total = sum(part._count for part in self.parts)


def test_tensors_and_their_generators_are_restored_in_place():
    saved = Tensors(3)
    fresh = Tensors(0)
    vector = fresh.vector
    view = vector.detach()[:2]
    moments = dict(fresh.moments)
    fresh.load_state_dict(saved.state_dict())
    assert fresh.vector is vector
    assert view.tolist() == [3.0, 3.0]
    assert moments["mean"].tolist() == [3.0, 3.0]
    assert torch.rand((), generator=fresh.generator) == torch.rand(
        (), generator=saved.generator
    )


def test_the_state_of_a_tensor_is_a_copy_without_a_gradient():
    tensors = Tensors(2)
    state = tensors.state_dict()
    with torch.no_grad():
        tensors.vector += 1
        tensors.moments["mean"] += 1
    assert state["vector"].tolist() == [2.0] * 3
    assert not state["vector"].requires_grad
    assert state["mean"].tolist() == [2.0] * 2


def test_keys_of_merged_parts_are_keys_of_the_state():
    keys = {"mean", "step", "parts", "names", "vector", "generator", "count"}
    assert Tensors(1).state_dict().keys() == keys


def test_a_field_of_a_part_and_a_list_of_parts_are_restored():
    fresh = Tensors(0)
    parts = list(fresh.inner.parts)
    fresh.load_state_dict(Tensors(3).state_dict())
    assert fresh.part._count == 3
    assert [part._count for part in parts] == [3, 4]


def test_another_number_of_parts_is_refused():
    state = Inner(0).state_dict()
    with pytest.raises(ValueError, match="zip"):
        Inner(0).load_state_dict({**state, "parts": state["parts"][:1]})


def test_what_follows_from_the_fields_is_computed_after_a_load():
    fresh = Inner(0)
    fresh.load_state_dict(Inner(4).state_dict())
    assert fresh.total == 9
    assert fresh.names == ("a", "b")


def test_an_optional_key_may_be_missing():
    assert "limit" not in Inner(0).state_dict()
    limited = Inner(0, limit=5)
    assert limited.state_dict()["limit"] == 5
    limited.load_state_dict(Inner(1).state_dict())
    assert limited.limit == 5


class Sparse(SavedFields):
    saved: ClassVar = {"count": "count"}
    merged: ClassVar = ("part",)

    def __init__(self, part=None):
        self.count = 1
        self.part = part


def test_a_merged_part_that_is_not_there_adds_no_key():
    assert Sparse().state_dict() == {"count": 1}
    assert Sparse(Inner(0)).state_dict().keys() == {"count", "parts", "names"}
    whole = Sparse()
    whole.load_state_dict(Sparse(Inner(0)).state_dict())
    assert whole.part is None


@pytest.mark.parametrize("empty", [{}, Counter(), defaultdict(int)])
def test_a_dict_keeps_its_type(empty):
    part = Part(empty)
    part.load_state_dict({"count": {"a": 2}})
    assert type(part._count) is type(empty)
    assert part._count == {"a": 2}
    assert not empty  # others may hold it
