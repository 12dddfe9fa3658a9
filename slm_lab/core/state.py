"""The state of an object that a checkpoint holds.

Most classes only declare it: `saved` lists their fields, `merged` the parts whose state
is theirs. A class with a computed state adds to the two methods, or writes both."""

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter, setitem
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from slm_lab.core.types import StateDict


class HasState(ABC):
    """An object that a checkpoint saves and restores."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """A copy of the state: numbers, strings, None, arrays and tensors, in lists and
        dicts."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> Any:
        """Restores the state."""


PLAIN = (type(None), bool, int, float, str, np.generic)


class SavedFields(HasState):
    """An object whose state is some of its fields. They may be numbers, strings, None,
    arrays, tensors, generators of NumPy and torch, objects with state, and lists and
    dicts. Tensors are saved on the CPU. A subclass with fields of its own repeats those
    of its base: `saved = {**Base.saved, "best": "_best"}`."""

    saved: ClassVar[Mapping[str, str]] = {}
    """The field for each key of the state. It may be a field of a part, as in
    "_tree.priorities"."""
    merged: ClassVar[Sequence[str]] = ()
    """Fields whose own keys are keys of this state: objects with state, and dicts of
    parts. A field that is None adds no key. They are restored first."""
    optional: ClassVar[Collection[str]] = ()
    """Keys of `saved` that a state may lack. One is left out while its field is None. A
    state of an older version without it leaves the field as it is."""

    @override
    def state_dict(self) -> StateDict:
        state: StateDict = {}
        for field in self.merged:
            state |= _copied(attrgetter(field)(self)) or {}
        return state | fields_state(self, self.saved, self.optional)

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for field in self.merged:
            _restored(attrgetter(field)(self), state)
        load_fields(self, self.saved, state, self.optional)
        self.after_load()

    def after_load(self) -> None:
        """Computes what follows from the restored fields."""


def fields_state(
    owner: object, fields: Mapping[str, str], optional: Collection[str] = ()
) -> StateDict:
    """The state of some fields of an object, by key; see `SavedFields`."""
    values = {key: attrgetter(field)(owner) for key, field in fields.items()}
    return {
        key: _copied(value)
        for key, value in values.items()
        if value is not None or key not in optional
    }


def load_fields(
    owner: object,
    fields: Mapping[str, str],
    state: StateDict,
    optional: Collection[str] = (),
) -> None:
    """Restores a `fields_state`."""
    for key, field in fields.items():
        if key in optional and key not in state:
            continue
        part, _, name = field.rpartition(".")
        holder = attrgetter(part)(owner) if part else owner
        value = getattr(holder, name)
        restored = _restored(value, state[key])
        if restored is not value:
            setattr(holder, name, restored)


class _Kind(NamedTuple):
    """How a value of a kind that others may share or view is saved and restored."""

    copy: Callable[[Any], Any]
    load: Callable[[Any, Any], object]
    """Restores a value in place from its copy."""


_PART = _Kind(
    lambda part: part.state_dict(), lambda part, state: part.load_state_dict(state)
)
_ARRAY = _Kind(
    lambda array: array.copy(), lambda array, state: setitem(array, ..., state)
)
_GENERATOR = _Kind(
    lambda generator: generator.bit_generator.state,
    lambda generator, state: setattr(generator.bit_generator, "state", state),
)
_TENSOR = _Kind(
    lambda tensor: tensor.detach().to("cpu", copy=True),
    lambda tensor, state: tensor.detach().copy_(state),
)
_TORCH_GENERATOR = _Kind(
    lambda generator: generator.get_state(),
    lambda generator, state: generator.set_state(state),
)


def _kind_of(value: Any) -> _Kind | None:
    if isinstance(value, HasState):
        return _PART
    if isinstance(value, np.ndarray):
        return _ARRAY
    if isinstance(value, np.random.Generator):
        return _GENERATOR
    # not all that save a state need torch, so it is not imported
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _TENSOR
    if torch is not None and isinstance(value, torch.Generator):
        return _TORCH_GENERATOR
    return None


def _are_parts(values: Iterable[Any]) -> bool:
    """Whether the first value is an object with state or a tensor, as all are then."""
    return _kind_of(next(iter(values), None)) in (_PART, _TENSOR)


def _copied(value: Any) -> Any:
    """The state of a value. What is in a list is not copied, unless it is a list of
    parts. Raises TypeError for a value that cannot be saved."""
    kind = _kind_of(value)
    if kind is not None:
        return kind.copy(value)
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | deque):
        return [_copied(entry) for entry in value] if _are_parts(value) else list(value)
    if not isinstance(value, PLAIN):
        raise TypeError(f"a {type(value).__name__} cannot be a saved field")
    return value


def _restored(value: Any, state: Any) -> Any:
    """The value for a field that has this `value` now; the same object if it is
    restored in place. Where there is no part, the state of one is dropped. Numbers and
    dicts keep their type."""
    kind = _kind_of(value)
    if kind is not None:
        kind.load(value, state)
        return value
    if value is None:
        return None if isinstance(state, dict) else state
    parts = _parts_with_states(value, state)
    for part, saved in parts:
        _restored(part, saved)
    if parts:
        return value
    if isinstance(value, dict):
        restored = copy(value)
        restored.clear()
        restored.update({key: _copied(entry) for key, entry in state.items()})
        return restored
    if isinstance(value, deque):
        return deque(state, value.maxlen)
    return type(value)(state)


def _parts_with_states(value: Any, state: Any) -> list[tuple[Any, Any]]:
    """The parts in a dict or list; empty for other values."""
    if isinstance(value, dict) and _are_parts(value.values()):
        return [(part, state[key]) for key, part in value.items()]
    if isinstance(value, list) and _are_parts(value):
        return list(zip(value, state, strict=True))
    return []
