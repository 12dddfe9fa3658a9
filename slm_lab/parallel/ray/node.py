"""A Session on a node of a Ray cluster: the actor that runs it, in a temporary folder there."""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.types import Array
from slm_lab.parallel.processes import SPAWN
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import run_session
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.result import SessionResult
from slm_lab.storage.run_dir import FOLDERS, RunDir

Stamp = tuple[int, int]
"""Size and modification time (ns) of a file."""
NO_STAMP: Stamp = (-1, -1)


class Saved(NamedTuple):
    """A checkpoint sent from a node."""

    serial: int
    manifest: bytes
    files: Mapping[str, bytes]
    """Content by name; only files that were not sent before."""


class News(NamedTuple):
    """Changes on a node since the last request."""

    record: Array
    """(1,) The Session's record on its `StatusBoard`."""
    files: Mapping[str, bytes]
    """Changed files by their path in the run folder, without those of checkpoints."""
    saved: Saved | None
    """The newest checkpoint, if it is new."""


class NodeSession:
    """Runs one Session in one thread; reports its progress and files in another."""

    def __init__(self) -> None:
        _remove_stale_folders()
        self._root = Path(tempfile.mkdtemp(prefix=f"slm_lab_{os.getpid()}_"))
        self._board: StatusBoard | None = None
        self._task: SessionTask | None = None
        self._stamps: dict[str, Stamp] = {}
        self._sent: set[str] = set()
        self._serial = 0

    def address(self) -> tuple[str, int]:
        """An address at which other nodes can reach this one, and a free port."""
        import ray

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as free:
            return host, free.getsockname()[1]

    def run(self, task: SessionTask, files: Mapping[str, bytes]) -> SessionResult:
        """Runs the Session to its end; `files` are its files of the run folder, by path."""
        import logging

        logging.getLogger("slm_lab").propagate = False  # its own text log is sent
        for folder in FOLDERS:
            (self._root / folder).mkdir()
        for path, content in files.items():
            (self._root / path).write_bytes(content)
            self._sent.add(Path(path).name)
        run_dir = RunDir(self._root, task.run_dir.spec_name)
        self._task = replace(task, run_dir=run_dir)
        self._board = StatusBoard.allocate(SPAWN, task.num_sessions)
        return run_session(self._task, self._board)

    def news(self, stop: bool) -> News | None:
        """What is new; None before the Session starts. `stop` requests it to save and end."""
        board, task = self._board, self._task
        if board is None or task is None:
            return None
        if stop:
            board.request_stop()
        record = board.records[task.session : task.session + 1].copy()
        return News(record, self._changed(), self._saved(task))

    def _changed(self) -> dict[str, bytes]:
        found = {}
        for path in self._root.rglob("*"):
            name = str(path.relative_to(self._root))
            if path.is_dir() or name.startswith("model/"):
                continue
            status = path.stat()
            stamp = status.st_size, status.st_mtime_ns
            if self._stamps.get(name, NO_STAMP) != stamp:
                self._stamps[name] = stamp
                found[name] = path.read_bytes()
        return found

    def _saved(self, task: SessionTask) -> Saved | None:
        """A new checkpoint; None if a newer one replaces it meanwhile, which is sent next time."""
        paths = task.paths
        try:
            content = paths.manifest.read_bytes()
            manifest = read_manifest(paths.manifest)
            if manifest is None or manifest.serial == self._serial:
                return None
            new = manifest.names - self._sent
            files = {name: (paths.models / name).read_bytes() for name in sorted(new)}
            if paths.manifest.read_bytes() != content:
                return None
        except FileNotFoundError:
            return None
        self._serial = manifest.serial
        self._sent |= new
        return Saved(manifest.serial, content, files)

    def close(self) -> None:
        """Removes the temporary folder."""
        shutil.rmtree(self._root, ignore_errors=True)


def _remove_stale_folders() -> None:
    """Removes the folders of actors that were killed."""
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
