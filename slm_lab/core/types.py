"""Types that several packages share."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
IntArray: TypeAlias = NDArray[np.integer[Any]]

StateDict: TypeAlias = dict[str, Any]
"""Nested dicts and lists of arrays, tensors, numbers, strings, booleans and None."""
