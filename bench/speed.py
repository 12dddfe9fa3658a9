"""Training speed against Stable-Baselines3, on equal hyperparameters.

python -m bench.speed CASE… [--repeats 5] [--device cuda]

The libraries run by turns, each time in a fresh process with one thread. So a change in
the machine's load affects all. The result is the median of the rounds' ratios.
"stepping" is the environments alone, with random actions. PPO and SAC are also compared
with the same written out by hand, the floor. With `--device cuda` the networks of all
are on the GPU, and `lab_graph` is the lab with its gradient steps as CUDA graphs.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys

from bench.cases import CASES, PPOCase, SACCase


def measure(library: str, case: str, device: str) -> tuple[float, dict[str, float]]:
    """Frames per second of one run in a separate process, and the lab's shares of the
    time."""
    one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "bench.contestant", library, case, "--device", device],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **one_thread},
    )
    result = json.loads(done.stdout.splitlines()[-1])
    return float(result["frames_per_second"]), result.get("shares", {})


def main() -> None:
    """Prints every run as it ends, then the medians and the ratio of the lab to each
    other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    if importlib.util.find_spec("stable_baselines3") is None:
        parser.error(
            'there is nothing to compare with; run: pip install "slm-lab[bench]"'
        )
    for case in arguments.cases:
        others = ["sb3", "stepping"]
        others += ["floor"] if isinstance(CASES[case], PPOCase | SACCase) else []
        others += ["lab_graph"] if arguments.device == "cuda" else []
        speeds: dict[str, list[float]] = {library: [] for library in ("lab", *others)}
        for _ in range(arguments.repeats):
            for library, seen in speeds.items():
                speed, shares = measure(library, case, arguments.device)
                seen.append(speed)
                parts = ", ".join(
                    f"{part} {share:.0%}" for part, share in shares.items()
                )
                print(
                    f"{case:20} {library:9} {speed:9,.0f} frames/s {parts}", flush=True
                )
        median = {library: statistics.median(seen) for library, seen in speeds.items()}
        for other in others:
            ratios = [a / b for a, b in zip(speeds["lab"], speeds[other], strict=True)]
            print(
                f"{case:20} medians of {arguments.repeats}: lab {median['lab']:,.0f}, "
                f"{other} {median[other]:,.0f} frames/s, ratio "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to "
                f"{max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
