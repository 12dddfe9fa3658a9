"""Training speed against another checkout, such as the commit before a change.

python -m bench.against FOLDER CASE… [--rounds 4]

The two train at the same time, on the same core, and their CPU time is compared. So the
load of the machine slows both alike: ratios of a commit to itself are within 0.5 %,
where speeds of runs by turns differ by 10 %. Both use this interpreter's packages.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from bench.cases import CASES

HERE = Path(__file__).parent.parent
TRAIN = """
import os, runpy, sys, time
core, case = sys.argv[1:]
os.sched_setaffinity(0, {int(core)})
time.perf_counter = time.process_time  # frames per second of CPU time
sys.argv = ["bench.contestant", "lab", case]
runpy.run_module("bench.contestant", run_name="__main__")
"""


def start(folder: Path, case: str, core: int) -> "subprocess.Popen[str]":
    """Starts a training by the code in a folder."""
    variables = {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": str(folder),
    }
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(core), case],
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def speed(training: "subprocess.Popen[str]") -> float:
    """The frames per second of CPU time, once it has ended."""
    output, _ = training.communicate()
    if training.returncode != 0:
        raise SystemExit(f"a training ended with {training.returncode}")
    return float(json.loads(output.splitlines()[-1])["frames_per_second"])


def main() -> None:
    """Prints the speed of this checkout as a share of the other's, per case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="the other checkout")
    parser.add_argument("cases", nargs="+", choices=list(CASES), metavar="CASE")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    if not (arguments.folder / "bench" / "contestant.py").is_file():
        parser.error(f"{arguments.folder} is no checkout with a folder bench")
    cores = sorted(os.sched_getaffinity(0))
    for case in arguments.cases:
        ratios = []
        for number in range(arguments.rounds):
            core = cores[number % len(cores)]
            other = start(arguments.folder.resolve(), case, core)
            ratios.append(speed(start(HERE, case, core)) / speed(other))
        shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"{case}: {statistics.median(ratios):.3f} of the other ({shown})")


if __name__ == "__main__":
    main()
