"""What a training is judged by: the returns of the episodes that ended last."""

import math
from collections import deque
from itertools import islice
from typing import NamedTuple, final

import numpy as np

from slm_lab.core.types import FloatArray, StateDict

WINDOW_SHARE = 0.05
"""The share of the frame budget over which returns are averaged."""
FEWEST = 20
"""Episodes that an average rests on at least, where so many have ended."""
MOST = 100
"""Episodes that an average rests on at most while the training runs."""


class MeanReturn(NamedTuple):
    """A mean over `episodes` episodes; None of none."""

    value: float | None
    episodes: int


@final
class RecentEpisodes:
    """The returns of a Session's last episodes, by the frame of the budget at which each ended.

    It keeps the episodes of the last `WINDOW_SHARE` of `max_frame`, and the last `MOST` in any
    case. Where several `workers` train one agent and each keeps its own episodes, `FEWEST` and
    `MOST` are those of all together, and each has an equal part, rounded up.
    """

    def __init__(self, max_frame: int, workers: int = 1) -> None:
        self._max_frame = max_frame
        self._fewest, self._most = math.ceil(FEWEST / workers), math.ceil(MOST / workers)
        self._window = WINDOW_SHARE * max_frame
        self._ended: deque[int] = deque()
        self._returns: deque[float] = deque()

    def add(self, total_frame: int, episode_return: FloatArray) -> None:
        """Takes in episodes that have just ended; `episode_return` is (K,)."""
        self._returns.extend(episode_return.tolist())
        self._ended.extend([total_frame] * len(episode_return))
        while len(self._ended) > MOST and self._ended[0] <= total_frame - self._window:
            self._ended.popleft()
            self._returns.popleft()

    def clear(self) -> None:
        """Forgets all episodes."""
        self._ended.clear()
        self._returns.clear()

    def final(self, total_frame: int) -> MeanReturn:
        """The final return of a training that ends at `total_frame`: the mean over the episodes of
        the last `WINDOW_SHARE` of the budget, or over the last `FEWEST` if these are fewer."""
        count = self._count(total_frame)
        return MeanReturn(self._mean(count), count)

    def recent(self, total_frame: int) -> float | None:
        """The same mean over the last `MOST` of these episodes at most, to decide by it.

        None before `FEWEST` have ended, unless the budget is spent.
        """
        if len(self._ended) < self._fewest and total_frame < self._max_frame:
            return None
        return self._mean(min(self._count(total_frame), self._most))

    def state_dict(self) -> StateDict:
        """The episodes that are kept."""
        return {
            "ended": np.array(self._ended, np.int64),
            "returns": np.array(self._returns, np.float64),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores them; `max_frame` may differ from the one they were saved under."""
        self._ended = deque(state["ended"].tolist())
        self._returns = deque(state["returns"].tolist())

    def _count(self, total_frame: int) -> int:
        begin = total_frame - self._window
        in_window = sum(ended > begin for ended in self._ended)
        return min(max(in_window, self._fewest), len(self._ended))

    def _mean(self, count: int) -> float | None:
        last = islice(reversed(self._returns), count)
        return math.fsum(last) / count if count else None
