"""Rows of earlier versions, with the columns that they lack."""

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.metrics.recent import WINDOW_SHARE

_NEEDED = ("total_reward", "epi", "total_frame")
_ADDED = ("mean_return", "recent_return", "final_return", "final_return_episodes")


def completed(columns: tuple[str, ...], values: FloatArray) -> tuple[tuple[str, ...], FloatArray]:
    """Columns and values (C, R) of a file, with what `total_reward` tells of the newer columns.

    Earlier files have no means over episodes: `total_reward`, the mean of each environment's last
    episode, stands in for them. `recent_return`, which trainings decide by, stays empty.
    """
    known = dict(zip(columns, values, strict=True))
    if "final_return" in known or not known.keys() >= set(_NEEDED) or not values.shape[1]:
        return columns, values
    returns, epi, total_frame = (known[name] for name in _NEEDED)
    begin = np.searchsorted(total_frame, total_frame - WINDOW_SHARE * total_frame[-1], side="right")
    filled = ~np.isnan(returns)
    total = np.concatenate([[0.0], np.cumsum(np.where(filled, returns, 0.0))])
    count = np.concatenate([[0], np.cumsum(filled)])
    after = np.arange(1, len(returns) + 1)
    rows = count[after] - count[begin]
    final = np.where(rows > 0, (total[after] - total[begin]) / np.maximum(rows, 1), np.nan)
    episodes = epi - np.concatenate([[0.0], epi])[begin]
    added = np.stack([returns, np.full_like(returns, np.nan), final, episodes])
    return (*columns, *_ADDED), np.concatenate([values, added])
