"""How a training scales: 1, 2 and 4 workers by turns, and what an exchange costs.

python -m bench.scaling [CASE…] [--workers 1 2 4] [--repeats 3]
python -m bench.scaling exchange      (an optimizer step, alone and beside another)

It compares the rate of all workers, once all run, with that of one worker in the same
mode. The rate is in gradient steps for Hogwild! workers, and in frames for ranks. For
actors and their learner see `bench.overlap`. `independent` are as many unrelated
Sessions: no mode can do better on the machine. For ranks it also prints the share of
the time that the exchange takes.
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bench.cases import A2CCase, Case, PPOCase, SACCase
from bench.overlap import OVERLAPS, overlap
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.agent.optim.optimizer import LearningRate, Optimizer
from slm_lab.agent.optim.rule import build_rule
from slm_lab.metrics.reader import read_rows
from slm_lab.parallel.hogwild.sync import SharedSync, SharedTrainState, SyncedSync
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.load import parse_spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask


class Plan(NamedTuple):
    """One way of training on a case."""

    label: str
    meta: dict[str, Any]


ALONE = Plan("independent", {"distributed": False})
SYNCED, SHARED = (Plan(mode, {"distributed": mode}) for mode in ("synced", "shared"))
LINEAR, STRONG = (
    Plan(scale, {"distributed": "all_reduce", "scale": scale})
    for scale in ("linear", "strong")
)

CASES: dict[str, tuple[Case, tuple[Plan, ...]]] = {
    "ppo_cartpole": (PPOCase("CartPole-v1", 8, 200_000), (SHARED, SYNCED)),
    "a3c_lunarlander": (
        A2CCase("LunarLander-v3", 8, 200_000, horizon=32, lr=7e-4),
        (SYNCED,),
    ),
    "async_sac_halfcheetah": (
        SACCase("HalfCheetah-v5", 1, 6_000, (256, 256), 3e-4),
        (SHARED,),
    ),
    "dppo_lunarlander": (
        PPOCase("LunarLander-v3", 8, 150_000, horizon=512),
        (LINEAR, STRONG),
    ),
    "dsac_halfcheetah": (
        SACCase("HalfCheetah-v5", 1, 6_000, (256, 256), 3e-4),
        (LINEAR, STRONG),
    ),
}
"""Frames are those of each worker."""
STEP_SECONDS = 2.0
"""How long the cost of an optimizer step is measured."""


class Speed(NamedTuple):
    """What all workers make together in a second."""

    frames: float
    updates: float
    sync_share: float
    """The share of the time; NaN without an exchange."""


class ProgressMonitor:
    """Notes how far the workers are."""

    def __init__(self, start: int) -> None:
        self._start = start
        self.seen: list[tuple[float, int]] = []
        """Time and frames of all, since each had made `start`."""
        self._over = False

    def __call__(self, status_board: StatusBoard) -> None:
        """To be called a few times a second."""
        slots = status_board.clock_slots
        begun = bool((slots >= self._start).all())
        running = all(
            status_board.read(s).phase.name == "RUNNING" for s in range(len(slots))
        )
        self._over = self._over or (begun and not running)
        if begun and not self._over:
            self.seen.append((time.perf_counter(), int(slots.sum())))


def measure(case: Case, plan: Plan, workers: int, folder: Path) -> Speed:
    """One training of so many workers, from their first updates to the end of the
    first.

    All share `folder`: the Random agent's return is measured there once, beside the
    first training. So it takes no core from the workers of the others.
    """
    spec = case.spec()
    frames = case.frames if plan is ALONE else case.frames * workers
    spec["env"]["max_frame"] = frames
    spec["meta"] |= {"max_session": workers, "log_frequency": 500, **plan.meta}
    start = getattr(case, "start", 0) + 500
    run_dir, watch = (
        RunDir.create(folder, "scaling", datetime.now()),
        ProgressMonitor(start),
    )
    parsed = parse_spec("scaling", spec)
    result = Trial(TrialTask(parsed, run_dir, 0, at_once=True), on_tick=watch).run()
    assert not result.failed, result.failed
    files = [run_dir.session(0, s).rows for s in range(workers)]
    rows = [read_rows(file) for file in files if file.exists()]
    (began, first), (ended, last) = watch.seen[0], watch.seen[-1]
    all_run = min(float(each["wall_t"][-1]) for each in rows)  # they begin together
    updates = 0.0
    for each in rows:
        trained = (each["frame"] >= start) & (each["wall_t"] <= all_run)
        steps, seconds = each["opt_step"][trained], each["wall_t"][trained]
        updates += float(np.ptp(steps) / np.ptp(seconds))
    shares = [each["sync_share"] for each in rows if "sync_share" in each.columns]
    share = float(np.nanmean(np.concatenate(shares))) if shares else float("nan")
    return Speed((last - first) / (ended - began), updates, share)


def scaling(name: str, workers: list[int], repeats: int) -> None:
    """Prints medians of one case: every number of workers in its modes, and independent
    ones."""
    case, modes = CASES[name]
    plans = [(plan, count) for plan in (*modes, ALONE) for count in workers]
    speeds: dict[tuple[str, int], list[Speed]] = {
        (p.label, count): [] for p, count in plans
    }
    with tempfile.TemporaryDirectory() as folder:
        for plan, count in plans * repeats:
            speed = measure(case, plan, count, Path(folder))
            speeds[plan.label, count].append(speed)
            print(f"{name} {plan.label:11} {count}  {_told(speed)}", flush=True)
    base, counted = workers[0], "frames" if LINEAR in modes else "updates"
    print(
        f"{name}: medians of {repeats}; {counted}/s over those of {base}, and "
        "efficiency"
    )
    for (label, count), seen in speeds.items():
        median = Speed(*(statistics.median(each) for each in zip(*seen, strict=True)))
        one = statistics.median(
            getattr(speed, counted) for speed in speeds[label, base]
        )
        ratio = getattr(median, counted) / one
        print(
            f"  {label:11} {count}  {_told(median)} {ratio:6.2f} "
            f"{ratio * base / count:5.0%}"
        )


def _told(speed: Speed) -> str:
    share = "" if np.isnan(speed.sync_share) else f" {speed.sync_share:5.1%} exchanging"
    return f"{speed.frames:10,.0f} frames/s {speed.updates:8,.1f} updates/s{share}"


SYNCS = {"shared": SharedSync, "synced": SyncedSync}


def step_optimizer(width: int) -> Optimizer:
    """That of a network of two layers."""
    net = nn.Sequential(
        nn.Linear(4, width),
        nn.Tanh(),
        nn.Linear(width, width),
        nn.Tanh(),
        nn.Linear(width, 2),
    )
    flat = FlatParameters(net)
    return Optimizer(flat, build_rule("GlobalAdam", {}, flat), LearningRate(1e-4), None)


def take_steps(
    mode: str, width: int, state: SharedTrainState | None, worker: int = 0
) -> float:
    """Microseconds of an optimizer step over `STEP_SECONDS`, on weights in `state` once
    all its workers step, or on its own."""
    torch.set_num_threads(1)
    optimizer = step_optimizer(width)
    if state is not None:
        SYNCS[mode](state, worker).join(optimizer)
        while not bool((state.updates > 0).all()):
            optimizer.apply()
    began = time.perf_counter()
    count = 0
    while time.perf_counter() < began + STEP_SECONDS:
        for _ in range(50):
            optimizer.apply()
        count += 50
    return (time.perf_counter() - began) / count * 1e6


def exchange() -> None:
    """Prints what an optimizer step costs: on weights of its own, and in either mode,
    alone and while another worker does nothing but step."""
    for width in (64, 256):
        alone = take_steps("shared", width, None)
        print(f"an optimizer step on [{width}, {width}]: {alone:.1f} µs")
        for mode in SYNCS:
            one = take_steps(mode, width, SharedTrainState.of(step_optimizer(width), 1))
            state = SharedTrainState.of(step_optimizer(width), 2)
            with ProcessPoolExecutor(2, get_context("spawn")) as pool:
                steps = [pool.submit(take_steps, mode, width, state, w) for w in (0, 1)]
                both = statistics.mean(step.result() for step in steps)
            print(f"  {mode}: {one:.1f} µs alone, {both:.1f} beside another worker")


def main() -> None:
    """Measures what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ["exchange", *CASES, *OVERLAPS]
    parser.add_argument("cases", nargs="*", choices=[[], *known], metavar="CASE")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.cases or known:
        if name == "exchange":
            exchange()
        elif name in CASES:
            scaling(name, arguments.workers, arguments.repeats)
        else:
            overlap(name, arguments.repeats)


if __name__ == "__main__":
    main()
