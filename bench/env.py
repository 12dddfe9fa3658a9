"""The speed of the lab's environments, and of training on them, against the bare
simulators.

python -m bench.env [NAME…] [--repeats 9] [--seconds 0.5] [--train 3]

Raw stepping is what Gymnasium or ale-py gives with the same vectorisation and without
anything of the lab. Both step by turns in one process with the same random actions. So
a change in the machine's load affects both. The result is the median of the ratios.
With --train so many PPO runs are timed as well.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from typing_extensions import override

from bench.cases import PPOCase
from bench.contestant import lab_speed
from slm_lab.core.types import Array
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec

NUM_ENVS = 8
ACTIONS = 1024
"""Vector actions that are drawn beforehand and taken over and over."""


@dataclass(frozen=True)
class Work:
    """An environment and the least share of its raw speed that the lab should keep."""

    name: str
    least: float
    train_frames: int
    conv: bool = False


WORKS = [
    Work("CartPole-v1", 0.75, 100_000),
    Work("LunarLander-v3", 0.9, 50_000),
    Work("Hopper-v5", 0.9, 20_000),
    Work("HalfCheetah-v5", 0.9, 20_000),
    Work("Humanoid-v5", 0.9, 10_000),
    Work("ALE/Pong-v5", 0.9, 4_096, conv=True),
    Work("ALE/Breakout-v5", 0.9, 4_096, conv=True),
]


@dataclass(frozen=True)
class ConvCase(PPOCase):
    """PPO with the network of DQN (Mnih et al., Nature 2015), shared by actor and
    critic."""

    @override
    def agent(self) -> dict[str, Any]:
        agent = super().agent()
        agent["net"] = {
            "type": "ConvNet",
            "shared": True,
            "conv_hid_layers": [[32, 8, 4, 0, 1], [64, 4, 2, 0, 1], [64, 3, 1, 0, 1]],
            "fc_hid_layers": [512],
            "hid_layers_activation": "relu",
            "normalize": True,
            "init_fn": "orthogonal_",
            "clip_grad_val": self.max_grad_norm,
            "optim_spec": {"name": "GlobalAdam", "lr": self.lr, "eps": 1e-5},
        }
        return agent


def raw_env(name: str) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """The environments without the lab: the authors' vector version, else one after
    another."""
    if name.startswith("ALE/"):
        import ale_py

        gymnasium.register_envs(ale_py)
        same_step = AutoresetMode.SAME_STEP
        return gymnasium.make_vec(
            name, NUM_ENVS, autoreset_mode=same_step, reward_clipping=False
        )
    if gymnasium.spec(name).vector_entry_point is not None:
        return gymnasium.make_vec(
            name, NUM_ENVS, vectorization_mode="vector_entry_point"
        )
    single = [lambda: gymnasium.make(name, disable_env_checker=True)] * NUM_ENVS
    return SyncVectorEnv(single, autoreset_mode=AutoresetMode.SAME_STEP)


def actions_of(space: gymnasium.Space[Any]) -> tuple[list[Array], list[Array]]:
    """Random actions in the units of the environment, and the same as the lab takes
    them."""
    rng = np.random.default_rng(0)
    if isinstance(space, gymnasium.spaces.Discrete):
        drawn = list(rng.integers(0, space.n, (ACTIONS, NUM_ENVS)))
        return drawn, drawn
    assert isinstance(space, gymnasium.spaces.Box)
    seen = rng.uniform(-1, 1, (ACTIONS, NUM_ENVS, *space.shape)).astype(np.float32)
    raw = space.low + (seen + 1) / 2 * (space.high - space.low)
    return list(raw.astype(space.dtype)), list(seen)


def speed(
    step: Callable[[Array], object], actions: Iterator[Array], seconds: float
) -> float:
    """Frames per second over about so many seconds."""
    began = time.perf_counter()
    steps = 0
    while time.perf_counter() - began < seconds:
        for _ in range(10):
            step(next(actions))
        steps += 10
    return steps * NUM_ENVS / (time.perf_counter() - began)


def stepping(work: Work, repeats: int, seconds: float) -> tuple[float, float, float]:
    """Raw and lab frames per second, medians, and the median of their ratios."""
    raw = raw_env(work.name)
    lab = make_env(EnvSpec(name=work.name, num_envs=NUM_ENVS, max_frame=1), seed=0)
    raw_actions, lab_actions = map(cycle, actions_of(raw.single_action_space))
    raw.reset(seed=0)
    lab.reset()
    pairs = []
    for repeat in range(repeats + 1):
        turns = [(raw.step, raw_actions), (lab.step, lab_actions)]
        order = [0, 1] if repeat % 2 else [1, 0]
        speeds = {index: speed(*turns[index], seconds) for index in order}
        pairs.append((speeds[0], speeds[1]))
    raw.close()
    lab.close()
    pairs = pairs[1:]  # the first one warms up
    ratio = statistics.median(of_lab / of_raw for of_raw, of_lab in pairs)
    return (
        statistics.median(p[0] for p in pairs),
        statistics.median(p[1] for p in pairs),
        ratio,
    )


def training(work: Work, repeats: int) -> float:
    """Frames per second of PPO in the lab, the median of so many runs."""
    kind = ConvCase if work.conv else PPOCase
    case = kind(work.name, NUM_ENVS, work.train_frames)
    return statistics.median(lab_speed("ppo", case) for _ in range(repeats))


def main() -> None:
    """Prints one line per environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [work.name for work in WORKS]
    parser.add_argument("names", nargs="*", choices=[[], *names], metavar="NAME")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--train", type=int, default=0, metavar="RUNS")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{NUM_ENVS} environments, frames/s, medians of {arguments.repeats}")
    print(f"{'':16} {'raw':>9} {'lab':>9} {'ratio':>6} {'least':>6} {'PPO':>9}")
    for work in WORKS:
        if arguments.names and work.name not in arguments.names:
            continue
        raw, lab, ratio = stepping(work, arguments.repeats, arguments.seconds)
        line = f"{work.name:16} {raw:9,.0f} {lab:9,.0f} {ratio:6.2f} {work.least:6.2f}"
        if arguments.train:
            line += f" {training(work, arguments.train):9,.0f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
