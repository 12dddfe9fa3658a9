"""Which way of stepping an environment is the fastest on this machine.

python -m bench.ways [NAME…] [--repeats 5] [--seconds 0.5] [--threads 0]

Names are Gymnasium ids, by default those of `bench.env`.
Every mode of the environment steps 8 copies by turns with the same random actions.
* marks the default of a spec; × is the speed relative to it, the median over rounds.
"""

import argparse
import statistics
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle

from bench.env import NUM_ENVS, WORKS, actions_of, speed
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array
from slm_lab.env.check import check_env
from slm_lab.env.make import make_env
from slm_lab.env.vector_env import VectorEnv
from slm_lab.env.versions import env_record
from slm_lab.spec.schema.env import EnvSpec

WAYS = {
    "native": {"vectorization_mode": "native"},
    "sync": {"vectorization_mode": "sync"},
    "async": {"vectorization_mode": "async"},
    "envpool": {"backend": "envpool"},
}


def made(name: str, threads: int) -> dict[str, VectorEnv]:
    """The environment in every vectorization mode; `threads` where it has any."""
    envs = {}
    for way, keys in WAYS.items():
        for own in ({"num_threads": threads}, {}):
            spec = EnvSpec(name=name, num_envs=NUM_ENVS, max_frame=1, **keys, **own)
            if check_env(spec):
                continue
            with suppress(LabError):  # not installed, or observed otherwise there
                envs[way] = make_env(spec, seed=0)
            break
    return envs


def speeds(
    envs: dict[str, VectorEnv], repeats: int, seconds: float
) -> dict[str, tuple[float, ...]]:
    """Frames per second of each, once per round."""
    turns: dict[str, Iterator[Array]] = {}
    for way, env in envs.items():
        _, seen = actions_of(env.action_space)
        turns[way] = cycle(seen)
        env.reset()
    found: dict[str, list[float]] = {way: [] for way in envs}
    for _ in range(repeats + 1):
        for way, env in envs.items():
            found[way].append(speed(env.step, turns[way], seconds))
    # the first one warms up
    return {way: tuple(rounds[1:]) for way, rounds in found.items()}


def cell(of_way: tuple[float, ...] | None, of_default: tuple[float, ...]) -> str:
    """Frames per second, and how many times those of the default: medians."""
    if of_way is None:
        return "–"
    if of_way is of_default:
        return f"{statistics.median(of_way):,.0f} *    "
    ratio = statistics.median(a / b for a, b in zip(of_way, of_default, strict=True))
    return f"{statistics.median(of_way):,.0f} ×{ratio:.2f}"


def main() -> None:
    """Prints one line per environment."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument(
        "--threads", type=int, default=0, help="of games and pools; 0: cores"
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{NUM_ENVS} environments, frames/s, medians of {arguments.repeats}")
    print(f"{'':16}" + "".join(f"{way:>16}" for way in WAYS))
    for name in arguments.names or [work.name for work in WORKS]:
        envs = made(name, arguments.threads)
        default = env_record(EnvSpec(name=name, max_frame=1))["vectorization_mode"]
        found = speeds(envs, arguments.repeats, arguments.seconds)
        for env in envs.values():
            env.close()
        cells = [cell(found.get(way), found[default]) for way in WAYS]
        print(f"{name:16}" + "".join(f"{words:>16}" for words in cells), flush=True)


if __name__ == "__main__":
    main()
