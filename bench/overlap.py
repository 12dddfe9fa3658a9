"""The gain of acting and learning at the same time, against its bound.

python -m bench.scaling sleeping humanoid_unrolls python -m bench.overlap --picture
eps.png      (the way of an unroll, and EPS for several K)

An iteration in which actors and learner alternate lasts T·t_env + t_learn. At the same
time, with N actors, it lasts at least max(T·t_env / N, t_learn). Both parts come from
an alternating run (`serial`), so the bound includes all work of a run.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.cases import Case, MujocoPPOCase, PPOCase
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.charts.chart import Bar, Ink, single
from slm_lab.charts.comparison import bar_panel
from slm_lab.charts.picture import render_png
from slm_lab.metrics.reader import Rows, read_rows
from slm_lab.parallel.actor_learner.actor import UnrollActor
from slm_lab.parallel.actor_learner.queue import ActorQueue, LearnerQueue, UnrollQueue
from slm_lab.parallel.actor_learner.unroll import UnrollMemory, UnrollWriter
from slm_lab.session.build import prototype
from slm_lab.session.experience import Clock
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.load import parse_spec
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.trial import Trial, TrialTask


class SleepingCase(PPOCase):
    """PPO where stepping takes time and no CPU."""

    def env_keys(self) -> dict[str, Any]:
        """A millisecond for each environment and step."""
        return {"seconds": 0.001, "vectorization_mode": "sync"}


class Overlap(NamedTuple):
    """A case and the numbers of actors to try it with."""

    case: Case
    actors: tuple[int, ...]


SLEEPING = "bench.sleeping:Sleeping-v0"
OVERLAPS = {
    "sleeping": Overlap(
        SleepingCase(SLEEPING, 4, 8_000, horizon=32, minibatch=32, epochs=16), (1, 2)
    ),
    "sleeping_long": Overlap(
        SleepingCase(SLEEPING, 4, 8_000, horizon=32, minibatch=32, epochs=4), (1, 2)
    ),
    "humanoid_unrolls": Overlap(
        MujocoPPOCase("Humanoid-v5", 8, 30_000, horizon=128, minibatch=256, epochs=4),
        (1,),
    ),
}


class Iteration(NamedTuple):
    """Of one run, s."""

    seconds: float
    """Between the ends of two iterations."""
    waited: float
    """Of them, by the learner for unrolls; in turn: acting."""
    lag: float


def iteration(case: Case, actors: int, serial: bool, per_row: int = 8) -> Iteration:
    """Of one training; rows come every so many iterations."""
    spec = case.spec()
    spec["env"]["max_frame"] = case.frames * actors
    spec["meta"] |= {
        "distributed": "actor_learner",
        "max_session": actors,
        "log_frequency": per_row
        * case.num_envs
        * spec["agent"]["algorithm"]["time_horizon"],
        "actor_learner": {"serial": serial},
    }
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir.create(Path(folder), "overlap", datetime.now())
        result = Trial(TrialTask(parse_spec("overlap", spec), run_dir, 0)).run()
        assert not result.failed, result.failed
        rows: Rows = read_rows(run_dir.session(0, 0).rows)
    # Of actors that are ready at the same time every second iteration is short: whole
    # rounds.
    last = len(rows) - 1
    count = (last - 1) // actors * actors
    took = float(rows["wall_t"][last] - rows["wall_t"][last - count]) / (
        count * per_row
    )
    waits = rows["learner_wait_share"][last - count + 1 :]
    return Iteration(
        took,
        float(np.nanmean(waits)) * took,
        float(np.nanmedian(rows["policy_lag"][1:])),
    )


def overlap(name: str, repeats: int) -> None:
    """Prints medians of one case: in turn, and at the same time with each number of
    actors."""
    case, actors = OVERLAPS[name]
    plans = [(1, True), *((count, False) for count in actors)]
    seen: dict[tuple[int, bool], list[Iteration]] = {plan: [] for plan in plans}
    for _ in range(repeats):
        for plan in plans:
            seen[plan].append(iteration(case, *plan))
    median = {
        plan: Iteration(*(statistics.median(each) for each in zip(*found, strict=True)))
        for plan, found in seen.items()
    }
    in_turn = median[1, True]
    acting, learning = in_turn.waited, in_turn.seconds - in_turn.waited
    print(f"{name}: medians of {repeats} runs, ms per iteration")
    print(
        f"  in turn   {in_turn.seconds * 1e3:8.1f}: {acting * 1e3:.1f} acting, "
        f"{learning * 1e3:.1f} learning"
    )
    for count in actors:
        least, taken = max(acting / count, learning), median[count, False]
        gain, bound = in_turn.seconds / taken.seconds, in_turn.seconds / least
        print(
            f"  {count} at once {taken.seconds * 1e3:8.1f}: {gain:.2f} of {bound:.2f} "
            f"times, {gain / bound:.0%}; policy lag {taken.lag:.1f}"
        )


class Slice(NamedTuple):
    """What was measured with K environments per actor."""

    num_envs: int
    in_turn: Iteration
    at_once: Iteration | None
    """With two actors."""


def slices() -> list[Slice]:
    """Repeats on MuJoCo the measurement of a study of overlapped acting, and prints
    each result.

    It counts environments per second whose unrolls the learner gets, for K environments
    per actor. One actor alternates with the learner; two act at the same time.
    """
    found = []
    for num_envs, repeats in ((32, 7), (48, 7), (96, 6), (192, 5)):
        frames = repeats * 512 * num_envs
        case = MujocoPPOCase(
            "Humanoid-v5",
            num_envs,
            frames,
            (32, 32, 32),
            3e-4,
            horizon=512,
            minibatch=4096,
            epochs=20,
            entropy_coef=0.01,
        )
        in_turn, at_once = iteration(case, 1, serial=True, per_row=1), None
        if num_envs != 192:
            at_once = iteration(
                replace(case, frames=frames // 2), 2, serial=False, per_row=1
            )
        found.append(Slice(num_envs, in_turn, at_once))
        measurements = [
            f"{how} {each.seconds:6.2f} s, EPS {num_envs / each.seconds:5.2f};"
            for how, each in (("in turn", in_turn), ("at once", at_once))
            if each is not None
        ]
        print(f"K = {num_envs:3}: {' '.join(measurements)}", flush=True)
    return found


def picture(found: list[Slice]) -> bytes:
    """EPS of each as bars, a PNG."""
    bars: list[Bar] = []
    for each in found:
        for label, one in (("in turn", each.in_turn), ("at once", each.at_once)):
            if one is not None:
                eps = each.num_envs / one.seconds
                strength = 0.45 if one is each.in_turn else 1.0
                bar = Bar(
                    label,
                    eps,
                    f"{eps:.2f}",
                    mark=np.nan,
                    ink=Ink(strength=strength),
                    group=f"K = {each.num_envs}",
                )
                bars.append(bar)
    subtitle = "unrolls of 512 steps × K environments; in turn: one actor, at once: two"
    panel = bar_panel("", "EPS", bars)
    return render_png(single("Learner throughput on Humanoid-v5", subtitle, panel))


def way() -> None:
    """Prints what the way of an unroll costs: from an actor's last step to a
    rollout."""
    for env, num_envs, horizon in (("LunarLander-v3", 8, 32), ("Humanoid-v5", 8, 128)):
        data = PPOCase(env, num_envs, 10**9, horizon=horizon, minibatch=64).spec()
        data["meta"] |= {"distributed": "actor_learner", "max_session": 1}
        spec = parse_spec("way", data)
        seeds = session_seeds(0, 0, 0)

        def writer(layout: MemoryLayout) -> UnrollWriter:
            return UnrollWriter(replace(layout, horizon=horizon))  # noqa: B023 - called at once

        with prototype(spec, seeds, writer) as (agent, one):
            queue = UnrollQueue.of(spec, agent, one, 0)
        status_board = StatusBoard.allocate(get_context("spawn"), 2)
        actor, learner, memory = (
            ActorQueue(queue, status_board, 0),
            LearnerQueue(queue, status_board),
            UnrollMemory(1),
        )
        clock = Clock(status_board.clock_slots[1:], 0, 10**9)
        rollout_actor = UnrollActor(spec, seeds, clock, queue.weights)
        queue.weights.publish(
            rollout_actor.agent.learner.flats, rollout_actor.env.statistics, 0
        )
        rollout_actor.reset()
        playing, passing = [], []
        for _ in range(30):
            slot = actor.next_slot()
            assert slot is not None
            began = time.perf_counter()
            rollout_actor.play(slot)
            played = time.perf_counter()
            actor.hand_over(played - began)
            received = learner.receive(0.0)
            assert received is not None
            memory.put(received[1])
            memory.take()
            learner.give_back(0)
            passing.append(time.perf_counter() - played)
            playing.append(played - began)
        rollout_actor.close()
        took, cost = statistics.median(playing) * 1e3, statistics.median(passing) * 1e3
        print(
            f"{env} {horizon} × {num_envs}: played in {took:.1f} ms, its way "
            f"{cost:.3f} ms: {cost / took:.2%}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", type=Path, help="a PNG file for the bars of EPS")
    arguments = parser.parse_args()
    way()
    measured = slices()
    if arguments.picture is not None:
        arguments.picture.write_bytes(picture(measured))
