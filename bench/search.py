"""The overhead of a search, and the gain of parallel trials.

python -m bench.search [--repeats 3]

start-up   from the command to the first trial's process, against 10 s
overhead   of a trial in a search over the same trial by `slm-lab run`, against 1.5 s
together   8 one-core trials on 2 cores, against the same one after another and 0.6

Needs a quiet machine of two cores. Searches run by turns; medians count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES

CASE = "ppo_cartpole"
PROGRAM = str(Path(sys.executable).with_name("slm-lab"))
TRIALS = 8
FRAMES = 100_000
FEW_FRAMES = 2_048
CORES = 2


def spec_file(folder: Path, trials: int, max_frame: int, cpu: float) -> Path:
    """A search over the learning rate, each trial one Session on one thread."""
    spec = CASES[CASE].spec()
    spec["env"]["max_frame"] = max_frame
    spec["meta"] |= {
        "max_trial": trials,
        "search_resources": {"cpu": cpu},
        "random_seed": 0,
    }
    spec["search"] = {"agent.net.optim_spec.lr__loguniform": [1e-4, 1e-3]}
    file = folder / f"search_{trials}_{max_frame}_{cpu:g}.json"
    file.write_text(json.dumps({CASE: spec}))
    return file


def seconds_of(mode: str, file: Path) -> float:
    """From the shell's prompt to the shell's prompt."""
    command = [
        PROGRAM,
        "run",
        str(file),
        CASE,
        mode,
        "--data",
        str(file.parent / "data"),
    ]
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def seconds_to_first_trial(file: Path) -> float:
    """Until the record says that a trial has begun."""
    data = file.parent / "data"
    known = set(data.glob("*/*_search.jsonl"))
    command = [PROGRAM, "run", str(file), CASE, "search", "--data", str(data)]
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not any(
        '"began"' in path.read_text()
        for path in data.glob("*/*_search.jsonl")
        if path not in known
    ):
        if process.poll() is not None:
            raise SystemExit("the search ended before a trial began")
        time.sleep(0.01)
    found = time.perf_counter() - began
    process.wait()
    return found


def measure(folder: Path, repeats: int) -> None:
    """All three, each search by turns with what it is compared with."""
    one, several = (spec_file(folder, count, FEW_FRAMES, CORES) for count in (1, 5))
    together, in_turn = (
        spec_file(folder, TRIALS, FRAMES, cpu) for cpu in (1.0, float(CORES))
    )
    seconds_of("train", one)  # measures the Random agent, once for the folder
    first, overhead, ratio = [], [], []
    for _ in range(repeats):
        first.append(seconds_to_first_trial(one))
        alone = seconds_of("train", one)
        each = (seconds_of("search", several) - seconds_of("search", one)) / 4
        overhead.append(each - alone)
        print(
            f"first trial after {first[-1]:.2f} s; a trial {each:.2f} s, alone "
            f"{alone:.2f} s"
        )
        side_by_side, one_by_one = (
            seconds_of("search", together),
            seconds_of("search", in_turn),
        )
        ratio.append(side_by_side / one_by_one)
        print(
            f"{TRIALS} trials {side_by_side:.1f} s together, {one_by_one:.1f} s in turn"
        )
    print(f"start-up {statistics.median(first):.2f} s, target 10 s")
    print(f"overhead of a trial {statistics.median(overhead):+.2f} s, target 1.5 s")
    print(f"together over in turn {statistics.median(ratio):.2f}, target 0.6")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments.repeats)


if __name__ == "__main__":
    main()
