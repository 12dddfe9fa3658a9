"""What virtual time predicts, against what two cores measure.

python -m bench.virtual [CASE…] [--repeats 3]
python -m bench.virtual shared --workers 1 16 --contention 0.012 --only-virtual

One worker and two are trained in real time and in virtual time (`meta.simulate`), by
turns, with costs that one worker measures at the beginning of each repeat. It prints
medians: frames and gradient steps of all workers per second, the speed-up, and how old
gradients or unrolls are. Two actors and a learner would need three cores; so the actors
of that case mostly sleep.
"""

import argparse
import json
import statistics
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.cases import A2CCase, Case, PPOCase, SACCase
from bench.overlap import SLEEPING, SleepingCase
from slm_lab.metrics.reader import Rows, read_rows
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import parse_spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask
from slm_lab.studies.virtual_costs import with_costs


class Plan(NamedTuple):
    """A case in one mode."""

    case: Case
    meta: dict[str, Any]


SAC = SACCase("HalfCheetah-v5", 1, 4_000, (256, 256), 3e-4)
PPO = PPOCase("CartPole-v1", 8, 300_000)
PLANS = {
    "false": Plan(PPO, {"distributed": False}),
    "shared": Plan(PPO, {"distributed": "shared"}),
    "shared_sac": Plan(SAC, {"distributed": "shared"}),
    "synced": Plan(PPO, {"distributed": "synced"}),
    "synced_a2c": Plan(
        A2CCase("LunarLander-v3", 8, 200_000, horizon=32, lr=7e-4),
        {"distributed": "synced"},
    ),
    "all_reduce": Plan(PPO, {"distributed": "all_reduce", "scale": "linear"}),
    "all_reduce_sac": Plan(SAC, {"distributed": "all_reduce", "scale": "linear"}),
    "actor_learner": Plan(
        SleepingCase(SLEEPING, 4, 8_000, horizon=32, minibatch=32, epochs=4),
        {"distributed": "actor_learner"},
    ),
}
AGES = ("staleness_mean", "staleness_p95", "policy_lag")
ROWS = 10
"""Rows of a training."""


class Rates(NamedTuple):
    """Of one training, without its first rows."""

    frames: float
    """of all workers, per second"""
    updates: float
    ages: tuple[float, ...]
    """means of `AGES`; NaN where a mode has none"""


def rates(rows: list[Rows], start: int, *, together: bool) -> Rates:
    """Of the rows of all workers, while all of them train. Workers that train
    `together` each count the frames of all."""
    first = max(float(each["wall_t"][each["frame"] > start][0]) for each in rows)
    last = min(float(each["wall_t"][-1]) for each in rows)
    frames = []
    updates = []
    ages: dict[str, list[float]] = {name: [] for name in AGES}
    for each in rows:
        inside = (each["wall_t"] >= first) & (each["wall_t"] <= last)
        seconds = np.ptp(each["wall_t"][inside])
        frames.append(np.ptp(each["total_frame"][inside]) / seconds)
        updates.append(np.ptp(each["opt_step"][inside]) / seconds)
        for name in AGES:
            if name in each.columns:
                ages[name].append(float(np.nanmean(each[name][inside])))
    speed = np.mean(frames) if together else np.sum(frames)
    means = tuple(float(np.mean(seen)) if seen else np.nan for seen in ages.values())
    return Rates(float(speed), float(np.sum(updates)), means)


def spec_of(plan: Plan, workers: int) -> dict[str, Any]:
    """The training of so many workers."""
    spec = plan.case.spec()
    together = plan.meta["distributed"] is not False
    spec["env"]["max_frame"] = plan.case.frames * (workers if together else 1)
    spec["meta"] |= {
        "max_session": workers,
        "log_frequency": plan.case.frames // ROWS,
        **plan.meta,
    }
    return spec


def train(spec: dict[str, Any], folder: Path) -> list[Rows]:
    """The rows of all Sessions of one training."""
    parsed = parse_spec("virtual", spec)
    run_dir = RunDir.create(folder, "virtual", datetime.now())
    result = Trial(TrialTask(parsed, run_dir, 0, at_once=True)).run()
    assert not result.failed, result.failed
    files = [
        run_dir.session(0, session).rows for session in range(parsed.meta.num_sessions)
    ]
    return [read_rows(file) for file in files if file.exists()]


def costs_of(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The block `meta.simulate` with costs that are measured now."""
    spec = json.loads(json.dumps(spec))
    spec["meta"]["simulate"] = {"costs": None}
    file = folder / "virtual.json"
    file.write_text(json.dumps({"virtual": spec}))
    source = RunSource(spec_file=str(file))
    settings = with_costs(source.load(), source).meta.simulate
    assert settings is not None
    block: dict[str, Any] = settings.model_dump(mode="json", exclude_none=True)
    return block


def compare(name: str, options: argparse.Namespace) -> None:
    """Prints the medians of one plan."""
    counts: list[int] = options.workers
    kinds = ["virtual"] if options.only_virtual else ["measured", "virtual"]
    plan = PLANS[name]
    start = getattr(plan.case, "start", 0) + 500
    seen: dict[tuple[str, int], list[Rates]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repeats):
            simulate = costs_of(spec_of(plan, counts[0]), Path(folder))
            simulate["contention"] = options.contention
            for count in counts:
                for kind in kinds:
                    spec = spec_of(plan, count)
                    if kind == "virtual":
                        spec["meta"]["simulate"] = simulate
                    found = rates(
                        train(spec, Path(folder)),
                        start,
                        together=plan.meta["distributed"] is not False,
                    )
                    seen.setdefault((kind, count), []).append(found)
                    print(f"  {name} {count} {kind}: {found}", flush=True)
    for (kind, count), found in seen.items():
        frames = statistics.median(each.frames for each in found)
        one = statistics.median(each.frames for each in seen[kind, counts[0]])
        updates = statistics.median(each.updates for each in found)
        ages = np.median([each.ages for each in found], axis=0).round(2).tolist()
        print(
            f"{name:15} {count} {kind:8} {frames:10,.0f} frames/s {updates:8,.1f} "
            f"updates/s  × {frames / one:.2f}  {ages}",
            flush=True,
        )


def main() -> None:
    """Measures what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *PLANS], metavar="CASE")
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contention", type=float, default=0.0)
    parser.add_argument("--only-virtual", action="store_true")
    options = parser.parse_args()
    for name in options.cases or PLANS:
        compare(name, options)


if __name__ == "__main__":
    main()
