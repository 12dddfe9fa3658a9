"""Training speed against Stable-Baselines3, on equal hyperparameters.

python -m bench.speed CASE… [--repeats 5]

Both libraries run by turns, each time in a fresh process with one thread, so that a change in the
machine's load meets both. What counts is the ratio of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

from bench.cases import CASES


def measure(library: str, case: str) -> float:
    """Frames per second of one run in a process of its own."""
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.contestant", library, case],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **one_thread},
    )
    return float(json.loads(done.stdout.splitlines()[-1])["frames_per_second"])


def main() -> None:
    """Prints every run as it ends, then both medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    for case in arguments.cases:
        speeds: dict[str, list[float]] = {"lab": [], "sb3": []}
        for _ in range(arguments.repeats):
            for library, seen in speeds.items():
                seen.append(measure(library, case))
                print(f"{case:20} {library:4} {seen[-1]:9,.0f} frames/s", flush=True)
        lab, sb3 = (statistics.median(speeds[library]) for library in ("lab", "sb3"))
        print(
            f"{case:20} medians of {arguments.repeats}: lab {lab:,.0f}, "
            f"Stable-Baselines3 {sb3:,.0f} frames/s, ratio {lab / sb3:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
