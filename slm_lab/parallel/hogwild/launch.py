"""The Trial parent's part in Hogwild! training: shared state, checkpoints, hang
detection."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.errors import CheckpointError, UnusableCheckpointError
from slm_lab.core.types import StateDict
from slm_lab.parallel.hogwild.strategy import GlobalState, HogwildMode, HogwildStrategy
from slm_lab.parallel.processes import Processes
from slm_lab.parallel.supervisor import STOP_SECONDS, Supervisor, replacement
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.virtual.simulation import Simulation, real_pace
from slm_lab.session.build import place_on_cpu, prototype
from slm_lab.session.initial import begin_with, check_finite
from slm_lab.session.status_board import EARLY, END, Phase, StatusBoard
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import CheckpointStore, reading
from slm_lab.storage.result import Ending, SessionResult, session_results

SHORTEST_INTERVAL = 1.0
"""Minimum seconds between two checkpoints: all workers pause for them."""
PAUSE_SHARE = 0.01
"""Maximum share of the time spent on checkpoints: slow ones are made less often."""


def global_state(mode: HogwildMode, task: SessionTask) -> GlobalState:
    """Weights, optimizer state and statistics, begun as in the first Session of a
    training. `task` is the task of any worker. If it resumes, they come from the newest
    checkpoint that has them. Raises LabError if shared memory has no room, or if a
    required GPU is missing. Raises UnusableCheckpointError if there are checkpoints and
    none has this state."""
    first = replace(task, session=task.workers.start)
    with prototype(task.spec, first.seeds) as (agent, env):
        if not (task.resume and any(store.manifest() for store in _stores(task))):
            rewards = task.spec.env.normalize_reward
            begin_with(task.paths.initial, agent, env.statistics, rewards)
        state = GlobalState.of(mode, agent, env, len(task.workers))
    newest = (-1, -1)
    file = None
    for file, saved in _saved(task) if task.resume else ():
        with reading(file):
            if not state.is_in(saved):
                continue
            progress = state.progress(saved)
            if progress > newest:
                newest = progress
                optimizers = saved["agent"]["learner"]["train_state"].items()
                check_finite(
                    {name: optimizer["flat"] for name, optimizer in optimizers}, file
                )
                state.load(saved)
    if file is not None and newest < (0, 0):  # killed during the first checkpoint
        raise UnusableCheckpointError(
            f"no checkpoint in {file.parent} has the optimizer's state; restore it, "
            "or start a new run"
        )
    return state


def worker_spec(spec: Spec, mode: HogwildMode) -> Spec:
    """The workers' spec. "shared" is on the CPU unless a GPU is required. Target
    networks count the steps of all workers, see `scaled`."""
    if mode == "synced":
        return scaled(spec)
    return place_on_cpu(scaled(spec), only="auto")


def _saved(task: SessionTask) -> Iterator[tuple[Path, StateDict]]:
    """The existing checkpoints of the workers and their parent, each with its file."""
    for store in _stores(task):
        manifest = store.manifest()
        if manifest is not None:
            yield store.file(manifest), store.load(manifest)


def _stores(task: SessionTask) -> list[CheckpointStore]:
    """The stores in which the workers and their parent save."""
    places = [replace(task, session=session).paths for session in task.workers]
    places.append(task.run_dir.shared_by_training(task.trial, task.workers.start))
    return [CheckpointStore(paths.models, paths.prefix) for paths in places]


def resumed_tasks(
    tasks: Sequence[SessionTask], status_board: StatusBoard
) -> list[SessionTask]:
    """The tasks of a resumed training. Advances the clocks of `status_board` to the
    newest saved frames. So that the total never decreases, a worker whose checkpoint
    lags resumes like a replacement."""
    slots = status_board.clock_slots.copy()
    for file, saved in _saved(tasks[0]):
        with reading(file):
            np.maximum(
                status_board.clock_slots, saved["frames"], out=status_board.clock_slots
            )
    behind = status_board.clock_slots > slots
    why = "its last checkpoint is older than that of the others"
    return [
        replace(task, resume=False, replaces=why)
        if behind[task.workers.index(task.session)]
        else task
        for task in tasks
    ]


def lost_results(
    tasks: Sequence[SessionTask], status_board: StatusBoard
) -> list[SessionResult]:
    """The workers of a resumed training that failed before; none while any budget is
    left. Shows them on the board as failed."""
    first = tasks[0]
    if status_board.clock_slots.sum() < first.spec.env.max_frame:
        return []
    ours = {task.session for task in tasks}
    try:
        file = first.run_dir.trial_metrics_file(first.trial)
        before = session_results(json.loads(file.read_text())["sessions"])
    # it has never ended, or its file is damaged
    except (OSError, ValueError, KeyError, TypeError):
        return []
    lost = [
        result
        for result in before
        if result.session in ours and result.ending is Ending.FAILED
    ]
    for result in lost:
        status_board.write(first.workers.index(result.session), phase=Phase.FAILED)
    return lost


@final
class Checkpoints:
    """Requests a checkpoint from the workers at intervals."""

    def __init__(
        self,
        status_board: StatusBoard,
        interval: float,
        pause_share: float = PAUSE_SHARE,
    ) -> None:
        self._status_board = status_board
        self._pause_share = pause_share
        self._shortest = max(interval, SHORTEST_INTERVAL)
        self._last = time.monotonic()

    def tick(self) -> None:
        """Requests a checkpoint if one is due; call it a few times a second."""
        status_board = self._status_board
        running = [
            s
            for s in range(status_board.num_sessions)
            if status_board.phase(s) == Phase.RUNNING
        ]
        pending = [
            s
            for s in running
            if status_board.checkpointed[s] < status_board.save_requested
        ]
        if any(status_board.saving[session] for session in running):
            self._last = time.monotonic()  # how long a disk takes is known at the end
        longest = max(
            (int(status_board.paused_us[session]) for session in running), default=0
        )
        interval = max(self._shortest, longest / 1e6 / self._pause_share)
        if running and not pending and time.monotonic() - self._last >= interval:
            status_board.request_save()
            self._last = time.monotonic()


def worker_due(status_board: StatusBoard, worker: int) -> bool | None:
    """Progress is due from a worker that starts or steps, in training or in an
    evaluation."""
    phase = status_board.phase(worker)
    steps = phase is Phase.RUNNING and status_board.at_barrier[worker] not in (
        EARLY,
        END,
    )
    if steps or phase is Phase.STARTING:
        return True
    return None


def train_workers(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains workers, one process each; replaces dead ones. Raises LabError as
    `global_state`."""
    first = tasks[0]
    workers = tasks[0].workers
    meta = first.spec.meta
    mode = first.spec.meta.distributed
    assert mode in ("shared", "synced")
    state = global_state(mode, first)
    own_status_board = status_board.part(workers)
    tasks = resumed_tasks(tasks, own_status_board) if first.resume else tasks
    lost = lost_results(tasks, own_status_board) if first.resume else []
    gone = {result.session for result in lost}
    spec = worker_spec(first.spec, mode)
    simulation = Simulation.of(meta, first.root_seed)
    make_strategy = partial(
        HogwildStrategy, state, pace=real_pace(meta), simulation=simulation
    )
    shared_tasks = [
        replace(task, spec=spec, make_strategy=make_strategy) for task in tasks
    ]
    supervisor = Supervisor(
        Processes(status_board),
        [task for task in shared_tasks if task.session not in gone],
        status_board,
        restart=replacement,
        max_restart=meta.max_restart,
    )
    supervisor.watch(workers, partial(worker_due, own_status_board))
    pause_share = PAUSE_SHARE
    if simulation is not None:
        pause_share = 1.0  # workers wait for each other in any case
    checkpoints = Checkpoints(own_status_board, meta.save_interval, pause_share)

    def tick() -> None:
        checkpoints.tick()
        on_tick()

    results = supervisor.run(tick)
    late = [
        result
        for result in results
        if result.ending is Ending.INTERRUPTED and result.error
    ]
    if late:
        note = _save_for_late(state, first, own_status_board)
        results = [
            replace(result, error=note) if result in late else result
            for result in results
        ]
    return [*lost, *results]


def _save_for_late(
    state: GlobalState, task: SessionTask, status_board: StatusBoard
) -> str:
    """Saves the shared state in place of workers that were killed before they could;
    returns what to report of them."""
    paths = task.run_dir.shared_by_training(task.trial, task.workers.start)
    frames = status_board.clock_slots.tolist()
    late = f"its step did not end within {STOP_SECONDS:g} s of the stop"
    try:
        saved = {"frames": frames, **state.state_dict()}
        CheckpointStore(paths.models, paths.prefix).save(
            sum(frames), {}, {"state": saved}
        )
    except CheckpointError as error:
        return f"{late}; it was killed\n{error}"
    return f"{late}: the shared weights are saved; it will resume in fresh episodes"
