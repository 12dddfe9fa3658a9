"""A Session on a node of a Ray cluster: the actor that runs it, in a folder of its own there."""

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.types import Array
from slm_lab.experiment.launch.processes import SPAWN
from slm_lab.experiment.manifest import read_manifest
from slm_lab.experiment.progress import Board
from slm_lab.experiment.result import SessionResult
from slm_lab.experiment.run_dir import FOLDERS, RunDir
from slm_lab.experiment.worker import SessionTask, run_session

Stamp = tuple[int, int]
"""Size and time of change of a file."""
NO_STAMP: Stamp = (-1, -1)


class Saved(NamedTuple):
    """A checkpoint, as it comes from a node."""

    serial: int
    manifest: bytes
    files: Mapping[str, bytes]
    """By name; only those that were not sent before."""


class News(NamedTuple):
    """What has happened on a node since somebody looked last."""

    slots: Array
    cells: Array
    """Of the Session, as on its `Board`."""
    files: Mapping[str, bytes]
    """Files that have changed, by their path in the run folder; those of checkpoints apart."""
    saved: Saved | None
    """The newest checkpoint, if it is a new one."""


class NodeSession:
    """Runs one Session in one of its threads, and in another tells what it has written so far."""

    def __init__(self) -> None:
        _sweep()
        self._root = Path(tempfile.mkdtemp(prefix=f"slm_lab_{os.getpid()}_"))
        self._board: Board | None = None
        self._task: SessionTask | None = None
        self._stamps: dict[str, Stamp] = {}
        self._sent: set[str] = set()
        self._serial = 0

    def address(self) -> tuple[str, int]:
        """An address of this node at which other nodes can come to it, and a port that is free
        there."""
        import ray

        host = str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as free:
            return host, free.getsockname()[1]

    def run(self, task: SessionTask, files: Mapping[str, bytes]) -> SessionResult:
        """Runs the Session to its end, from the `files` of it in the run folder."""
        import logging

        logging.getLogger("slm_lab").propagate = False  # its own text log is sent
        for folder in FOLDERS:
            (self._root / folder).mkdir()
        for path, content in files.items():
            (self._root / path).write_bytes(content)
            self._sent.add(Path(path).name)
        run_dir = RunDir(self._root, task.run_dir.spec_name)
        self._task = replace(task, run_dir=run_dir)
        self._board = Board.allocate(SPAWN, task.num_sessions)
        return run_session(self._task, self._board)

    def news(self, stop: bool) -> News | None:
        """What is new; None before the Session begins. With `stop` it is asked to save and end."""
        board, task = self._board, self._task
        if board is None or task is None:
            return None
        if stop:
            board.request_stop()
        slots, cells = board.of_session(task.session)
        return News(slots.copy(), cells.copy(), self._changed(), self._saved(task))

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
        """None where a newer one takes its place meanwhile: that one is sent next time."""
        paths = task.run_dir.session(task.trial, task.session)
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
        """Removes its folder."""
        shutil.rmtree(self._root, ignore_errors=True)


def _sweep() -> None:
    """Removes the folders of actors that were killed."""
    for path in Path(tempfile.gettempdir()).glob("slm_lab_*_*"):
        owner = re.fullmatch(r"slm_lab_(\d+)_\w+", path.name)
        if owner is not None and not _runs(int(owner[1])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return True
        return True
    return False
