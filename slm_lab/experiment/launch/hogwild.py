"""What a Trial's parent does for Hogwild! workers: makes what they share, and asks them to save."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import StateDict
from slm_lab.experiment.checkpoint import CheckpointStore, reading
from slm_lab.experiment.fit import check_finite
from slm_lab.experiment.hogwild import GlobalState, Mode
from slm_lab.experiment.launch.processes import Processes
from slm_lab.experiment.launch.prototype import prototype
from slm_lab.experiment.launch.silence import Silence
from slm_lab.experiment.placement import on_cpu
from slm_lab.experiment.progress import EARLY, Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.seeding import session_seeds
from slm_lab.experiment.worker import SessionTask
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.spec import Spec

SHORTEST_INTERVAL = 1.0
"""Seconds between two checkpoints at least: all workers stand still for them."""
PAUSE_SHARE = 0.01
"""The share of the time that checkpoints may take: where they take long, there are fewer."""
HANG_SECONDS = 300.0
"""How long a worker may take to start, or to come to the end of its step, until it is taken to
hang."""
STOP_SECONDS = 3.0
"""How long a worker may take to come to the end of its step when the user waits for it, and then
for the others: what all have learned is saved without it."""


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
    """What the workers are built from: "shared" is on the CPU unless a GPU is required, and target
    networks follow the steps of all, see `scaled`."""
    spec = scaled(spec)
    if mode == "synced":
        return spec
    return spec.model_copy(update={"agent": on_cpu(spec.agent, only="auto")})


def _restore(state: GlobalState, run_dir: RunDir, trial: int, workers: range) -> None:
    newest = (-1, -1)
    for file, saved in _saved(run_dir, trial, workers):
        with reading(file):
            if state.is_in(saved) and (age := state.age(saved)) > newest:
                newest = age
                units = saved["agent"]["learner"]["units"]
                check_finite({name: unit["flat"] for name, unit in units.items()}, file)
                state.load(saved)


def _saved(run_dir: RunDir, trial: int, workers: range) -> Iterator[tuple[Path, StateDict]]:
    """The checkpoints of the workers that have one, and that of their parent, if there is one, each
    with its file."""
    sessions = [run_dir.session(trial, session) for session in workers]
    for paths in [*sessions, run_dir.of_crew(trial, workers.start)]:
        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        if manifest is not None:
            yield store.file(manifest), store.load(manifest)


def as_left_off(tasks: Sequence[SessionTask], board: Board) -> list[SessionTask]:
    """The tasks of a resumed training, whose checkpoints have set the clocks of its `board`.

    Where another worker's checkpoint knows of more frames than one's own, because that one had died
    or died while saving, it goes on as one that is replaced: the total never goes back.
    """
    one, own = tasks[0], board.clock_slots.copy()
    for file, saved in _saved(one.run_dir, one.trial, one.workers):
        with reading(file):
            np.maximum(board.clock_slots, saved["frames"], out=board.clock_slots)
    behind = board.clock_slots > own
    why = "its last checkpoint is older than that of the others"
    return [
        replace(task, resume=False, replaces=why)
        if behind[task.workers.index(task.session)]
        else task
        for task in tasks
    ]


def remain_failed(tasks: Sequence[SessionTask], board: Board) -> list[SessionResult]:
    """Of a resumed training those that were lost for good, where the others have spent the budget:
    there is nothing left that they could do."""
    one = tasks[0]
    if board.clock_slots.sum() < one.spec.env.max_frame:
        return []
    ours = {task.session for task in tasks}
    before = _results_before(one.run_dir, one.trial)
    lost = [each for each in before if each.session in ours and each.ending is Ending.FAILED]
    for each in lost:
        board.write(one.workers.index(each.session), phase=Phase.FAILED)
    return lost


def _results_before(run_dir: RunDir, trial: int) -> list[SessionResult]:
    """How the Sessions ended when the training last came to an end; none where it never has."""
    try:
        told = json.loads(run_dir.trial_metrics_file(trial).read_text())["sessions"]
        return [SessionResult(**{**each, "ending": Ending(each["ending"])}) for each in told]
    except (OSError, ValueError, KeyError, TypeError):  # of another version, or damaged
        return []


@final
class Checkpoints:
    """Asks the workers for a checkpoint from time to time."""

    def __init__(self, board: Board, interval: float) -> None:
        self._board = board
        self._shortest = max(interval, SHORTEST_INTERVAL)
        self._last = time.monotonic()

    def tick(self) -> None:
        """To be called a few times a second."""
        board = self._board
        running = [s for s in range(board.num_sessions) if board.phase(s) == Phase.RUNNING]
        pending = [s for s in running if board.copied[s] < board.save_requested]
        longest = max((int(board.parked[session]) for session in running), default=0)
        interval = max(self._shortest, longest / 1e6 / PAUSE_SHARE)
        if running and not pending and time.monotonic() - self._last >= interval:
            board.request_save()
            self._last = time.monotonic()


@final
class Watch:
    """Looks for workers that neither start nor step."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._silence = Silence(board.num_sessions)

    def tick(self, waits_for_disk: Callable[[int], bool]) -> list[int]:
        """To be called a few times a second; returns the workers that hang."""
        workers = range(self._board.num_sessions)
        signs = [None if waits_for_disk(worker) else self._sign(worker) for worker in workers]
        silent = self._silence.seconds(signs)
        return [worker for worker in workers if silent[worker] >= HANG_SECONDS]

    def _sign(self, worker: int) -> tuple[int, ...] | None:
        """What changes as long as it gets on; None where it evaluates, or has come to its end."""
        board, phase = self._board, self._board.phase(worker)
        steps = phase is Phase.RUNNING and board.arrived[worker] < EARLY
        if not steps and phase is not Phase.STARTING:
            return None
        counts = board.clock_slots, board.arrived, board.copied
        return phase, board.read(worker).restarts, *(int(each[worker]) for each in counts)


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
    lost = remain_failed(tasks, own_board) if one.resume else []
    gone = {each.session for each in lost}
    spec = of_workers(one.spec, mode)
    shared = [replace(t, spec=spec, common=common) for t in tasks if t.session not in gone]
    processes = Processes(shared, board, len(shared), meta.max_restart, STOP_SECONDS)
    checkpoints, watch = Checkpoints(own_board, meta.save_interval), Watch(own_board)

    def tick() -> None:
        checkpoints.tick()
        for worker in watch.tick(lambda worker: processes.waits_for_disk(workers[worker])):
            what = "start" if own_board.phase(worker) is Phase.STARTING else "step"
            why = f"its {what} has not come to an end for {HANG_SECONDS:g} s"
            processes.end_hung(workers[worker], why)
        on_tick()

    results = processes.run(tick)
    if any(_was_given_up(each) for each in results):
        results = _save_for(results, common, one, own_board)
    return [*lost, *results]


def _was_given_up(result: SessionResult) -> bool:
    return result.ending is Ending.INTERRUPTED and result.error is not None


def _save_for(
    results: Sequence[SessionResult], common: GlobalState, one: SessionTask, board: Board
) -> list[SessionResult]:
    """Saves what all have in common in place of workers that did not come to save it."""
    paths = one.run_dir.of_crew(one.trial, one.workers.start)
    frames = board.clock_slots.tolist()
    try:
        state = {"frames": frames, **common.state_dict()}
        CheckpointStore(paths.models, paths.prefix).save(sum(frames), {}, {"state": state})
    except CheckpointError as error:
        return [replace(r, error=f"{r.error}\n{error}") if _was_given_up(r) else r for r in results]
    told = (
        f"its step did not end within {STOP_SECONDS:g} s of the stop: what all have learned is "
        "saved; it will go on in fresh episodes"
    )
    return [replace(r, error=told) if _was_given_up(r) else r for r in results]
