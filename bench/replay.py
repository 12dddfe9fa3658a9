"""What it costs to draw 256 transitions from a replay memory that holds a million.

python -m bench.replay     medians in µs, uniformly and by priority, for CartPole and
for MuJoCo

By priority it includes importance weights, reported errors, and the update of the sum
tree. Needs a quiet machine.
"""

import argparse
import statistics
import time

import numpy as np
import torch

from slm_lab.agent.batch import Act, VectorStep
from slm_lab.agent.from_spec.memory import build_memory
from slm_lab.agent.memory.memory import MemoryLayout, ReplayConfig, TrainingSchedule
from slm_lab.agent.memory.replay import Replay
from slm_lab.spec.schema.memory import MemorySpec, PrioritizedReplaySpec, ReplaySpec
from slm_lab.spec.schema.schedule import ScheduleSpec

SIZE, BATCH = 1_000_000, 256
LIMITS = {"uniform": 50.0, "by priority": 200.0}
"""µs"""
EPISODE = 200
"""Steps of an episode, every other truncated."""
BETA = ScheduleSpec(start_val=0.4)
SPECS: dict[str, MemorySpec] = {
    "uniform": ReplaySpec(batch_size=BATCH, max_size=SIZE),
    "by priority": PrioritizedReplaySpec(batch_size=BATCH, max_size=SIZE, beta=BETA),
}


class Stream:
    """Steps of one environment, one after another."""

    def __init__(self, obs_size: int) -> None:
        self._rng = np.random.default_rng(0)
        self._obs = self._rng.normal(size=(4096, 1, obs_size)).astype(np.float32)
        self._act = Act(
            np.zeros(1, np.int64), np.zeros(1, np.float32), np.zeros(1, np.float32), 0
        )
        self._reward = np.ones(1, np.float32)
        self._now = 0

    def add_to(self, memory: Replay) -> None:
        """One step more."""
        now, obs = self._now, self._obs
        ends = now % EPISODE == EPISODE - 1
        truncated = now % (2 * EPISODE) == EPISODE - 1
        step = VectorStep(
            obs[now % len(obs)],
            self._act,
            self._reward,
            np.array([ends and not truncated]),
            np.array([truncated]),
            obs[(now + 1) % len(obs)],
        )
        memory.add(step)
        self._now += 1


def full_memory(spec: MemorySpec, obs_size: int) -> tuple[Replay, Stream]:
    """A full memory of one environment, and the stream that continues to fill it."""
    plan = ReplayConfig(TrainingSchedule(1, 0), 0.99, 1, seed=0)
    layout = MemoryLayout(
        1, 1, (obs_size,), np.dtype(np.float32), (), np.dtype(np.int64), plan
    )
    memory, stream = build_memory(spec, layout), Stream(obs_size)
    for _ in range(SIZE + 1000):
        stream.add_to(memory)
    return memory, stream


def cost(memory: Replay, stream: Stream, calls: int) -> list[float]:
    """µs of each call: draw, report errors.

    Between two of them a step is added, which is not timed.
    It makes a tree and a cache as stale as in training.
    """
    errors = torch.from_numpy(np.random.default_rng(1).exponential(size=(64, BATCH)))
    times = []
    for call in range(calls):
        stream.add_to(memory)
        began = time.perf_counter()
        batch = memory.sample(call)
        memory.update_priorities(batch.index, errors[call % len(errors)])
        times.append((time.perf_counter() - began) * 1e6)
    return times


def main() -> None:
    """Measures both memories with both sizes of observations."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--obs", type=int, nargs="+", default=[4, 17])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for size in arguments.obs:
        for name, spec in SPECS.items():
            times = cost(*full_memory(spec, size), arguments.calls)
            fast, _, slow = statistics.quantiles(times, n=4)
            print(
                f"{name}, obs ({size},): median {statistics.median(times):.1f} µs, "
                f"quartiles {fast:.1f} and {slow:.1f}, limit {LIMITS[name]:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
