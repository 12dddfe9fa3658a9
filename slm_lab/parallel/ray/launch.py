"""Sessions on a Ray cluster, one actor each; their files are copied to the run folder here."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, final

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slm_lab.core.errors import LabError
from slm_lab.core.files import write_atomically
from slm_lab.parallel.all_reduce.gloo_group import GlooGroup
from slm_lab.parallel.all_reduce.launch import train_in_step
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.hang_detector import HANG_SECONDS
from slm_lab.parallel.ray.connect import connected, lack, why_lost
from slm_lab.parallel.ray.node import News, NodeSession, Saved
from slm_lab.parallel.supervisor import TICK, Ended, Supervisor, resumed
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Strategy, StrategyFactory
from slm_lab.storage.checkpoint import delete_unnamed
from slm_lab.storage.manifest import pending_path, previous_path, read_manifest
from slm_lab.storage.result import SessionResult

NEW_NODE_SECONDS = 60.0
"""How long a lost node may take to be replaced by another."""
NEWS_SECONDS = 1.0
"""Interval between two requests for news."""
STOP_SECONDS = 15.0
"""How long a Session may take to end and transfer its files when the user waits."""


def strategy_at(
    host: str, port: int, size: int, seconds: float, board: StatusBoard, rank: int
) -> Strategy:
    """The strategy of one of `size` ranks that connect at one address; `seconds` bounds waits."""
    own = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    return AllReduceStrategy(board, GlooGroup(host, port, rank, size, seconds, own))


def train_seeds(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains independent Sessions, as many at a time as the cluster has room for.

    A Session whose node is lost resumes elsewhere from its last checkpoint, up to `max_restart`
    times. Raises LabError if there is no cluster.
    """
    meta = tasks[0].spec.meta
    with connected(str(meta.cluster)):
        supervisor = Supervisor(
            ClusterSessions(board),
            tasks,
            board,
            restart=resumed,
            max_restart=meta.max_restart,
            stop_seconds=STOP_SECONDS,
        )
        return supervisor.run(on_tick)


def train_ranks(
    tasks: Sequence[SessionTask], board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains the ranks of one training, which restart elsewhere if a node is lost.

    Raises LabError if there is no cluster.
    """

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        room = Room(ranks)
        try:
            room.wait(board, on_tick)
            sessions, vital = ClusterSessions(board, room), [rank.session for rank in ranks]
            supervisor = Supervisor(sessions, ranks, board, stop_seconds=STOP_SECONDS, vital=vital)
            return supervisor.run(on_tick)
        finally:
            room.close()

    with connected(str(tasks[0].spec.meta.cluster)):
        return train_in_step(tasks, board, attempt)


@final
class Room:
    """Resources for all ranks of a training, which can only start together."""

    def __init__(self, ranks: Sequence[SessionTask]) -> None:
        self._needs = _resources(ranks[0])
        self.size = len(ranks)
        self._patience = 0.0 if ranks[0].restarted_because is None else NEW_NODE_SECONDS
        self.group: Any = placement_group([self._needs] * self.size, strategy="SPREAD")

    def wait(self, board: StatusBoard, on_tick: Callable[[], None]) -> None:
        """Waits until all ranks have room, or a stop is requested.

        Raises LabError if the cluster is too small. After the loss of a node it first waits for a
        replacement.
        """
        ready = self.group.ready()
        too_small_since: float | None = None
        while not ray.wait([ready], timeout=TICK)[0] and not board.stop_requested:
            on_tick()
            missing = lack(self.size, "ranks", self._needs)
            if missing is None:
                too_small_since = None
                continue
            too_small_since = too_small_since or time.monotonic()
            if time.monotonic() - too_small_since >= self._patience:
                raise LabError(missing)

    def close(self) -> None:
        """Frees the resources."""
        remove_placement_group(self.group)


@final
class ClusterSessions:
    """A `Runner` with one Ray actor for each Session.

    With `room` the Sessions are ranks, which connect to each other.
    """

    def __init__(self, board: StatusBoard, room: Room | None = None) -> None:
        self._board = board
        self._room = room
        self._meeting: StrategyFactory | None = None
        self._tasks: dict[int, SessionTask] = {}
        self._actors: dict[int, Any] = {}
        self._ends: dict[Any, int] = {}
        """Sessions by the reference to their results."""
        self._requests: dict[int, Any] = {}
        self._requested_at = 0.0
        self._saved: dict[int, Saved] = {}
        """Received checkpoints that are not yet installed."""

    @property
    def running(self) -> Collection[int]:
        """The Sessions that have an actor now."""
        return self._actors.keys()

    def start(self, task: SessionTask) -> Ended | None:
        """Starts an actor; the first rank's node is where all ranks connect."""
        actor = _actor(task, self._room, len(self._actors))
        try:
            if self._room is not None and self._meeting is None:
                host, port = ray.get(actor.address.remote(), timeout=HANG_SECONDS)
                size = self._room.size
                self._meeting = partial(strategy_at, host, port, size, HANG_SECONDS)
        except RayError as error:
            ray.kill(actor)
            return _lost(task.session, error)
        if self._meeting is not None:
            task = replace(task, common=self._meeting)
        self._tasks[task.session], self._actors[task.session] = task, actor
        self._ends[actor.run.remote(task, _files_of(task))] = task.session
        return None

    def ended(self, seconds: float) -> list[Ended]:
        """Waits up to `seconds` for a Session to end; takes its last news."""
        done, _ = ray.wait(list(self._ends), num_returns=1, timeout=seconds)
        self._look()
        return [self._collect(end) for end in done]

    def waits_for_disk(self, session: int) -> bool:
        """False: Ray detects lost nodes itself."""
        return False

    def kill(self, session: int) -> None:
        """Kills the actor of a Session; `ended` reports it later."""
        ray.kill(self._actors[session])

    def close(self) -> None:
        """Kills all actors."""
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors.clear()
        self._ends.clear()

    def _look(self) -> None:
        """Processes news that have arrived, and requests more at intervals."""
        stop = self._board.stop_requested
        for session, request in list(self._requests.items()):
            if ray.wait([request], timeout=0)[0]:
                self._take(session)
        if time.monotonic() - self._requested_at >= NEWS_SECONDS:
            self._requested_at = time.monotonic()
            for session in self._ends.values():
                if session not in self._requests:
                    self._requests[session] = self._actors[session].news.remote(stop)

    def _take(self, session: int) -> None:
        """Waits for the requested news, if any, and processes them.

        A lost actor has none; the end of its `run` call reports that.
        """
        news: News | None = None
        with suppress(RayError):
            request = self._requests.pop(session, None)
            news = None if request is None else ray.get(request)
        if news is not None:
            self._process(session, news)

    def _process(self, session: int, news: News) -> None:
        task = self._tasks[session]
        restarts = self._board.read(session).restarts  # its node does not know
        self._board.records[session : session + 1] = news.record
        self._board.write(session, restarts=restarts)
        for name, content in news.files.items():
            path = task.run_dir.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        if news.saved is not None:
            for name, content in news.saved.files.items():
                write_atomically(task.paths.models / name, content)
            self._saved[session] = news.saved
            self._install()

    def _install(self) -> None:
        """Makes complete checkpoints valid; those of ranks only together."""
        if self._room is not None:
            serials = {saved.serial for saved in self._saved.values()}
            if len(self._saved) < self._room.size or len(serials) > 1:
                return
        paths = [self._tasks[session].paths for session in self._saved]
        for each, saved in zip(paths, self._saved.values(), strict=True):
            write_atomically(pending_path(each.manifest), saved.manifest)
        for each in paths:
            before = read_manifest(each.manifest)
            if before is not None:
                write_atomically(previous_path(each.manifest), before.to_json().encode())
            os.replace(pending_path(each.manifest), each.manifest)
            kept = [before, read_manifest(each.manifest)]
            delete_unnamed(each.models, each.prefix, [one for one in kept if one is not None])
        self._saved.clear()

    def _collect(self, end: Any) -> Ended:
        """The end of a Session, after its last news."""
        session = self._ends.pop(end)
        actor = self._actors.pop(session)
        self._take(session)
        try:
            result: SessionResult = ray.get(end)
            self._process(session, ray.get(actor.news.remote(False), timeout=HANG_SECONDS))
            ray.get(actor.close.remote(), timeout=HANG_SECONDS)
            return Ended(session, result)
        except RayError as error:
            return _lost(session, error)
        finally:
            ray.kill(actor)


def _lost(session: int, error: RayError) -> Ended:
    return Ended(session, None, why_lost(error), lost=True)


def _resources(task: SessionTask) -> dict[str, float]:
    """The resources of a Session; a GPU only if its spec requires one."""
    gpu = any(net.gpu is True for net in task.spec.agent.nets.values())
    return {"CPU": float(task.spec.meta.threads), **({"GPU": 1.0} if gpu else {})}


def _actor(task: SessionTask, room: Room | None, place: int) -> Any:
    """A Ray actor in bundle `place` of `room`; without one, anywhere."""
    needs = _resources(task)
    where: Any = "SPREAD"
    if room is not None:
        where = PlacementGroupSchedulingStrategy(room.group, placement_group_bundle_index=place)
    options = {"max_concurrency": 2, "scheduling_strategy": where}
    remote = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), **options)
    return remote(NodeSession).remote()


def _files_of(task: SessionTask) -> Mapping[str, bytes]:
    """The files of the run folder that a Session needs to resume; empty if it starts fresh."""
    if not task.resume:
        return {}
    paths, root = task.paths, task.run_dir.root
    manifest = read_manifest(paths.manifest)
    if manifest is None:
        return {}
    wanted = [paths.manifest, *(paths.models / name for name in manifest.names)]
    wanted += [paths.info / name for name in manifest.rows]
    wanted += [paths.log] if paths.log.exists() else []
    return {str(path.relative_to(root)): path.read_bytes() for path in wanted}
