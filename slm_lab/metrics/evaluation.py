"""The rows of evaluations, one per `eval_frequency` frames."""

import math
from collections import deque
from collections.abc import Sequence
from typing import final

import numpy as np

from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import FloatArray, IntArray, StateDict
from slm_lab.metrics.recent import RecentEpisodes
from slm_lab.metrics.row import EVAL_COLUMNS, Cell, Row, info_columns
from slm_lab.metrics.tracker import MA_WINDOW, next_multiple


def info_means(keys: Sequence[str], info: FloatArray) -> dict[str, float | None]:
    """By column, the mean over the episodes of `info` (K, I) with a number; None without any."""
    known = [numbers[~np.isnan(numbers)] for numbers in info.T]
    means = [float(numbers.mean()) if len(numbers) else None for numbers in known]
    return dict(zip((column.name for column in info_columns(keys)), means, strict=True))


@final
class EvaluationTracker:
    """Schedules evaluations, makes their rows and tracks the best return. `max_frame` is the budget
    in total frames. Columns for `info_keys` come last."""

    def __init__(self, eval_frequency: int, max_frame: int, info_keys: Sequence[str] = ()) -> None:
        self._info_keys = info_keys
        self.columns = (*EVAL_COLUMNS, *(column.name for column in info_columns(info_keys)))
        self.last_frame = 0
        self.best_return: float | None = None
        self.improved = False
        self._eval_frequency = eval_frequency
        self._next_due = eval_frequency
        self._recent = RecentEpisodes(max_frame)
        self._row_returns: deque[float] = deque(maxlen=MA_WINDOW)

    def due(self, frame: int) -> bool:
        """Whether `frame` has reached a multiple of eval_frequency since the last row."""
        return frame >= self._next_due

    def row(
        self,
        episode_return: FloatArray,
        episode_length: IntArray,
        info: FloatArray,
        *,
        frame: int,
        total_frame: int,
        wall_t: float,
        epi: int,
        opt_step: int,
    ) -> Row:
        """The row of an evaluation of K >= 1 episodes, arrays (K,) and `info` (K, I), at the
        training's clocks. Sets `improved`: whether its mean return exceeds that of every earlier
        evaluation."""
        mean = float(episode_return.mean())
        self._row_returns.append(mean)
        self._recent.add(total_frame, episode_return)
        final_return = self._recent.final(total_frame)
        cells: dict[str, Cell] = {
            "frame": int(frame),
            "total_frame": int(total_frame),
            "wall_t": float(wall_t),
            "epi": int(epi),
            "opt_step": int(opt_step),
            "total_reward": mean,
            "total_reward_ma": math.fsum(self._row_returns) / len(self._row_returns),
            "final_return": final_return.value,
            "final_return_episodes": final_return.episodes,
            "return_std": float(episode_return.std()),
            "return_min": float(episode_return.min()),
            "return_max": float(episode_return.max()),
            "episode_length": float(np.mean(episode_length)),
            **info_means(self._info_keys, info),
        }
        self.improved = self.best_return is None or mean > self.best_return
        if self.improved:
            self.best_return = mean
        self._set_frame(int(frame))
        return Row(self.columns, tuple(cells[name] for name in self.columns))

    def state_dict(self) -> StateDict:
        """The state that later rows depend on."""
        return {
            "columns": list(self.columns),
            "last_frame": self.last_frame,
            "best_return": self.best_return,
            "recent": self._recent.state_dict(),
            "row_returns": list(self._row_returns),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores `state`. Raises CheckpointError if the columns differ."""
        if tuple(state["columns"]) != self.columns:
            saved, own = ", ".join(state["columns"]), ", ".join(self.columns)
            message = f"rows have the columns {saved}, this version's {own}"
            raise CheckpointError(f"the checkpoint's evaluation {message}")
        self.best_return = state["best_return"]
        self._recent.load_state_dict(state["recent"])
        self._row_returns = deque(state["row_returns"], maxlen=MA_WINDOW)
        self._set_frame(state["last_frame"])

    def _set_frame(self, frame: int) -> None:
        self.last_frame = frame
        self._next_due = next_multiple(frame, self._eval_frequency)
