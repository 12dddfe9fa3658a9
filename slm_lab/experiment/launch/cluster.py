"""Sessions on a Ray cluster, one actor each; what they write comes back to the run folder here."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, final

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from slm_lab.agent.optim.gloo_peers import GlooPeers
from slm_lab.analysis.atomic import write_atomically
from slm_lab.core.errors import LabError
from slm_lab.experiment.all_reduce import AllReduce
from slm_lab.experiment.checkpoint import delete_unnamed
from slm_lab.experiment.crew import Crew
from slm_lab.experiment.launch.all_reduce import HANG_SECONDS, train_in_step
from slm_lab.experiment.launch.node import News, NodeSession, Saved
from slm_lab.experiment.launch.processes import TICK
from slm_lab.experiment.manifest import pending_path, previous_path, read_manifest
from slm_lab.experiment.place import HOW_TO_START
from slm_lab.experiment.progress import Board, Phase
from slm_lab.experiment.result import Ending, SessionResult
from slm_lab.experiment.worker import SessionTask

NEW_NODE_SECONDS = 60.0
"""How long a lost node may take to be replaced by another."""
NEWS_SECONDS = 1.0
"""Between two questions for news."""
STOP_SECONDS = 15.0
"""How long a Session may take to end when the user waits for it, the way of its files included."""


@final
@dataclass(frozen=True)
class Rendezvous:
    """Ranks anywhere that meet at an address."""

    host: str
    port: int
    size: int
    seconds: float
    """That bound every wait."""

    def crew(self, board: Board, worker: int) -> Crew:
        """See `MeetingPoint`."""
        own = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        peers = GlooPeers(self.host, self.port, worker, self.size, self.seconds, own)
        return AllReduce(board, peers)


@contextmanager
def connected(address: str) -> Iterator[None]:
    """A connection to a cluster that runs. Raises LabError where there is none at `address`.

    The lab starts no cluster and stops none: it only leaves this one.
    """
    if ray.is_initialized():
        yield
        return
    on_terminate = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        reason = str(error).splitlines()[0]
        raise LabError(f"there is no Ray cluster at {address}: {reason}; {HOW_TO_START}") from error
    finally:
        signal.signal(signal.SIGTERM, on_terminate)  # Ray's would end the process at once
    try:
        yield
    finally:
        ray.shutdown()


def size_of(address: str) -> tuple[float, float]:
    """The cores and GPUs of a cluster, whoever uses them. Raises LabError where there is none."""
    with connected(address):
        there = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return float(there.get("CPU", 0)), float(there.get("GPU", 0))


def train_seeds(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Independent Sessions, as many at a time as the cluster has room for.

    One whose node is lost goes on elsewhere from its last checkpoint, up to `max_restart` times.
    Raises LabError where there is no cluster.
    """
    one = tasks[0]
    with connected(str(one.spec.meta.cluster)):
        actors = Actors(tasks, board, together=False, max_restart=one.spec.meta.max_restart)
        return actors.run(on_tick)


def train_ranks(
    tasks: Sequence[SessionTask], board: Board, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """The ranks of one training, which begin again elsewhere when a node is lost.

    Raises LabError where there is no cluster.
    """

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        return Actors(ranks, board, together=True).run(on_tick)

    with connected(str(tasks[0].spec.meta.cluster)):
        return train_in_step(tasks, board, attempt)


@final
class Actors:
    """Runs tasks, one Ray actor each, as `Processes` does on one machine."""

    def __init__(
        self, tasks: Sequence[SessionTask], board: Board, together: bool, max_restart: int = 0
    ) -> None:
        self._tasks = {task.session: task for task in tasks}
        self._board = board
        self._together = together
        self._max_restart = max_restart
        self._restarts = dict.fromkeys(self._tasks, 0)
        self._actors: dict[int, Any] = {}
        self._ends: dict[Any, int] = {}
        """By the reference to its result, which Session it is of."""
        self._asked: dict[int, Any] = {}
        self._asked_at = 0.0
        self._saved: dict[int, Saved] = {}
        """Checkpoints that are not all here yet."""
        self._results: list[SessionResult] = []
        self._stop_seen: float | None = None
        self._room: Any = None
        """Of ranks, which can only begin together: what the cluster keeps for them."""

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
        """Waits until all ranks have room; False where the user gives up before.

        Raises LabError where the cluster is too small; after a node was lost another has some time
        to take its place.
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
        """What the cluster lacks, whoever else uses it; None where it is large enough."""
        there = ray.cluster_resources()  # type: ignore[no-untyped-call]
        count = len(self._tasks)
        for name, each in needs.items():
            if there.get(name, 0) < each * count:
                return (
                    f"{count} ranks need {each * count:g} {name} of the Ray cluster, which has "
                    f"{there.get(name, 0):g}; add nodes, or lower max_session"
                )
        return None

    def _look(self) -> None:
        """Takes in the news that have come, and asks for more from time to time."""
        stop = self._board.stop_requested
        for session, asked in list(self._asked.items()):
            if ray.wait([asked], timeout=0)[0]:
                del self._asked[session]
                self._take(session, _result_of(asked))
        if time.monotonic() - self._asked_at >= NEWS_SECONDS:
            self._asked_at = time.monotonic()
            for session in self._ends.values():
                if session not in self._asked:
                    self._asked[session] = self._actors[session].news.remote(stop)

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
        """Makes checkpoints valid that are here whole: of ranks, those of all at once."""
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
        """The end of a Session, with the last that it has written."""
        session = self._ends.pop(end)
        actor = self._actors[session]
        asked = self._asked.pop(session, None)
        if asked is not None:
            self._take(session, _result_of(asked))
        try:
            result: SessionResult = ray.get(end)
            self._take(session, ray.get(actor.news.remote(False), timeout=HANG_SECONDS))
            ray.get(actor.close.remote(), timeout=HANG_SECONDS)
        except RayError as error:
            result = self._lost(session, _why_lost(error))
        ray.kill(actor)
        del self._actors[session]
        if result.ending is Ending.FAILED and self._may_go_on(session, result):
            self._restarts[session] += 1
            self._board.write(session, phase=Phase.WAITING, restarts=self._restarts[session])
            again = replace(self._tasks[session], resume=True, begins_again=result.error)
            self._tasks[session] = again
            self._start([again])
            return
        if result.ending is Ending.FAILED:
            self._board.reasons[session] = str(result.error)
        restarts, why = self._restarts[session], self._tasks[session].begins_again
        self._results.append(replace(result, restarts=restarts, restarted_because=why))
        if self._together and result.ending is Ending.FAILED:
            self._end_others(session)

    def _may_go_on(self, session: int, result: SessionResult) -> bool:
        if self._together or self._board.stop_requested or result.would_repeat:
            return False
        return result.was_killed and self._restarts[session] < self._max_restart

    def _end_others(self, lost: int) -> None:
        for session in self._ends.values():
            why = f"ended, because Session {lost} did, which it trains in step with"
            self._results.append(replace(self._lost(session, why), lost_others=True))
            ray.kill(self._actors.pop(session))
        self._ends.clear()

    def _lost(self, session: int, why: str) -> SessionResult:
        self._board.write(session, phase=Phase.FAILED)
        self._board.reasons[session] = why
        frame = int(self._board.clock_slots[session])
        return SessionResult(session, Ending.FAILED, frame, why, lost=True)

    def _give_up_late(self) -> None:
        """Ends those that have not come to an end some time after the user asked for it."""
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
    """What a Session occupies; a GPU where its spec requires one."""
    gpu = any(net.gpu is True for net in task.spec.agent.nets.values())
    return {"CPU": float(task.spec.meta.threads), **({"GPU": 1.0} if gpu else {})}


def _actor(task: SessionTask, room: Any, place: int) -> Any:
    """In its `place` of a `room`; without one wherever there is space."""
    needs = _resources(task)
    where: Any = "SPREAD"
    if room is not None:
        where = PlacementGroupSchedulingStrategy(room, placement_group_bundle_index=place)
    options = {"max_concurrency": 2, "scheduling_strategy": where}
    remote = ray.remote(num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), **options)
    return remote(NodeSession).remote()


def _files_of(task: SessionTask) -> Mapping[str, bytes]:
    """What a Session needs of the run folder to go on; nothing where it begins anew."""
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


def _result_of(asked: Any) -> News | None:
    """None where the actor is lost; its end says so."""
    try:
        news: News | None = ray.get(asked)
    except RayError:
        return None
    return news
