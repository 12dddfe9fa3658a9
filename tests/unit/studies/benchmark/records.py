"""Records of trainings that never ran."""

from slm_lab.records.training_record import (
    GreedyEpisodes,
    ReturnCurve,
    TrainingRecord,
)


def record(method="PPO", env="CartPole-v1", seed=1, final=400.0, greedy=450.0, **facts):
    """A finished training of 100k frames with ten points, whose returns rise evenly to
    the final return."""
    points = range(1, 11)
    known = {
        "suite": "small",
        "row": f"{method} {env}",
        "method": method,
        "algorithm": method,
        "env": env,
        "seed": seed,
        "mode": "false",
        "workers": 1,
        "ending": "finished",
        "max_frame": 100_000,
        "frames": 100_000,
        "final_return": final,
        "evaluation": GreedyEpisodes(
            episodes=10, mean=greedy, std=1.0, min=greedy - 1, max=greedy + 1
        ),
        "random_return": 20.0,
        "curve": ReturnCurve(
            frame=[10_000.0 * n for n in points],
            wall_t=[1.0 * n for n in points],
            episode_return=[(final or 0.0) * n / 10 for n in points],
        ),
        "wall_seconds": 10.0,
        "frames_per_second": 10_000.0,
        "machine": {"processor": "a CPU"},
    }
    return TrainingRecord(**{**known, **facts})
