"""The overhead of a whole run beside the training itself.

python -m bench.whole startup     one PPO iteration as a whole process, against
Stable-Baselines3 python -m bench.whole rows        a row every 500 frames with graphs,
against none python -m bench.whole endurance   the speed and memory of a run of 2 M
frames, first against last

Needs a quiet machine. Contestants run by turns; medians count.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import psutil

from bench.cases import CASES

CASE = "ppo_cartpole"
MIB = 2**20


DRAWING = b"drawing the graphs"
"""What the lab prints when the training is over."""


class Whole(NamedTuple):
    """A process from its start to its end."""

    seconds: float
    before_drawing: float
    """Seconds until it draws; all if it draws nothing."""
    mib: float
    """The peak of memory, summed over the process and its children. Summed is the
    proportional set size: pages that processes share count once."""


def whole_process(arguments: list[str]) -> Whole:
    """Runs a command to its end."""
    began, draws_at = time.perf_counter(), None
    with tempfile.NamedTemporaryFile() as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.DEVNULL)
        root, peak = psutil.Process(process.pid), 0
        while process.poll() is None:
            if draws_at is None and DRAWING in Path(out.name).read_bytes():
                draws_at = time.perf_counter() - began
            peak = max(peak, _proportional_size(root))
            time.sleep(0.02)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed")
    seconds = time.perf_counter() - began
    return Whole(seconds, seconds if draws_at is None else draws_at, peak / MIB)


def _proportional_size(root: psutil.Process) -> int:
    size = 0
    try:
        for process in [root, *root.children(recursive=True)]:
            size += process.memory_full_info().pss
    except psutil.Error:  # it has just ended
        pass
    return size


def lab_run(folder: Path, **changes: int) -> list[str]:
    """The command that runs the case here, as a user would, in one Session."""
    spec = CASES[CASE].spec()
    spec["env"]["max_frame"] = changes.pop("max_frame")
    spec["meta"] |= changes
    file = folder / "spec.json"
    file.write_text(json.dumps({CASE: spec}))
    program = str(Path(sys.executable).with_name("slm-lab"))
    return [program, "run", str(file), CASE, "train", "--data", str(folder)]


def last_run(folder: Path) -> pd.DataFrame:
    """The rows of the newest run in `folder`."""
    newest = max(
        folder.glob("*/info/*_train.csv"), key=lambda path: path.stat().st_mtime
    )
    return pd.read_csv(newest)


def startup(folder: Path, repeats: int) -> None:
    """One rollout and its update, from prompt to prompt, and without the lab's
    pictures."""
    frames = 8 * 128
    commands = {
        "lab": lab_run(folder, max_frame=frames),
        "sb3": [
            sys.executable,
            "-m",
            "bench.contestant",
            "sb3",
            CASE,
            "--frames",
            str(frames),
        ],
    }
    whole_process(commands["lab"])  # measures the Random agent, once for the folder
    seen: dict[str, list[Whole]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            seen[name].append(whole_process(command))
            print(name, _text(seen[name][-1]), flush=True)
    for name, found in seen.items():
        middle = Whole(*map(statistics.median, zip(*found, strict=True)))
        print(f"{name}: medians of {repeats}: {_text(middle)}")


def _text(whole: Whole) -> str:
    drawing = whole.seconds - whole.before_drawing
    return (
        f"{whole.before_drawing:.2f} s + {drawing:.2f} s of pictures, {whole.mib:.0f} "
        "MiB"
    )


def rows(folder: Path, repeats: int) -> None:
    """Training time of 200 k frames, with a row and live graphs every 500 frames, and
    with none."""
    frames = CASES[CASE].frames
    seen: dict[int, list[float]] = {500: [], frames: []}
    for _ in range(repeats):
        for frequency, found in seen.items():
            whole_process(lab_run(folder, max_frame=frames, log_frequency=frequency))
            found.append(float(last_run(folder)["wall_t"].iloc[-1]))
            print(f"log_frequency {frequency}: {found[-1]:.3f} s", flush=True)
    often, never = (statistics.median(found) for found in seen.values())
    print(
        f"medians of {repeats}: {often:.3f} s and {never:.3f} s, "
        f"{often / never - 1:+.1%}"
    )


def endurance(folder: Path, repeats: int) -> None:
    """Frames per second of the first and the last tenth, and the size of the Session's
    process."""
    command = lab_run(folder, max_frame=2_000_000, log_frequency=10_000)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    sizes = []
    while process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        sizes.append(
            max((child.memory_info().rss for child in children), default=0) / MIB
        )
        time.sleep(1.0)
    speeds = last_run(folder)["fps"]
    tenth = len(speeds) // 10
    first, last = (
        speeds.iloc[1 : tenth + 1].median(),
        speeds.iloc[-tenth - 1 : -1].median(),
    )
    settled = sizes[len(sizes) // 10 : -2]
    print(
        f"first tenth {first:,.0f}, last tenth {last:,.0f} frames/s: "
        f"{last / first - 1:+.1%}"
    )
    print(
        f"memory {settled[0]:.0f} MiB after a tenth, {settled[-1]:.0f} MiB at the end"
    )


def main() -> None:
    """Measures what the argument names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    choices = {"startup": startup, "rows": rows, "endurance": endurance}
    parser.add_argument("what", choices=list(choices))
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        choices[arguments.what](Path(folder), arguments.repeats)


if __name__ == "__main__":
    main()
