"""Small comparisons for the tests of this folder."""

import numpy as np

from slm_lab.charts.speeds import (
    BASELINE,
    ComparedTrainings,
    VariantResult,
    Way,
    training_of,
)
from slm_lab.metrics.reader import Rows

BUDGET, EVERY, WINDOW = 10_000, 100, 1000.0


def rows_of(**columns):
    """Rows with these columns only."""
    values = np.array([np.asarray(each, dtype=np.float64) for each in columns.values()])
    return Rows(tuple(columns), values)


def worker(
    workers=1,
    speed=1000.0,
    *,
    budget=BUDGET,
    returns=None,
    cpu=0.95,
    writes_for_all=False,
):
    """One of several equal workers, which together make `speed` frames a second.

    Each computes for a share `cpu` of the time.
    """
    frame = np.arange(EVERY, budget / workers + 1, EVERY)
    total = frame * workers
    wall = total / speed
    level = total / 100 if returns is None else np.broadcast_to(returns, total.shape)
    return rows_of(
        frame=frame,
        total_frame=total,
        wall_t=wall,
        cpu_t=wall * cpu * (workers if writes_for_all else 1),
        epi=frame / EVERY * (workers if writes_for_all else 1),
        mean_return=level,
        final_return=level,
    )


def training(workers=1, speed=1000.0, **options):
    """One training of workers that are alike."""
    return training_of([worker(workers, speed, **options)] * workers, WINDOW)


def comparison(*outcomes, threshold=None, seeds=1, cores=2):
    """One process at 1000 frames a second, and the outcomes."""
    alone = VariantResult(
        Way(BASELINE, 1), {seed: training() for seed in range(seeds)}, {}
    )
    return ComparedTrainings(
        "PPO on CartPole-v1",
        (alone, *outcomes),
        BUDGET,
        seeds,
        cores,
        "a processor",
        threshold,
        WINDOW,
        ("a note",),
    )


def outcome(mode, workers, *speeds, cores=2, **options):
    """A variant with a training at each of the speeds."""
    trainings = {
        s: training(workers, speed, **options) for s, speed in enumerate(speeds)
    }
    way = Way(mode, workers, workers > cores, has_learner=mode == "actor_learner")
    return VariantResult(way, trainings, {})
