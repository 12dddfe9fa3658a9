"""State in a form that torch loads with `weights_only`: arrays become tensors, and
back."""

import io
import warnings
from typing import Any

import numpy as np
import torch

ARRAY = "__array__"
PLAIN = (type(None), bool, int, float, str)


def to_plain(state: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Nested state with every numpy array as a marked tensor and every numpy number as
    Python's. Raises TypeError for anything that `torch.load(weights_only=True)` would
    refuse; it names the place, whose keys begin with `path`."""
    if isinstance(state, dict):
        for key in state:
            if type(key) not in (str, int) or key == ARRAY:
                raise TypeError(
                    f"{_place(path)}{key!r} cannot be a key in a checkpoint"
                )
        return {key: to_plain(value, (*path, key)) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [to_plain(value, (*path, index)) for index, value in enumerate(state)]
    if isinstance(state, np.ndarray):
        if state.dtype == object:
            what = "an array of Python objects cannot be saved in a checkpoint"
            raise TypeError(f"{_place(path)}{what}")
        array = np.ascontiguousarray(state)
        if not array.flags.writeable:  # torch warns about read-only arrays
            array = array.copy()
        return {ARRAY: torch.from_numpy(array).reshape(state.shape)}
    if isinstance(state, np.generic):
        return to_plain(state.item(), path)
    # Exact types only: an IntEnum or a StrEnum would be pickled by class and rejected
    # on load.
    if type(state) in PLAIN or isinstance(state, torch.Tensor):
        return state
    what = f"a {type(state).__name__} cannot be saved in a checkpoint"
    raise TypeError(f"{_place(path)}{what}")


def _place(path: tuple[str | int, ...]) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def from_plain(state: Any) -> Any:
    """The inverse of `to_plain`; tuples come back as lists."""
    if isinstance(state, dict):
        if state.keys() == {ARRAY}:
            return state[ARRAY].numpy()
        return {key: from_plain(value) for key, value in state.items()}
    if isinstance(state, list):
        return [from_plain(value) for value in state]
    return state


def to_bytes(state: Any) -> memoryview:
    """The state as the content of a file of torch. Raises as `to_plain`."""
    buffer = io.BytesIO()
    torch.save(to_plain(state), buffer)
    return buffer.getbuffer()  # not getvalue(), which would copy a large state


def from_bytes(content: bytes | memoryview) -> Any:
    """The inverse of `to_bytes`; nothing is unpickled. Raises ValueError if it holds
    other types than tensors and plain values: torch's own message would advise to
    execute the file's code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = torch.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
    except Exception:
        raise ValueError("the lab did not write this file") from None
    return from_plain(plain)
