"""What a Trial's parent does for Hogwild! workers: makes what they share, and asks them to save."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import final

import numpy as np

from slm_lab.core.types import StateDict
from slm_lab.experiment.checkpoint import CheckpointStore
from slm_lab.experiment.hogwild import GlobalState, Mode
from slm_lab.experiment.launch.processes import Processes
from slm_lab.experiment.launch.prototype import prototype
from slm_lab.experiment.placement import on_cpu
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import SessionResult
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.seeding import session_seeds
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.schema.spec import Spec

SHORTEST_INTERVAL = 1.0
"""Seconds between two checkpoints at least: all workers stand still for them."""
PAUSE_SHARE = 0.01
"""The share of the time that checkpoints may take: where they take long, there are fewer."""
HANG_SECONDS = 300.0
"""How long a worker may take to come to the end of its step until it is taken to hang."""
STOP_SECONDS = 5.0
"""How long a worker may take to come to the end of its step when the user waits for it."""


def global_state(
    spec: Spec,
    mode: Mode,
    run_dir: RunDir,
    trial: int,
    workers: range,
    root_seed: int,
    resume: bool,
) -> GlobalState:
    """Weights, optimizer state and statistics as the first of the Sessions `workers` alone would
    begin with them.

    With `resume` they are those of the newest checkpoint that has them.
    Raises LabError where shared memory has no room for them, or a GPU is required and missing.
    """
    seeds = session_seeds(root_seed, trial, workers.start)
    with prototype(spec, seeds) as (agent, env):
        state = GlobalState.of(mode, agent, env, len(workers))
    if resume:
        _restore(state, run_dir, trial, workers)
    return state


def of_workers(spec: Spec, mode: Mode) -> Spec:
    """What the workers are built from: "shared" is on the CPU unless a GPU is required."""
    if mode == "synced":
        return spec
    return spec.model_copy(update={"agent": on_cpu(spec.agent, only="auto")})


def _restore(state: GlobalState, run_dir: RunDir, trial: int, workers: range) -> None:
    newest = -1
    for saved in _saved(run_dir, trial, workers):
        total = sum(saved["frames"])
        if state.is_in(saved) and total >= newest:  # the later worker came later, if both have it
            newest = total
            state.load(saved)


def _saved(run_dir: RunDir, trial: int, workers: range) -> Iterator[StateDict]:
    """The checkpoints of the workers that have one."""
    for session in workers:
        paths = run_dir.session(trial, session)
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        if manifest is not None:
            yield store.load(manifest)


def as_left_off(tasks: Sequence[SessionTask], board: Board) -> list[SessionTask]:
    """The tasks of a resumed training, whose checkpoints have set the clocks of its `board`.

    Where another worker's checkpoint knows of more frames than one's own, because that one had died
    or died while saving, it goes on as one that is replaced: the total never goes back.
    """
    one, own = tasks[0], board.clock_slots.copy()
    for saved in _saved(one.run_dir, one.trial, one.workers):
        np.maximum(board.clock_slots, saved["frames"], out=board.clock_slots)
    behind = board.clock_slots > own
    why = "its last checkpoint is older than that of the others"
    return [
        replace(task, resume=False, replaces=why)
        if behind[task.workers.index(task.session)]
        else task
        for task in tasks
    ]


@final
class Checkpoints:
    """Asks the workers for a checkpoint from time to time."""

    def __init__(self, board: Board, interval: float) -> None:
        self._board = board
        self._shortest = max(interval, SHORTEST_INTERVAL)
        self._last = time.monotonic()

    def tick(self) -> list[int]:
        """To be called a few times a second; returns the workers that hang."""
        board = self._board
        running = [s for s in range(board.num_sessions) if board.phase(s) == Phase.RUNNING]
        pending = [s for s in running if board.copied[s] < board.save_requested]
        longest = max((int(board.parked[session]) for session in running), default=0)
        interval = max(self._shortest, longest / 1e6 / PAUSE_SHARE)
        since = time.monotonic() - self._last
        if running and not pending and since >= interval:
            board.request_save()
            self._last = time.monotonic()
        return pending if since >= HANG_SECONDS else []


def train_workers(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains the workers of one training, one process each; those that die are replaced.

    Raises LabError as `global_state` does.
    """
    one, workers = tasks[0], tasks[0].workers
    meta, mode = one.spec.meta, one.spec.meta.distributed
    assert mode in ("shared", "synced")
    where = one.run_dir, one.trial, workers
    common = global_state(one.spec, mode, *where, one.root_seed, one.resume)
    own_board = board.part(workers)
    tasks = as_left_off(tasks, own_board) if one.resume else tasks
    checkpoints = Checkpoints(own_board, meta.save_interval)
    spec = of_workers(one.spec, mode)
    shared = [replace(task, spec=spec, common=common) for task in tasks]
    processes = Processes(shared, board, len(shared), meta.max_restart, STOP_SECONDS)

    def tick() -> None:
        for worker in checkpoints.tick():
            why = f"its step has not come to an end for {HANG_SECONDS:g} s"
            processes.end_hung(workers[worker], why)
        on_tick()

    return processes.run(tick)
