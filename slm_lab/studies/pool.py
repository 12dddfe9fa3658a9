"""The slots in which the trainings of a study run.

A `Pool` gives each training a process, which starts and watches its Sessions, and
occupies cores and GPUs. A `SerialSlot` trains in this process, one at a time."""

import os
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, final

from typing_extensions import override

from slm_lab.core.errors import LabError, UsageError, limit_reached, undone_on_failure
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import (
    die_with_parent,
    ignore_terminal,
    kill_with_children,
    usable_cores,
)
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.processes import Child
from slm_lab.parallel.supervisor import STOP_SECONDS, TICK
from slm_lab.parallel.worker import note_in_log
from slm_lab.records.lock import RunLock
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.schema.meta import SearchResourcesSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.intact import fall_back
from slm_lab.storage.result import Ending, TrialResult
from slm_lab.studies.trial import Trial, TrialTask

SLACK = 1e-9
"""Tolerance for rounding: three requests of a third of a core fit on one core."""


class Request(NamedTuple):
    """The cores and GPUs that a trial occupies while it runs."""

    cpu: float
    gpu: float


class Allocation(NamedTuple):
    """The resources allocated to a trial; `gpus` are indices of this machine's GPUs."""

    request: Request
    gpus: tuple[int, ...]


def request_of(spec: Spec, resources: SearchResourcesSpec, cpus: float) -> Request:
    """A trial's request. `cpu = 1` means a core per thread of its Sessions, at most
    `cpus`."""
    num_threads = float(spec.meta.num_sessions // spec.meta.max_run * spec.meta.threads)
    return Request(
        min(num_threads, cpus) if resources.cpu == 1 else resources.cpu, resources.gpu
    )


@final
class Resources:
    """Free cores and GPUs. A trial takes a share of one GPU, or several whole GPUs."""

    def __init__(self, cpus: float, gpus: float) -> None:
        self.cpus = cpus
        self._free = cpus
        self._gpus = [1.0] * int(gpus)

    def limit(self, cpus: float) -> None:
        """Leaves all but `cpus` cores to other programs; call this while all are
        free."""
        self.cpus = min(self.cpus, cpus)
        self._free = self.cpus

    def check(self, request: Request) -> None:
        """Raises UsageError if a trial does not fit even when everything is free."""
        cores = ("cpu", "cores", self.cpus)
        gpus = ("gpu", "GPUs", len(self._gpus))
        for (name, what, total), need in zip((cores, gpus), request, strict=True):
            if need > total + SLACK:
                fix = "0, there is none"
                if total:
                    fix = f"at most {total:g}"
                raise UsageError(
                    f"meta.search_resources.{name} = {need:g}: a trial occupies more "
                    f"{what} than there are; set it to {fix}"
                )

    def has(self, request: Request) -> bool:
        """Whether the request fits now."""
        return (
            request.cpu <= self._free + SLACK and self._chosen(request.gpu) is not None
        )

    def take(self, request: Request) -> Allocation:
        """Allocates the request. It must fit."""
        gpus = self._chosen(request.gpu)
        assert gpus is not None
        self._free -= request.cpu
        for gpu in gpus:
            self._gpus[gpu] -= min(request.gpu, 1.0)
        return Allocation(request, gpus)

    def give_back(self, allocation: Allocation) -> None:
        """Frees an allocation."""
        self._free += allocation.request.cpu
        for gpu in allocation.gpus:
            self._gpus[gpu] += min(allocation.request.gpu, 1.0)

    def _chosen(self, need: float) -> tuple[int, ...] | None:
        """GPUs with room for the request, or None. Fullest first, so that others stay
        whole."""
        if not need:
            return ()
        share = min(need, 1.0)
        count = max(int(need), 1)
        fitting = [gpu for gpu, free in enumerate(self._gpus) if free >= share - SLACK]
        fitting.sort(key=lambda gpu: self._gpus[gpu])
        if len(fitting) >= count:
            return tuple(fitting[:count])
        return None


def local_resources(with_gpus: bool) -> Resources:
    """The cores that this process may run on, and the GPUs if `with_gpus`."""
    gpus = 0
    if with_gpus:
        import torch

        gpus = torch.cuda.device_count()
    return Resources(usable_cores(), gpus)


def resources_for(specs: Iterable[Spec], jobs: int | None) -> Resources:
    """The cores of this machine, or of the cluster that the specs name, at most `jobs`;
    None: all. Raises UsageError if they name several."""
    specs = tuple(specs)
    clusters = {spec.meta.cluster for spec in specs}
    if len(clusters) > 1:
        raise UsageError("meta.cluster must be the same in all trainings")
    cluster = clusters.pop()
    if cluster is None:
        needs_gpu = any(spec.meta.search_resources.gpu > 0 for spec in specs)
        resources = local_resources(with_gpus=needs_gpu)
    else:
        from slm_lab.parallel.ray.connect import size_of

        resources = Resources(*size_of(cluster))
    if jobs is not None:
        resources.limit(jobs)
    return resources


REPORT_SECONDS = 10.0
"""Time limit of a trial for its metrics after its Sessions have ended, in seconds."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that limits the GPUs CUDA shows to a process."""


class TrialEnd(NamedTuple):
    """How a trial ended, as its process reports it."""

    ending: Ending
    metrics: Mapping[str, float | None]
    error: str | None = None
    would_repeat: bool = False
    """Whether a restart from the last checkpoint would fail in the same way."""
    seconds: float = 0.0
    """How long it ran; the pool counts it."""
    frame: int = 0
    """The frames spent of its budget; the pool reads them."""


def trial_main(
    task: TrialTask,
    raw_status_board: Any,
    gpus: tuple[int, ...] | None,
    pipe: Connection,
    parent: int,
) -> None:
    """The target of a process: runs the Trial, sends its TrialEnd, exits. It dies with
    its parent, which stops it through the status board; a terminal's Ctrl-C does not
    reach it."""
    die_with_parent(parent)
    os.setpgid(0, 0)
    ignore_terminal()
    if gpus is not None:
        os.environ[VISIBLE] = ",".join(_visible(gpus))
    try:
        import_plugins(task.imports)
        if task.folder is not None:
            RunLock(task.run_dir.root)  # until this process ends
        if task.resume:
            log = task.run_dir.session(task.trial, 0).log  # a trial has no terminal
            note_in_log(log, fall_back(task.spec, task.run_dir, task.trial))
        status_board = StatusBoard(raw_status_board, task.spec.meta.num_sessions)
        outcome = trial_end(Trial(task, status_board=status_board).run())
        if (
            task.until is not None
            and outcome.ending is Ending.INTERRUPTED
            and not status_board.user_waits
        ):
            outcome = outcome._replace(ending=Ending.FINISHED)
        if task.final_episodes and outcome.ending is Ending.FINISHED:
            from slm_lab.studies.evaluation import evaluate_latest  # imports torch

            evaluate_latest(
                run_dir=task.run_dir,
                imports=task.imports,
                count=task.final_episodes,
                keep_playing=lambda: not status_board.stop_requested,
            )
            if status_board.stop_requested:
                outcome = outcome._replace(ending=Ending.INTERRUPTED)
    except KeyboardInterrupt:  # a stop while it connects to a cluster
        outcome = TrialEnd(Ending.INTERRUPTED, {})
    except Exception as error:
        message = isinstance(error, LabError | OSError)
        text = str(error) if message else traceback.format_exc()
        outcome = TrialEnd(
            Ending.FAILED, {}, text, would_repeat=isinstance(error, LabError)
        )
    pipe.send(outcome)
    pipe.close()


def _visible(gpus: tuple[int, ...]) -> list[str]:
    """The names of GPUs, by their indices among those visible to this process."""
    names = os.environ.get(VISIBLE, "").split(",")
    return [names[gpu] if names != [""] else str(gpu) for gpu in gpus]


def trial_end(result: TrialResult) -> TrialEnd:
    """How a Trial ended; it fails if any of its Sessions does."""
    from slm_lab.metrics.trial_metrics import TRIAL_METRICS

    metrics = {name: getattr(result.metrics, name) for name in TRIAL_METRICS}
    failed = [s for s in result.failed if not s.lost_others] or list(result.failed)
    if failed:
        text = f"Session {failed[0].session}: {failed[0].error}"
        again = any(session.would_repeat for session in failed)
        return TrialEnd(Ending.FAILED, metrics, text, again)
    if result.problem:
        return TrialEnd(Ending.FAILED, metrics, result.problem)
    ending = Ending.FINISHED
    if result.interrupted:
        ending = Ending.INTERRUPTED
    return TrialEnd(ending, metrics)


@final
class TrialProcess:
    """The process of a running trial. `gpus` are its visible GPUs of this machine;
    None: all."""

    def __init__(self, task: TrialTask, gpus: tuple[int, ...] | None = None) -> None:
        self.spec = task.spec
        self.status_board = StatusBoard.allocate(
            CONTEXT, task.spec.meta.num_sessions, task.spec.most_copies
        )
        self._began = time.monotonic()
        self._stopped_at: float | None = None
        self.child = Child(
            trial_main, (task, self.status_board.raw, gpus), f"trial-{task.trial}"
        )
        try:
            self.child.start()
        except OSError as error:
            why = limit_reached(error) or error
            raise LabError(f"its process could not be started: {why}") from error

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @property
    def frame(self) -> int:
        """The frames spent of its budget; with several trainings, the maximum."""
        meta = self.spec.meta
        slots = self.status_board.clock_slots
        by_learner = meta.mode.has_learner
        spent = [
            slots[sessions.start]
            if by_learner
            else slots[sessions.start : sessions.stop].sum()
            for sessions in meta.trainings
        ]
        return int(max(spent))

    def stop(self, user_waits: bool) -> None:
        """Makes its Sessions save and end."""
        self.status_board.request_stop(user_waits)
        if user_waits and self._stopped_at is None:
            self._stopped_at = time.monotonic()

    def take_end(self) -> TrialEnd | None:
        """The end of the trial, or None while it runs. Must not be called after an end.
        Kills the process if it hangs after the user's stop; the trial ends hung
        Sessions itself."""
        late = time.monotonic() - STOP_SECONDS - REPORT_SECONDS
        is_late = self._stopped_at is not None and self._stopped_at < late
        if is_late and not self.status_board.saving.any():
            kill_with_children(self.child.process)
        if not self.child.has_ended:
            return None
        outcome, how = self.child.end()
        return outcome or TrialEnd(Ending.FAILED, {}, f"its {how}")


class Slots(ABC):
    """The places where a study runs its trainings."""

    resources: Resources
    """What is free now."""
    running: Mapping[int, object]
    """The trainings that occupy a slot, by number."""

    @abstractmethod
    def start(self, trial: int, task: TrialTask, request: Request) -> None:
        """Gives a training a slot. There must be room. Raises LabError if it cannot be
        started."""

    @abstractmethod
    def wait(self) -> None:
        """Waits until a training may have ended."""

    @abstractmethod
    def take_ends(self) -> dict[int, TrialEnd]:
        """Frees the slots of trainings that have ended; returns how each ended."""

    @abstractmethod
    def frame_of(self, trial: int) -> int:
        """The frames of a training; 0 where they are unknown."""

    @abstractmethod
    def stop(self, trial: int) -> None:
        """Makes a training save and end."""

    @abstractmethod
    def stop_all(self) -> None:
        """Makes all trainings save and end, at the user's request."""

    @abstractmethod
    def kill_all(self) -> None:
        """Ends all trainings at once, and frees their slots."""


@final
class Pool(Slots):
    """A process for each training, as many as the resources allow."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources
        self.running: dict[int, TrialProcess] = {}
        self._allocations: dict[int, Allocation] = {}

    @override
    def start(self, trial: int, task: TrialTask, request: Request) -> None:
        allocation = self.resources.take(request)
        gpus = None
        # on a cluster a trial sees all GPUs, here its share
        if request.gpu and task.spec.meta.cluster is None:
            gpus = allocation.gpus
        with undone_on_failure(lambda: self.resources.give_back(allocation)):
            self.running[trial] = TrialProcess(task, gpus)
        self._allocations[trial] = allocation

    @override
    def wait(self) -> None:
        children = [process.child for process in self.running.values()]
        waitables = [waitable for child in children for waitable in child.waitables]
        wait(waitables, timeout=TICK)

    @override
    def take_ends(self) -> dict[int, TrialEnd]:
        ends = {}
        for trial, process in list(self.running.items()):
            end = process.take_end()
            if end is not None:
                self._forget(trial)
                ends[trial] = end._replace(seconds=process.seconds, frame=process.frame)
        return ends

    @override
    def frame_of(self, trial: int) -> int:
        if trial in self.running:
            return self.running[trial].frame
        return 0

    @override
    def stop(self, trial: int) -> None:
        self.running[trial].stop(user_waits=False)

    @override
    def stop_all(self) -> None:
        for process in self.running.values():
            process.stop(user_waits=True)

    @override
    def kill_all(self) -> None:
        for trial, process in list(self.running.items()):
            process.child.kill()
            self._forget(trial)

    def _forget(self, trial: int) -> None:
        del self.running[trial]
        self.resources.give_back(self._allocations.pop(trial))


@final
class SerialSlot(Slots):
    """The only slot of a study whose trainings run in this process, one at a time.
    `train` runs a training to its end. It raises LabError if the training fails,
    KeyboardInterrupt if the user stops it.

    Nothing is to be stopped or killed, because no training runs while a study
    decides. Each training shows its own frames."""

    def __init__(self, train: Callable[[int, TrialTask], TrialEnd]) -> None:
        self.resources = Resources(cpus=1.0, gpus=0.0)
        self.running: dict[int, TrialTask] = {}
        self._allocations: dict[int, Allocation] = {}
        self._train = train
        self._ends: dict[int, TrialEnd] = {}

    @override
    def start(self, trial: int, task: TrialTask, request: Request) -> None:
        self._allocations[trial] = self.resources.take(request)
        self.running[trial] = task

    @override
    def wait(self) -> None:
        for trial, task in self.running.items():
            try:
                self._ends[trial] = self._train(trial, task)
            except LabError as error:
                self._ends[trial] = TrialEnd(Ending.FAILED, {}, str(error))

    @override
    def take_ends(self) -> dict[int, TrialEnd]:
        ends = self._ends
        self._ends = {}
        for trial in ends:
            del self.running[trial]
            self.resources.give_back(self._allocations.pop(trial))
        return ends

    @override
    def frame_of(self, trial: int) -> int:
        return 0

    @override
    def stop(self, trial: int) -> None:
        pass

    @override
    def stop_all(self) -> None:
        pass

    @override
    def kill_all(self) -> None:
        pass
