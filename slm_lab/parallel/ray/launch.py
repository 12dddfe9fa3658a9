"""Sessions on a Ray cluster, one actor each; their files are copied to the run folder here."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.files import write_atomically
from slm_lab.parallel.all_reduce.gloo_group import GlooGroup
from slm_lab.parallel.all_reduce.launch import HANG_SECONDS, train_in_step
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.processes import TICK
from slm_lab.parallel.ray.connect import connected
from slm_lab.parallel.ray.node import News, NodeSession, Saved
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import Phase, StatusBoard
from slm_lab.session.strategy import Strategy, StrategyFactory
from slm_lab.storage.checkpoint import delete_unnamed
from slm_lab.storage.manifest import pending_path, previous_path, read_manifest
from slm_lab.storage.result import Ending, SessionResult

NEW_NODE_SECONDS = 60.0
"""How long a lost node may take to be replaced by another."""
NEWS_SECONDS = 1.0
"""Interval between two requests for news."""
STOP_SECONDS = 15.0
"""How long a Session may take to end and transfer its files when the user waits."""


@final
@dataclass(frozen=True)
class Rendezvous(StrategyFactory):
    """Makes the strategies of ranks on any machines, which connect at one address."""

    host: str
    port: int
    size: int
    seconds: float
    """Bound of every wait."""

    @override
    def strategy(self, board: StatusBoard, worker: int) -> Strategy:
        own = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        group = GlooGroup(self.host, self.port, worker, self.size, self.seconds, own)
        return AllReduceStrategy(board, group)


def train_seeds(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains independent Sessions, as many at a time as the cluster has room for.

    A Session whose node is lost resumes elsewhere from its last checkpoint, up to `max_restart`
    times. Raises LabError if there is no cluster.
    """
    meta = tasks[0].spec.meta
    with connected(str(meta.cluster)):
        actors = Actors(tasks, board, together=False, max_restart=meta.max_restart)
        return actors.run(on_tick)


def train_ranks(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains the ranks of one training, which restart elsewhere if a node is lost.

    Raises LabError if there is no cluster.
    """

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        return Actors(ranks, board, together=True).run(on_tick)

    with connected(str(tasks[0].spec.meta.cluster)):
        return train_in_step(tasks, board, attempt)


@final
class Actors:
    """Runs tasks, one Ray actor each, like `Processes` on one machine."""

    def __init__(
        self, tasks: Sequence[SessionTask], board: StatusBoard, together: bool, max_restart: int = 0
    ) -> None:
        self._tasks = {task.session: task for task in tasks}
        self._board = board
        self._together = together
        self._max_restart = max_restart
        self._restarts = dict.fromkeys(self._tasks, 0)
        self._actors: dict[int, Any] = {}
        self._ends: dict[Any, int] = {}
        """Sessions by the reference to their results."""
        self._requests: dict[int, Any] = {}
        self._requested_at = 0.0
        self._saved: dict[int, Saved] = {}
        """Received checkpoints that are not yet installed."""
        self._results: list[SessionResult] = []
        self._stop_seen: float | None = None
        self._room: Any = None
        """The placement group of ranks, which can only start together."""

    def run(self, on_tick: Callable[[], None]) -> list[SessionResult]:
        """Results in the order of the tasks; `on_tick` is called a few times a second."""
        tasks = list(self._tasks.values())
        try:
            if not self._together or self._has_room(on_tick):
                self._start(tasks)
            else:
                self._results = [self._interrupted(task.session) for task in tasks]
            while self._ends:
                done, _ = ray.wait(list(self._ends), num_returns=1, timeout=TICK)
                self._look()
                for end in done:
                    if end in self._ends:
                        self._collect(end)
                self._give_up_late()
                on_tick()
        finally:
            for actor in self._actors.values():
                ray.kill(actor)
            if self._room is not None:
                remove_placement_group(self._room)
        return sorted(self._results, key=lambda result: result.session)

    def _start(self, tasks: Sequence[SessionTask]) -> None:
        for place, task in enumerate(tasks):
            self._actors[task.session] = _actor(task, self._room, place)
        if self._together:
            address = self._actors[tasks[0].session].address.remote()
            try:
                host, port = ray.get(address, timeout=HANG_SECONDS)
            except RayError as error:
                self._results = [self._lost(task.session, _why_lost(error)) for task in tasks]
                return
            meeting = Rendezvous(host, port, len(tasks), HANG_SECONDS)
            tasks = [replace(task, common=meeting) for task in tasks]
        for task in tasks:
            end = self._actors[task.session].run.remote(task, _files_of(task))
            self._ends[end] = task.session

    def _has_room(self, on_tick: Callable[[], None]) -> bool:
        """Waits until all ranks have room; False if the user stops first.

        Raises LabError if the cluster is too small. After the loss of a node it first waits for a
        replacement.
        """
        first = next(iter(self._tasks.values()))
        needs = _resources(first)
        patience = 0.0 if first.begins_again is None else NEW_NODE_SECONDS
        self._room = placement_group([needs] * len(self._tasks), strategy="SPREAD")
        ready = self._room.ready()
        too_small_since: float | None = None
        while not ray.wait([ready], timeout=TICK)[0]:
            on_tick()
            if self._board.stop_requested:
                return False
            lack = self._lack(needs)
            if lack is None:
                too_small_since = None
                continue
            too_small_since = too_small_since or time.monotonic()
            if time.monotonic() - too_small_since >= patience:
                raise LabError(lack)
        return True

    def _lack(self, needs: Mapping[str, float]) -> str | None:
        """What the whole cluster lacks, free or used; None if it is large enough."""
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        count = len(self._tasks)
        for name, each in needs.items():
            if resources.get(name, 0) < each * count:
                return (
                    f"{count} ranks need {each * count:g} {name} of the Ray cluster, which has "
                    f"{resources.get(name, 0):g}; add nodes, or lower max_session"
                )
        return None

    def _look(self) -> None:
        """Processes news that have arrived, and requests more at intervals."""
        stop = self._board.stop_requested
        for session, request in list(self._requests.items()):
            if ray.wait([request], timeout=0)[0]:
                del self._requests[session]
                self._take(session, _result_of(request))
        if time.monotonic() - self._requested_at >= NEWS_SECONDS:
            self._requested_at = time.monotonic()
            for session in self._ends.values():
                if session not in self._requests:
                    self._requests[session] = self._actors[session].news.remote(stop)

    def _take(self, session: int, news: News | None) -> None:
        if news is None:
            return
        task = self._tasks[session]
        slots, cells = self._board.of_session(session)
        slots[:] = news.slots
        restarts = self._restarts[session]
        cells[:] = news.cells
        self._board.write(session, restarts=restarts)
        for name, content in news.files.items():
            path = task.run_dir.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        if news.saved is not None:
            paths = task.run_dir.session(task.trial, session)
            for name, content in news.saved.files.items():
                write_atomically(paths.models / name, content)
            self._saved[session] = news.saved
            self._install()

    def _install(self) -> None:
        """Makes complete checkpoints valid; those of ranks only together."""
        if self._together:
            serials = {saved.serial for saved in self._saved.values()}
            if len(self._saved) < len(self._tasks) or len(serials) > 1:
                return
        paths = {}
        for session, saved in self._saved.items():
            task = self._tasks[session]
            paths[session] = task.run_dir.session(task.trial, session)
            write_atomically(pending_path(paths[session].manifest), saved.manifest)
        for each in paths.values():
            before = read_manifest(each.manifest)
            if before is not None:
                write_atomically(previous_path(each.manifest), before.to_json().encode())
            os.replace(pending_path(each.manifest), each.manifest)
            kept = [before, read_manifest(each.manifest)]
            delete_unnamed(each.models, each.prefix, [each for each in kept if each is not None])
        self._saved.clear()

    def _collect(self, end: Any) -> None:
        """Collects the result of a Session and its last news."""
        session = self._ends.pop(end)
        actor = self._actors[session]
        request = self._requests.pop(session, None)
        if request is not None:
            self._take(session, _result_of(request))
        try:
            result: SessionResult = ray.get(end)
            self._take(session, ray.get(actor.news.remote(False), timeout=HANG_SECONDS))
            ray.get(actor.close.remote(), timeout=HANG_SECONDS)
        except RayError as error:
            result = self._lost(session, _why_lost(error))
        ray.kill(actor)
        del self._actors[session]
        if result.ending is Ending.FAILED and self._may_resume(session, result):
            self._restarts[session] += 1
            self._board.write(session, phase=Phase.WAITING, restarts=self._restarts[session])
            task = replace(self._tasks[session], resume=True, begins_again=result.error)
            self._tasks[session] = task
            self._start([task])
            return
        if result.ending is Ending.FAILED:
            self._board.reasons[session] = str(result.error)
        restarts, why = self._restarts[session], self._tasks[session].begins_again
        self._results.append(replace(result, restarts=restarts, restarted_because=why))
        if self._together and result.ending is Ending.FAILED:
            self._end_others(session)

    def _may_resume(self, session: int, result: SessionResult) -> bool:
        if self._together or self._board.stop_requested or result.would_repeat:
            return False
        return result.was_killed and self._restarts[session] < self._max_restart

    def _end_others(self, lost: int) -> None:
        for session in self._ends.values():
            why = f"ended because Session {lost} ended, which it trains in step with"
            self._results.append(replace(self._lost(session, why), lost_others=True))
            ray.kill(self._actors.pop(session))
        self._ends.clear()

    def _lost(self, session: int, why: str) -> SessionResult:
        self._board.write(session, phase=Phase.FAILED)
        self._board.reasons[session] = why
        frame = int(self._board.clock_slots[session])
        return SessionResult(session, Ending.FAILED, frame, why, lost=True)

    def _give_up_late(self) -> None:
        """Interrupts Sessions that have not ended within STOP_SECONDS of the user's stop."""
        if not self._board.stop_requested:
            return
        self._stop_seen = self._stop_seen or time.monotonic()
        if time.monotonic() - self._stop_seen > STOP_SECONDS:
            for session in self._ends.values():
                self._results.append(self._interrupted(session))
            self._ends.clear()

    def _interrupted(self, session: int) -> SessionResult:
        self._board.write(session, phase=Phase.STOPPED)
        frame = int(self._board.clock_slots[session])
        return SessionResult(session, Ending.INTERRUPTED, frame)


def _why_lost(error: RayError) -> str:
    return f"its node or its process was lost: {str(error).strip().splitlines()[0]}"


def _resources(task: SessionTask) -> dict[str, float]:
    """The resources of a Session; a GPU only if its spec requires one."""
    gpu = any(net.gpu is True for net in task.spec.agent.nets.values())
    return {"CPU": float(task.spec.meta.threads), **({"GPU": 1.0} if gpu else {})}


def _actor(task: SessionTask, room: Any, place: int) -> Any:
    """A Ray actor in bundle `place` of the placement group `room`; without one, anywhere."""
    needs = _resources(task)
    where: Any = "SPREAD"
    if room is not None:
        where = PlacementGroupSchedulingStrategy(room, placement_group_bundle_index=place)
    options = {"max_concurrency": 2, "scheduling_strategy": where}
    remote = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), **options)
    return remote(NodeSession).remote()


def _files_of(task: SessionTask) -> Mapping[str, bytes]:
    """The files of the run folder that a Session needs to resume; empty if it starts fresh."""
    if not task.resume:
        return {}
    paths = task.run_dir.session(task.trial, task.session)
    manifest = read_manifest(paths.manifest)
    if manifest is None:
        return {}
    root = task.run_dir.root
    wanted = [paths.manifest, *(paths.models / name for name in manifest.names)]
    wanted += [paths.info / name for name in manifest.rows]
    wanted += [paths.log] if paths.log.exists() else []
    return {str(path.relative_to(root)): path.read_bytes() for path in wanted}


def _result_of(request: Any) -> News | None:
    """The news; None if the actor is lost, which the end of its `run` call reports."""
    try:
        news: News | None = ray.get(request)
    except RayError:
        return None
    return news
