"""A training loop with a clock: the steps of a Session without rows, checkpoints and exchange."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import Any, final

import torch
from torch.utils.flop_counter import FlopCounterMode

from slm_lab.core.errors import LabError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import die_with_parent, keep_freed_memory, unblock_stop_signals
from slm_lab.parallel.processes import SPAWN, Child
from slm_lab.session.build import env_and_agent
from slm_lab.session.experience import observed
from slm_lab.session.seeding import session_seeds
from slm_lab.session.torch_setup import set_up_torch
from slm_lab.spec.schema.spec import Spec

ROUNDS, SECONDS = 3, 1.0
"""Turns of each spec, and how long one takes at least."""
MATRIX = 512
"""The size of the matrices whose product shows how fast the processor multiplies."""
READY_SECONDS, LONGEST_SECONDS, END_SECONDS = 300.0, 600.0, 3.0
"""How long processes wait for each other before a turn, and the caller for them to finish, and to
end."""


BOUNDS = {
    "update": "Python and the calls of small kernels",
    "acting": "Python and the calls of small kernels",
    "memory": "the agent's memory",
    "environment": "the environment",
}
"""The parts of a frame, and what bounds a training that consists most of this part."""


@final
@dataclass(frozen=True)
class Times:
    """Seconds per frame of one worker."""

    environment: float
    acting: float
    memory: float
    update: float
    event_frames: float
    """Frames between two training events."""
    multiplying: float = 0.0
    """The part of `update` that torch's products would take at the processor's best speed."""

    @property
    def total(self) -> float:
        """Of a frame."""
        return self.environment + self.acting + self.memory + self.update

    @property
    def shares(self) -> dict[str, float]:
        """Of a frame, the largest first."""
        seconds = {part: getattr(self, part) for part in BOUNDS}
        return {p: seconds[p] / self.total for p in sorted(BOUNDS, key=lambda p: -seconds[p])}

    @property
    def bound(self) -> str:
        """What makes the largest share as long as it is."""
        largest = next(iter(self.shares))
        if largest == "update" and self.multiplying > self.update / 2:
            return "arithmetic: the products of the networks"
        return BOUNDS[largest]


@final
class Loop:
    """An agent in its environments. A turn ends with a training event."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        set_up_torch(spec.meta.threads)
        self._env, self._agent = env_and_agent(spec, session_seeds(0, 0, 0))
        self._env.reset()
        self._frame = 0

    def turn(self, seconds: float) -> Times:
        """Trains for at least so long."""
        agent, env, now = self._agent, self._env, time.perf_counter
        set_up_torch(self._spec.meta.threads)
        acting = environment = memory = update = 0.0
        began, first, events = now(), self._frame, 0
        while True:
            t0, obs = now(), env.obs
            act = agent.act(obs, self._frame)
            t1 = now()
            step = env.step(act.action)
            t2 = now()
            agent.observe(observed(obs, act, step))
            self._frame += env.num_envs
            t3 = now()
            has_learned = agent.learn(self._frame) is not None
            events += has_learned
            t4 = now()
            acting, environment = acting + t1 - t0, environment + t2 - t1
            memory, update = memory + t3 - t2, update + t4 - t3
            if t4 - began >= seconds and (has_learned or agent.memory is None):
                frames = self._frame - first
                return Times(
                    environment / frames,
                    acting / frames,
                    memory / frames,
                    update / frames,
                    frames / max(events, 1),
                )

    def multiplying(self) -> float:
        """Seconds per frame, see `Times`."""
        if self._agent.memory is None:
            return 0.0
        first = self._frame
        with FlopCounterMode(display=False) as counter:
            self.turn(0.0)
        seconds: float = counter.get_total_flops() / _flops_per_second()
        return seconds / (self._frame - first)

    def close(self) -> None:
        """Frees the environments."""
        self._env.close()


def rehearse(
    specs: Sequence[Spec], workers: int, imports: tuple[str, ...]
) -> list[list[Times] | None]:
    """The times of each spec in each of so many processes at a time; None for a spec that cannot
    be built. The specs take turns. Raises LabError if a process ends early."""
    gate = SPAWN.Barrier(workers)
    children = [
        Child(_rehearse_main, (specs, gate, imports), f"probe-{index}") for index in range(workers)
    ]
    try:
        for child in children:
            child.start()
        ends = time.monotonic() + LONGEST_SECONDS
        of_workers = [_result(child, ends) for child in children]
    finally:
        for child in children:  # its environments may be processes, which it ends
            child.process.terminate()
            child.process.join(END_SECONDS)
            child.kill()
    return [None if None in of_spec else list(of_spec) for of_spec in zip(*of_workers, strict=True)]


def _result(child: Child, ends: float) -> list[Times | None]:
    while not child.has_ended:
        if time.monotonic() > ends:
            raise LabError(f"a rehearsal of the spec did not end within {LONGEST_SECONDS:g} s")
        time.sleep(0.05)
    result, how = child.end()
    if result is None:
        raise LabError(f"a rehearsal of the spec failed: its {how}")
    if isinstance(result, str):
        raise LabError(f"a rehearsal of the spec failed: {result}")
    times: list[Times | None] = result
    return times


def _rehearse_main(
    specs: Sequence[Spec],
    gate: Barrier,
    imports: tuple[str, ...],
    connection: Connection,
    parent: int,
) -> None:
    die_with_parent(parent)
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to the parent, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    unblock_stop_signals()
    with open(os.devnull, "w") as nowhere:  # environments print there, and say when they are killed
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    result: Any
    with ExitStack() as kept:
        try:
            import_plugins(imports)
            result = _in_turns([_loop(spec, spec is specs[0], kept) for spec in specs], gate)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
            gate.abort()
    connection.send(result)
    connection.close()
    sys.exit(0)


def _loop(spec: Spec, is_first: bool, kept: ExitStack) -> Loop | None:
    """The first spec is the user's: its error is reported. A change of it may not be possible."""
    try:
        return kept.enter_context(closing(Loop(spec)))
    except (LabError, ImportError):
        if is_first:
            raise
        return None


def _in_turns(loops: Sequence[Loop | None], gate: Barrier) -> list[Times | None]:
    built = [loop for loop in loops if loop is not None]
    for loop in built:
        loop.turn(0.0)  # until its first training event
    seen: dict[Loop, list[Times]] = {loop: [] for loop in built}
    for _ in range(ROUNDS):
        for loop in built:
            gate.wait(READY_SECONDS)
            seen[loop].append(loop.turn(SECONDS))
    typical = {loop: _median(turns) for loop, turns in seen.items()}
    users = built[0]
    typical[users] = replace(typical[users], multiplying=users.multiplying())
    return [None if loop is None else typical[loop] for loop in loops]


def _median(turns: Sequence[Times]) -> Times:
    """The turn with the median of the total."""
    middle = median(turn.total for turn in turns)
    return min(turns, key=lambda turn: abs(turn.total - middle))


def _flops_per_second() -> float:
    """Of a product of two float32 matrices."""
    a = torch.ones(MATRIX, MATRIX)
    seconds = []
    for _ in range(10):
        began = time.perf_counter()
        torch.mm(a, a)
        seconds.append(time.perf_counter() - began)
    return 2 * MATRIX**3 / median(seconds)
