"""The rows of a training, one per `log_frequency` frames: finished episodes, learner
reports. And the rows of evaluations, one per `eval_frequency` frames."""

import logging
import math
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, final

import numpy as np
from typing_extensions import override

from slm_lab.core.errors import CheckpointError, LabError
from slm_lab.core.registry import suggestion
from slm_lab.core.state import SavedFields
from slm_lab.core.types import Column, FloatArray, IntArray, StateDict
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.recent import RecentEpisodes
from slm_lab.metrics.row import (
    BASE_COLUMNS,
    EVAL_COLUMNS,
    Cell,
    Row,
    info_columns,
    resolve_columns,
    return_columns,
)

logger = logging.getLogger(__name__)

MA_WINDOW = 100
"""Rows in the moving average of `total_reward`."""

_REPORTED_BASE = ("loss", "lr", "entropy", "grad_norm")
_EPISODE_LENGTH = "episode_length"


@final
class TrainingTracker(SavedFields):
    """Collects the numbers of one Session between two rows, and the numbers over the
    whole training. `max_frame` is the budget in total frames. This Session is one of
    the `workers` that spend it, each of which writes rows. `extra_columns` follow the
    base columns: names from `row.COLUMNS`, or other `Column`s. The tracker itself fills
    `episode_length`; learner reports fill other extra columns. Columns for `info_keys`,
    as in `env.info_keys`, come after them. The columns for the returns of `agents` come
    last."""

    saved: ClassVar = {
        "last_frame": "last_frame",
        "last_wall_t": "last_wall_t",
        "best_return": "best_return",
        "improved": "improved",
        "episodes": "episodes",
        "has_episode": "_has_episode",
        "episode_return": "_episode_return",
        "episode_length": "_episode_length",
        "recent": "_recent",
        "returns_since_row": "_returns_since_row",
        "row_returns": "_row_returns",
    }

    def __init__(
        self,
        num_envs: int,
        log_frequency: int,
        max_frame: int,
        extra_columns: Sequence[str | Column] = (),
        workers: int = 1,
        info_keys: Sequence[str] = (),
        agents: Sequence[str] = (),
    ) -> None:
        of_info = info_columns(info_keys)
        of_agents = return_columns(agents)
        self.columns = resolve_columns((*extra_columns, *of_info, *of_agents))
        self._info_columns = tuple(column.name for column in of_info)
        self._episode_columns = tuple(c.name for c in (*of_info, *of_agents))
        self._incomplete: set[str] = set()
        """Columns for which an episode without a number has been reported."""
        self.last_row: Row | None = None
        self.last_frame = 0
        self.best_return: float | None = None
        """The highest `recent_return` of all rows."""
        self.improved = False

        self._log_frequency = log_frequency
        self._next_due = log_frequency
        self.last_wall_t = 0.0
        self.episodes = 0
        self._has_episode = np.zeros(num_envs, dtype=np.bool_)
        self._episode_return = np.zeros(num_envs, dtype=np.float64)
        self._episode_length = np.zeros(num_envs, dtype=np.int64)
        self._recent = RecentEpisodes(max_frame, workers)
        self._returns_since_row: list[float] = []
        self._row_returns: deque[float] = deque(maxlen=MA_WINDOW)
        known = (*_REPORTED_BASE, *self.columns[len(BASE_COLUMNS) :])
        self._reported = tuple(name for name in known if name != _EPISODE_LENGTH)
        self._sums = dict.fromkeys(self._reported, 0.0)
        self._counts = dict.fromkeys(self._reported, 0)

    def track_episodes(
        self,
        env_index: IntArray,
        episode_return: FloatArray,
        episode_length: IntArray,
        info: FloatArray,
        total_frame: int,
    ) -> None:
        """Adds K > 0 episodes that ended at `total_frame`; arrays are (K,).
        `episode_return` is raw reward. `info`, (K, I), has a column for each of
        `info_keys` and `agents`, with NaN for no number. Raises LabError if a return is
        not finite."""
        _check_finite(episode_return, env_index)
        self.episodes += len(env_index)
        self._recent.add(total_frame, episode_return)
        self._returns_since_row.extend(episode_return.tolist())
        self._has_episode[env_index] = True
        self._episode_return[env_index] = episode_return
        self._episode_length[env_index] = episode_length
        for name, numbers in zip(self._episode_columns, info.T, strict=True):
            known = numbers[~np.isnan(numbers)]
            self._sums[name] += float(known.sum())
            self._counts[name] += len(known)

    def track_update(self, report: Mapping[str, float]) -> None:
        """Adds a learner report to the means of the next row. A NaN makes the mean NaN.
        Raises LabError for a key without a column."""
        sums = self._sums
        counts = self._counts
        for name, value in report.items():
            if name not in sums:
                raise LabError(
                    f'a learner reported "{name}", which is none of its columns '
                    f"({', '.join(self._reported)}){suggestion(name, self._reported)}"
                )
            sums[name] += float(value)
            counts[name] += 1

    def due(self, frame: int) -> bool:
        """Whether `frame` has reached a multiple of log_frequency since the last
        row."""
        return frame >= self._next_due

    def row(
        self,
        *,
        frame: int,
        total_frame: int,
        wall_t: float,
        cpu_t: float,
        opt_step: int,
        explore_var: float | None = None,
    ) -> Row:
        """Ends the interval and returns its row; `wall_t`, `cpu_t` are training time in
        seconds."""
        total_reward = self._mean_over_envs(self._episode_return)
        recent_return = self._recent.recent(total_frame)
        final = self._recent.final(total_frame)
        seconds = wall_t - self.last_wall_t
        rows = self._row_returns
        if total_reward is not None:
            rows.append(total_reward)
        self._report_missing_info()
        returns = self._returns_since_row
        self._returns_since_row = []
        cells: dict[str, Cell] = dict.fromkeys(self.columns)
        cells |= {
            "frame": int(frame),
            "total_frame": int(total_frame),
            "wall_t": float(wall_t),
            "cpu_t": float(cpu_t),
            "epi": self.episodes,
            "opt_step": int(opt_step),
            "fps": _quotient(float(frame - self.last_frame), seconds),
            "total_reward": total_reward,
            "total_reward_ma": _quotient(math.fsum(rows), len(rows)),
            "mean_return": _quotient(math.fsum(returns), len(returns)),
            "recent_return": recent_return,
            "final_return": final.value,
            "final_return_episodes": final.episodes,
            "explore_var": explore_var,
        }
        if _EPISODE_LENGTH in cells:
            cells[_EPISODE_LENGTH] = self._mean_over_envs(self._episode_length)
        for name in self._reported:
            cells[name] = _quotient(self._sums[name], self._counts[name])
            self._sums[name] = 0.0
            self._counts[name] = 0

        best = self.best_return
        self.improved = recent_return is not None and (
            best is None or recent_return > best
        )
        if self.improved:
            self.best_return = recent_return
        row = Row(self.columns, tuple(cells.values()))
        self._close(row, int(frame), float(wall_t))
        return row

    @override
    def state_dict(self) -> StateDict:
        last_row = self.last_row
        return {
            **super().state_dict(),
            "columns": list(self.columns),
            "last_row": None if last_row is None else list(last_row.cells),
            "sums": [self._sums[name] for name in self._reported],
            "counts": [self._counts[name] for name in self._reported],
        }

    def resume_after_rows(self, rows: Rows) -> None:
        """Continues after `rows` of another process, whose state is lost. The best
        return stays as in the last checkpoint, which also has the best agent. Single
        episodes are lost with the process: each episode of a row counts with the row's
        mean return and frame."""
        if not len(rows):
            return
        last = {name: float(rows[name][-1]) for name in ("frame", "wall_t", "epi")}
        self._close(self.last_row, int(last["frame"]), last["wall_t"])
        self.episodes = int(last["epi"])
        self._returns_since_row = []
        # of the interval since the last row
        self._sums = dict.fromkeys(self._reported, 0.0)
        self._counts = dict.fromkeys(self._reported, 0)
        returns = rows["total_reward"]
        recent = returns[~np.isnan(returns)][-MA_WINDOW:]
        self._row_returns = deque(recent.tolist(), maxlen=MA_WINDOW)
        self._recent.clear()
        ended = np.diff(rows["epi"], prepend=0.0).astype(np.int64)
        for row in np.flatnonzero(ended):
            episodes = np.full(ended[row], rows["mean_return"][row])
            self._recent.add(int(rows["total_frame"][row]), episodes)

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores `state`; `log_frequency` may differ from the saved run's. Raises
        CheckpointError if the columns or the number of environments differ."""
        _check_columns("rows", state["columns"], self.columns)
        known = len(state["has_episode"])
        here = len(self._has_episode)
        if known != here:
            raise CheckpointError(
                f"env.num_envs = {here}: the checkpoint has {known} environments"
            )
        super().load_state_dict(state)
        self._sums = dict(zip(self._reported, state["sums"], strict=True))
        self._counts = dict(zip(self._reported, state["counts"], strict=True))
        cells = state["last_row"]
        last_row = None
        if cells is not None:
            last_row = Row(self.columns, tuple(cells))
        self._close(last_row, self.last_frame, self.last_wall_t)

    def _report_missing_info(self) -> None:
        """Reports a column of `info_keys` once, when episodes had no number for it. If
        none had one, it reports on the screen too."""
        ended = len(self._returns_since_row)
        for name in self._info_columns:
            known = self._counts[name]
            if known < ended and name not in self._incomplete:
                self._incomplete.add(name)
                which = f"{ended - known} of {ended} episodes had no finite number"
                message = (
                    f"{name}: {which} under this key of env.info_keys in their last "
                    "info"
                )
                logger.warning("%s", message)
                if not known:
                    print(message, file=sys.stderr)

    def _close(self, row: Row | None, frame: int, wall_t: float) -> None:
        self.last_row = row
        self.last_frame = frame
        self.last_wall_t = wall_t
        self._next_due = next_multiple(frame, self._log_frequency)

    def _mean_over_envs(self, values: FloatArray | IntArray) -> float | None:
        known = values[self._has_episode]
        if known.size:
            return float(known.mean(dtype=np.float64))
        return None


def next_multiple(frame: int, frequency: int) -> int:
    """The first multiple of `frequency` after `frame`, at which the next row is due."""
    return (frame // frequency + 1) * frequency


def info_means(
    keys: Sequence[str], info: FloatArray, agents: Sequence[str] = ()
) -> dict[str, float | None]:
    """The mean over the episodes of `info` (K, I) with a number, by column; None
    without any."""
    known = [numbers[~np.isnan(numbers)] for numbers in info.T]
    means = [float(numbers.mean()) if len(numbers) else None for numbers in known]
    columns = (*info_columns(keys), *return_columns(agents))
    return dict(zip((column.name for column in columns), means, strict=True))


def _quotient(total: float, count: float) -> float | None:
    """The total by the count; None where there is nothing to divide by."""
    if count > 0:
        return total / count
    return None


@final
class EvaluationTracker(SavedFields):
    """Schedules evaluations, makes their rows and tracks the best return. `max_frame`
    is the budget in total frames. Columns for `info_keys` and for the returns of
    `agents` come last."""

    saved: ClassVar = {
        "last_frame": "last_frame",
        "best_return": "best_return",
        "recent": "_recent",
        "row_returns": "_row_returns",
        "columns": "columns",
    }

    def __init__(
        self,
        eval_frequency: int,
        max_frame: int,
        info_keys: Sequence[str] = (),
        agents: Sequence[str] = (),
    ) -> None:
        self._info_keys = info_keys
        self._agents = agents
        columns = (*info_columns(info_keys), *return_columns(agents))
        self.columns = (*EVAL_COLUMNS, *(column.name for column in columns))
        self.last_frame = 0
        self.best_return: float | None = None
        self.improved = False
        self._eval_frequency = eval_frequency
        self._next_due = eval_frequency
        self._recent = RecentEpisodes(max_frame)
        self._row_returns: deque[float] = deque(maxlen=MA_WINDOW)

    def due(self, frame: int) -> bool:
        """Whether `frame` has reached a multiple of eval_frequency since the last
        row."""
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
        """The row of an evaluation of K >= 1 episodes, (K,) and `info` (K, I), at the
        training's clocks. Sets `improved`: whether its mean return exceeds all earlier
        ones."""
        _check_finite(episode_return, np.arange(len(episode_return)))
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
            **info_means(self._info_keys, info, self._agents),
        }
        self.improved = self.best_return is None or mean > self.best_return
        if self.improved:
            self.best_return = mean
        self.last_frame = int(frame)
        self._next_due = next_multiple(self.last_frame, self._eval_frequency)
        return Row(self.columns, tuple(cells[name] for name in self.columns))

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores `state`. Raises CheckpointError if the columns differ."""
        _check_columns("evaluation rows", state["columns"], self.columns)
        super().load_state_dict(state)
        self._next_due = next_multiple(self.last_frame, self._eval_frequency)


def _check_finite(episode_return: FloatArray, env_index: IntArray) -> None:
    if not np.isfinite(episode_return).all():
        raise LabError(
            f"environments {np.asarray(env_index).tolist()} finished episodes with "
            f"returns {np.asarray(episode_return).tolist()}: rewards and returns must "
            "be finite"
        )


def _check_columns(what: str, saved: Sequence[str], current: Sequence[str]) -> None:
    if list(saved) != list(current):
        raise CheckpointError(
            f"the checkpoint's {what} have the columns {', '.join(saved)}, this run's "
            f"{', '.join(current)}; resume with the version and env.info_keys of the "
            "run"
        )
