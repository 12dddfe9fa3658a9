"""State as torch can load it without unpickling anything: arrays become tensors, and back."""

from typing import Any

import numpy as np
import torch

ARRAY = "__array__"
PLAIN = (type(None), bool, int, float, str)


def to_saveable(state: Any) -> Any:
    """Nested state with every numpy array as a marked tensor and every numpy number as Python's.

    Raises TypeError for anything that `torch.load(weights_only=True)` would refuse.
    """
    if isinstance(state, dict):
        for key in state:
            if type(key) not in (str, int) or key == ARRAY:
                raise TypeError(f"{key!r} cannot be a key in a checkpoint")
        return {key: to_saveable(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [to_saveable(value) for value in state]
    if isinstance(state, np.ndarray):
        if state.dtype == object:
            raise TypeError("an array of Python objects cannot be saved in a checkpoint")
        array = np.ascontiguousarray(state)
        if not array.flags.writeable:  # torch warns of it
            array = array.copy()
        return {ARRAY: torch.from_numpy(array).reshape(state.shape)}
    if isinstance(state, np.generic):
        return to_saveable(state.item())
    # The exact types: an IntEnum or a StrEnum would be pickled by its class, and not be loaded.
    if type(state) in PLAIN or isinstance(state, torch.Tensor):
        return state
    raise TypeError(f"a {type(state).__name__} cannot be saved in a checkpoint")


def from_saveable(state: Any) -> Any:
    """The inverse of `to_saveable`; tuples come back as lists."""
    if isinstance(state, dict):
        if state.keys() == {ARRAY}:
            return state[ARRAY].numpy()
        return {key: from_saveable(value) for key, value in state.items()}
    if isinstance(state, list):
        return [from_saveable(value) for value in state]
    return state
