"""The score of a training: the mean return of its last episodes."""

import math
from collections import deque
from itertools import islice
from typing import NamedTuple, final

import numpy as np
from typing_extensions import override

from slm_lab.core.state import HasState
from slm_lab.core.types import FloatArray, StateDict

WINDOW_SHARE = 0.05
"""The part of the frame budget over which returns are averaged."""
FEWEST = 20
"""Minimum number of averaged episodes, once so many have ended."""
MOST = 100
"""Maximum number of averaged episodes during the training."""


class MeanReturn(NamedTuple):
    """The mean return of `episodes` episodes; None if there are none."""

    value: float | None
    episodes: int


@final
class RecentEpisodes(HasState):
    """The returns of a Session's last episodes, with the budget's frame at which each
    ended. It keeps the episodes of the last `WINDOW_SHARE` of `max_frame`, and at least
    the last `MOST`. `FEWEST` and `MOST` count the episodes of all `workers` that train
    one agent. Each worker keeps its own episodes, so its numbers are equal parts of
    these, rounded up."""

    def __init__(self, max_frame: int, workers: int = 1) -> None:
        self._max_frame = max_frame
        self._fewest = math.ceil(FEWEST / workers)
        self._most = math.ceil(MOST / workers)
        self._window = WINDOW_SHARE * max_frame
        self._ended: deque[int] = deque()
        self._returns: deque[float] = deque()

    def add(self, total_frame: int, episode_return: FloatArray) -> None:
        """Adds episodes that have just ended; `episode_return` is (K,)."""
        self._returns.extend(episode_return.tolist())
        self._ended.extend([total_frame] * len(episode_return))
        while len(self._ended) > MOST and self._ended[0] <= total_frame - self._window:
            self._ended.popleft()
            self._returns.popleft()

    def clear(self) -> None:
        """Removes all episodes."""
        self._ended.clear()
        self._returns.clear()

    def final(self, total_frame: int) -> MeanReturn:
        """The final return of a training that ends at `total_frame`. It is the mean
        over the episodes of the last `WINDOW_SHARE` of the budget. If these are fewer
        than `FEWEST`, it is the mean over the last `FEWEST`."""
        count = self._count(total_frame)
        return MeanReturn(self._mean(count), count)

    def recent(self, total_frame: int) -> float | None:
        """The mean over at most the last `MOST` of these episodes, for decisions.
        None before `FEWEST` have ended, unless the budget is spent."""
        if len(self._ended) < self._fewest and total_frame < self._max_frame:
            return None
        return self._mean(min(self._count(total_frame), self._most))

    @override
    def state_dict(self) -> StateDict:
        return {
            "ended": np.array(self._ended, np.int64),
            "returns": np.array(self._returns, np.float64),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._ended = deque(state["ended"].tolist())
        self._returns = deque(state["returns"].tolist())

    def _count(self, total_frame: int) -> int:
        begin = total_frame - self._window
        in_window = sum(ended > begin for ended in self._ended)
        return min(max(in_window, self._fewest), len(self._ended))

    def _mean(self, count: int) -> float | None:
        last = islice(reversed(self._returns), count)
        if count:
            return math.fsum(last) / count
        return None
