"""Session CSVs for the tests of this folder."""

from contextlib import closing

import numpy as np

from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.metrics.tracker import EvaluationTracker, TrainingTracker
from slm_lab.metrics.writer import RowWriter


def session_rows(returns, frames=None, opt_steps=None):
    """One row per return (NaN: none yet), every 100 frames by default."""
    number = np.arange(1, len(returns) + 1)
    filled = {
        "frame": number * 100 if frames is None else frames,
        "opt_step": number * 10 if opt_steps is None else opt_steps,
        "total_reward": returns,
        "mean_return": returns,
        "final_return": returns,
        "final_return_episodes": np.where(np.isnan(returns), 0, number),
        "total_frame": number * 100 if frames is None else frames,
        "epi": number,
    }
    values = np.full((len(BASE_COLUMNS), len(returns)), np.nan)
    for column, cells in filled.items():
        values[BASE_COLUMNS.index(column)] = cells
    return Rows(BASE_COLUMNS, values)


def write_session(path, rows, *, seed=0, every=500, extra=("clip_eps",), learns=True):
    """Writes a CSV like that of a learning Session; its wall_t depends on the seed."""
    generator = np.random.default_rng(seed)
    tracker = TrainingTracker(1, every, 4 * rows * every, extra)
    with closing(RowWriter(path, tracker.columns)) as writer:
        for i in range(1, rows + 1):
            level = 500 / (1 + np.exp(-(i - rows / 3) / 10))
            noisy = np.array([level + generator.normal()])
            one = np.array([0]), noisy, np.array([10]), np.empty((1, 0))
            tracker.track_episodes(*one, 4 * i * every)
            if learns:
                tracker.track_update({"loss": 1 / i, "clip_eps": 0.2})
            clocks = {"frame": i * every, "total_frame": 4 * i * every, "opt_step": i}
            writer.append(
                tracker.row(wall_t=i * (1 + seed / 10), cpu_t=float(i), **clocks)
            )
    return path


def write_evaluations(path, rows, *, spread=1.0, every=500):
    """Writes a CSV of evaluations, each of two episodes that return i ± spread."""
    tracker = EvaluationTracker(every, rows * every)
    with closing(RowWriter(path, tracker.columns)) as writer:
        for i in range(1, rows + 1):
            returns, lengths = np.array([i - spread, i + spread]), np.array([10, 12])
            clocks = {
                "frame": i * every,
                "total_frame": i * every,
                "opt_step": i,
                "epi": 2 * i,
            }
            info = np.empty((2, 0))
            writer.append(
                tracker.row(returns, lengths, info, wall_t=float(i), **clocks)
            )
    return path
