"""The state of an object that a checkpoint holds.

Most classes list their fields in `saved`. A class whose state is not a list of fields
writes both methods itself."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

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
    arrays, NumPy's generators, objects with state, and lists and dicts."""

    saved: ClassVar[Mapping[str, str]] = {}
    """The name of the field for each key of the state."""

    @override
    def state_dict(self) -> StateDict:
        return {key: _copied(getattr(self, field)) for key, field in self.saved.items()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        for key, field in self.saved.items():
            setattr(self, field, _restored(getattr(self, field), state[key]))


def _copied(value: Any) -> Any:
    """The state of a value. What is in a list is not copied. Raises TypeError for other
    values, such as tensors: their class writes both methods."""
    if isinstance(value, HasState):
        return value.state_dict()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(entry) for key, entry in value.items()}
    if isinstance(value, list | deque):
        return list(value)
    if not isinstance(value, PLAIN):
        raise TypeError(f"a {type(value).__name__} cannot be a saved field")
    return value


def _restored(value: Any, state: Any) -> Any:
    """The value for a field that has this `value` now. Arrays, which others may share
    or view, generators and parts are restored in place. Where there is no part, the
    state of one is dropped. A number keeps its type."""
    if value is None:
        return None if isinstance(state, dict) else state
    if isinstance(value, HasState):
        value.load_state_dict(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    elif isinstance(value, np.ndarray):
        value[...] = state
    elif isinstance(value, deque):
        return deque(state, value.maxlen)
    elif isinstance(value, dict):
        return {key: _copied(entry) for key, entry in state.items()}
    else:
        return type(value)(state)
    return value
