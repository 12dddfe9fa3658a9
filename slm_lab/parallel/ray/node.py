"""A Session on a node of a Ray cluster: the actor that runs it, in a temporary folder
there."""

import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import ray

from slm_lab.core.plugins import look_in_working_directory
from slm_lab.core.types import Array
from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.task import SessionTask
from slm_lab.parallel.worker import run_session
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.manifest import Manifest, read_manifest
from slm_lab.storage.result import SessionResult
from slm_lab.storage.run_dir import FOLDERS, RunDir


class NodeUpdate(NamedTuple):
    """Changes on a node since the last request."""

    record: Array
    """(1,) The Session's record on its `StatusBoard`."""
    files: Mapping[str, bytes]
    """Changed files by their path in the run folder; of `model` those that the manifest
    names."""
    manifest: Manifest | None
    """The manifest of the newest checkpoint, if it is new."""


class NodeSession:
    """Runs one Session in one thread; reports its progress and files in another."""

    def __init__(self, folder: str) -> None:
        """`folder` is the working directory of the training, which may hold modules."""
        look_in_working_directory(folder)
        _remove_stale_folders()
        self._root = Path(tempfile.mkdtemp(prefix=f"slm_lab_{os.getpid()}_"))
        self._board: StatusBoard | None = None
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
        self._board = StatusBoard.allocate(CONTEXT, task.num_sessions)
        self._task = task
        return run_session(task, self._board)

    def news(self, stop: bool) -> NodeUpdate | None:
        """What is new; None before the Session starts. `stop` requests it to save and
        end."""
        board = self._board
        task = self._task
        if board is None or task is None:
            return None
        if stop:
            board.request_stop()
        record = board.records[task.session : task.session + 1].copy()
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
