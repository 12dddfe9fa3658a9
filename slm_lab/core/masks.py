"""Masks of actions in rows of observations, and random draws among what they allow."""

import numpy as np

from slm_lab.core.observation import ObservationLayout
from slm_lab.core.types import Array, BoolArray, IntArray


def mask_columns(layout: ObservationLayout) -> slice | None:
    """The columns of a row with the mask of the newest frame; None without a mask."""
    if layout.mask is None:
        return None
    part = layout.part(layout.mask)
    first = (layout.frames - 1) * layout.row_size
    return slice(first + part.start, first + part.end)


def draw_allowed(
    layout: ObservationLayout, rows: Array, generator: np.random.Generator
) -> IntArray | None:
    """A value of each of K components of an action, uniformly among those that rows (B,
    D) allow: (B, K). None without a mask."""
    columns = mask_columns(layout)
    if columns is None or layout.mask is None:
        return None
    ends = np.cumsum(layout.part(layout.mask).sizes)[:-1]
    components = np.split(rows[:, columns] != 0, ends, axis=1)
    return np.stack([_draw(component, generator) for component in components], 1)


def _draw(allowed: BoolArray, generator: np.random.Generator) -> IntArray:
    count = allowed.sum(1)
    rank = (generator.random(len(allowed)) * count).astype(np.int64)
    # the index behind which so many allowed ones stand
    index: IntArray = (np.add.accumulate(allowed, 1) <= rank[:, None]).sum(1)
    return index
