"""Sessions on a Ray cluster, one actor each. A `Node` runs its Session in a temporary
folder there; the files are copied to the run folder here."""

import logging
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, final

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.files import write_atomically
from slm_lab.core.plugins import look_in_working_directory
from slm_lab.core.text import count_text
from slm_lab.core.types import Array
from slm_lab.parallel import supervisor as supervision
from slm_lab.parallel.all_reduce.launch import MakeStrategy, train_in_step
from slm_lab.parallel.all_reduce.process_groups import GlooGroup
from slm_lab.parallel.all_reduce.strategy import AllReduceStrategy
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.hang_detector import HANG_SECONDS
from slm_lab.parallel.ray.connect import connected, loss_reason, missing_resources
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.wait import wait_until
from slm_lab.parallel.worker import run_session
from slm_lab.session.status_board import StatusBoard
from slm_lab.session.strategy import Strategy, StrategyFactory
from slm_lab.storage.checkpoint import delete_unnamed
from slm_lab.storage.manifest import (
    Manifest,
    pending_path,
    previous_path,
    read_manifest,
)
from slm_lab.storage.result import SessionResult
from slm_lab.storage.run_dir import FOLDERS, RunDir, SessionPaths


class NodeUpdate(NamedTuple):
    """Changes on a node since the last request."""

    record: Array
    """(1,) The Session's record on its `StatusBoard`."""
    files: Mapping[str, bytes]
    """Changed files by their path in the run folder; in `model` only files that the
    manifest names."""
    manifest: Manifest | None
    """The manifest of the newest checkpoint, if it is new."""


class NodeSession:
    """Runs one Session in one thread; reports its progress and files in another."""

    def __init__(self, folder: str) -> None:
        """`folder` is the working directory of the training, which may hold modules."""
        look_in_working_directory(folder)
        _remove_stale_folders()
        self._root = Path(tempfile.mkdtemp(prefix=f"slm_lab_{os.getpid()}_"))
        self._status_board: StatusBoard | None = None
        self._task: SessionTask | None = None
        self._stamps: dict[str, tuple[int, int]] = {}
        """Size and modification time (ns) of each file that the Trial's parent has."""
        self._manifest: Manifest | None = None

    def address(self) -> tuple[str, int]:
        """An address at which other nodes can reach this one, and a free port."""
        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        family = socket.AF_INET
        if ":" in host:
            family = socket.AF_INET6
        with socket.create_server((host, 0), family=family) as free:
            return host, free.getsockname()[1]

    def run(self, task: SessionTask, files: Mapping[str, bytes]) -> SessionResult:
        """Runs the Session to its end; `files` are its files of the run folder, by
        path."""
        logging.getLogger("slm_lab").propagate = False  # its own text log is sent
        for folder in FOLDERS:
            (self._root / folder).mkdir()
        for name, content in files.items():
            (self._root / name).write_bytes(content)
        task = replace(task, run_dir=RunDir(self._root, task.run_dir.spec_name))
        self._manifest = read_manifest(task.paths.manifest)
        self._stamps = self._files(self._manifest)
        self._status_board = StatusBoard.allocate(CONTEXT, task.num_sessions)
        self._task = task
        return run_session(task, self._status_board)

    def news(self, stop: bool) -> NodeUpdate | None:
        """The changes since the last request; None before the Session starts. `stop`
        requests it to save and end."""
        status_board = self._status_board
        task = self._task
        if status_board is None or task is None:
            return None
        if stop:
            status_board.request_stop()
        record = status_board.records[task.session : task.session + 1].copy()
        # first: the files that it names are complete
        manifest = read_manifest(task.paths.manifest)
        stamps = self._files(manifest)
        changed = [
            name for name, stamp in stamps.items() if self._stamps.get(name) != stamp
        ]
        files = {name: (self._root / name).read_bytes() for name in changed}
        self._stamps |= stamps
        known = self._manifest
        self._manifest = manifest
        return NodeUpdate(record, files, manifest if manifest != known else None)

    def _files(self, manifest: Manifest | None) -> dict[str, tuple[int, int]]:
        named = set() if manifest is None else manifest.names
        return {
            str(path.relative_to(self._root)): (
                (status := path.stat()).st_size,
                status.st_mtime_ns,
            )
            for path in self._root.rglob("*")
            if path.is_file() and (path.parent.name != "model" or path.name in named)
        }

    def close(self) -> None:
        """Removes the temporary folder."""
        shutil.rmtree(self._root, ignore_errors=True)


def _remove_stale_folders() -> None:
    for path in Path(tempfile.gettempdir()).glob("slm_lab_*_*"):
        owner = re.fullmatch(r"slm_lab_(\d+)_\w+", path.name)
        if owner is None:
            continue
        try:
            os.kill(int(owner[1]), 0)
        except PermissionError:
            pass  # it runs, as another user
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)


NEW_NODE_SECONDS = 60.0
"""How long a lost node may take to be replaced by another."""
NEWS_SECONDS = 1.0

PlacementGroup: TypeAlias = Any
"""Reserved resources, one bundle for each rank."""


def strategy_at(
    kind: MakeStrategy,
    host: str,
    port: int,
    status_board: StatusBoard,
    rank: int,
    size: int,
    limit: float,
) -> Strategy:
    """The strategy of one of `size` ranks that connect at one address; `limit` bounds
    waits."""
    address = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    return kind(
        status_board,
        GlooGroup(
            host=host, port=port, rank=rank, size=size, seconds=limit, own_ip=address
        ),
    )


def train_seeds(
    tasks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> list[SessionResult]:
    """Trains independent Sessions, as many at a time as the cluster has room for. One
    that lost its node resumes from a checkpoint, up to `max_restart` times. Raises
    LabError without a cluster."""
    meta = tasks[0].spec.meta
    with connected(str(meta.cluster), lambda: status_board.stop_requested):
        supervisor = supervision.Supervisor(
            ClusterSessions(status_board),
            tasks,
            status_board,
            restart=supervision.resumed,
            max_restart=meta.max_restart,
            stop_seconds=supervision.CLUSTER_STOP_SECONDS,
        )
        return supervisor.run(on_tick)


def train_ranks(
    tasks: Sequence[SessionTask],
    status_board: StatusBoard,
    on_tick: Callable[[], None],
    kind: MakeStrategy = AllReduceStrategy,
) -> list[SessionResult]:
    """Trains the ranks of one training, which restart elsewhere if a node is lost.
    `kind` makes the strategy of each rank. Raises LabError if there is no cluster."""

    def attempt(ranks: Sequence[SessionTask]) -> list[SessionResult]:
        with reserved(ranks, status_board, on_tick) as group:
            supervisor = supervision.Supervisor(
                ClusterSessions(status_board, group, len(ranks), kind),
                ranks,
                status_board,
                stop_seconds=supervision.CLUSTER_STOP_SECONDS,
                vital=[rank.session for rank in ranks],
            )
            return supervisor.run(on_tick)

    with connected(
        str(tasks[0].spec.meta.cluster), lambda: status_board.stop_requested
    ):
        return train_in_step(tasks, status_board, attempt)


@contextmanager
def reserved(
    ranks: Sequence[SessionTask], status_board: StatusBoard, on_tick: Callable[[], None]
) -> Iterator[PlacementGroup]:
    """Resources for all ranks of a training, which can only start together. Waits until
    there is room for all, or a stop is requested. Raises LabError if the cluster is too
    small. After the loss of a node it first waits for a replacement. The stage of the
    status board names what it waits for."""
    needs = _resources(ranks[0])
    count = len(ranks)
    patience = NEW_NODE_SECONDS
    if ranks[0].restarted_because is None:
        patience = 0.0
    group = placement_group([needs] * count, strategy="SPREAD")
    ready = group.ready()

    def poll_room() -> bool:
        on_tick()
        return status_board.stop_requested or bool(
            ray.wait([ready], timeout=supervision.TICK)[0]
        )

    def may_fit() -> bool:
        return poll_room() or missing_resources(count, "ranks", needs) is None

    try:
        while not poll_room():
            missing = missing_resources(count, "ranks", needs)
            if missing is None:
                status_board.stage = (
                    f"waiting for room on the cluster for {count_text(count, 'rank')}"
                )
            elif patience:
                status_board.stage = (
                    f"waiting up to {patience:g} s for another node: {missing}"
                )
            if missing is not None and not wait_until(may_fit, patience, nap=0.0):
                raise LabError(missing)
        status_board.stage = ""
        yield group
    finally:
        status_board.stage = ""
        remove_placement_group(group)


@dataclass
class SessionHandle:
    """The Ray actor that runs a Session, and its pending calls of `run` and `news`."""

    task: SessionTask
    remote: Any
    run: Any
    news: Any = None


@final
class ClusterSessions(supervision.Runner):
    """One Ray actor for each Session; with a `group` they are `num_ranks` ranks that
    connect."""

    def __init__(
        self,
        status_board: StatusBoard,
        group: PlacementGroup | None = None,
        num_ranks: int = 1,
        kind: MakeStrategy = AllReduceStrategy,
    ) -> None:
        self._status_board = status_board
        self._group = group
        self._num_ranks = num_ranks
        self._kind = kind
        self._strategy: StrategyFactory | None = None
        """Makes the strategies of ranks, once they have an address."""
        self._handles: dict[int, SessionHandle] = {}
        self.running = self._handles.keys()
        self._requested_at = 0.0
        self._complete: dict[int, tuple[SessionPaths, Manifest]] = {}
        """Received checkpoints that are not yet valid."""

    @override
    def start(self, task: SessionTask) -> supervision.SessionEnd | None:
        """The first rank's node is where all ranks connect."""
        needs = _resources(task)
        group = self._group
        where: Any = "SPREAD"
        if group is not None:
            bundle = len(self._handles)
            where = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=bundle
            )
        options = {"max_concurrency": 2, "scheduling_strategy": where}
        kind = ray.remote(
            num_cpus=needs["CPU"], num_gpus=needs.get("GPU", 0), **options
        )
        remote: Any = kind(NodeSession).remote(os.getcwd())
        if group is not None and self._strategy is None:
            try:
                host, port = ray.get(remote.address.remote(), timeout=HANG_SECONDS)
            except RayError as error:
                ray.kill(remote)
                return _lost(task.session, error)
            self._strategy = partial(
                strategy_at,
                self._kind,
                host,
                port,
                size=self._num_ranks,
                limit=HANG_SECONDS,
            )
        if self._strategy is not None:
            task = replace(task, make_strategy=self._strategy)
        run = remote.run.remote(task, _files_of(task))
        self._handles[task.session] = SessionHandle(task, remote, run)
        return None

    @override
    def ended(self, seconds: float) -> list[supervision.SessionEnd]:
        """The ends, as in the base class. It also processes news that have arrived, and
        requests more at intervals."""
        sessions = {handle.run: session for session, handle in self._handles.items()}
        done, _ = ray.wait(list(sessions), num_returns=1, timeout=seconds)
        is_time = time.monotonic() - self._requested_at >= NEWS_SECONDS
        if is_time:
            self._requested_at = time.monotonic()
        for handle in self._handles.values():
            if handle.news is not None and ray.wait([handle.news], timeout=0)[0]:
                self._take_news(handle)
            if is_time and handle.news is None:
                handle.news = handle.remote.news.remote(
                    self._status_board.stop_requested
                )
        return [self._collect(sessions[run]) for run in done]

    @override
    def kill(self, session: int) -> None:
        ray.kill(self._handles[session].remote)

    @override
    def close(self) -> None:
        for handle in self._handles.values():
            ray.kill(handle.remote)
        self._handles.clear()

    def _take_news(self, handle: SessionHandle) -> None:
        """Processes the requested news, if any. The end of its `run` call reports a
        lost actor."""
        request = handle.news
        handle.news = None
        with suppress(RayError):
            if request is not None:
                self._process(handle.task, ray.get(request))

    def _process(self, task: SessionTask, news: NodeUpdate | None) -> None:
        if news is None:
            return
        session = task.session
        restarts = self._status_board.read(session).restarts  # its node does not know
        self._status_board.records[session : session + 1] = news.record
        self._status_board.write(session, restarts=restarts)
        for name, content in news.files.items():
            write_atomically(task.run_dir.root / name, content)
        if news.manifest is not None:
            self._complete[session] = task.paths, news.manifest
            self._make_valid()

    def _make_valid(self) -> None:
        """Makes complete checkpoints valid; ranks' checkpoints only together."""
        complete = self._complete.values()
        serials = {manifest.serial for _, manifest in complete}
        if len(complete) < self._num_ranks or len(serials) > 1:
            return
        for paths, manifest in complete:
            write_atomically(pending_path(paths.manifest), manifest.to_json().encode())
        for paths, manifest in complete:
            before = read_manifest(paths.manifest)
            if before is not None:
                write_atomically(
                    previous_path(paths.manifest), before.to_json().encode()
                )
            os.replace(pending_path(paths.manifest), paths.manifest)
            manifests = [manifest] if before is None else [manifest, before]
            delete_unnamed(paths.models, paths.prefix, manifests)
        self._complete.clear()

    def _collect(self, session: int) -> supervision.SessionEnd:
        handle = self._handles.pop(session)
        self._take_news(handle)
        try:
            result: SessionResult = ray.get(handle.run)
            news = ray.get(handle.remote.news.remote(False), timeout=HANG_SECONDS)
            self._process(handle.task, news)
            ray.get(handle.remote.close.remote(), timeout=HANG_SECONDS)
            return supervision.SessionEnd(session, result)
        except RayError as error:
            return _lost(session, error)
        finally:
            ray.kill(handle.remote)


def _lost(session: int, error: RayError) -> supervision.SessionEnd:
    return supervision.SessionEnd(session, None, loss_reason(error), lost=True)


def _resources(task: SessionTask) -> dict[str, float]:
    """The resources of a Session; a GPU only if its spec requires one."""
    gpu = any(net.gpu is True for net in task.spec.agent.nets.values())
    return {"CPU": float(task.spec.meta.threads), **({"GPU": 1.0} if gpu else {})}


def _files_of(task: SessionTask) -> Mapping[str, bytes]:
    """The files of the run folder that a Session needs to resume. A Session that starts
    fresh needs only the weights that it takes from another run, if it does."""
    paths = task.paths
    root = task.run_dir.root
    manifest = None
    if task.resume:
        manifest = read_manifest(paths.manifest)
    wanted = [paths.initial] if paths.initial.is_file() else []
    if manifest is not None:
        wanted = [paths.manifest, *(paths.models / name for name in manifest.names)]
        wanted += [paths.info / name for name in manifest.rows]
        wanted += [paths.log] if paths.log.exists() else []
    return {str(path.relative_to(root)): path.read_bytes() for path in wanted}
