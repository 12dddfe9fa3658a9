"""Checkpoints: immutable files, and a manifest that is renamed into place last.

Each part of the state is a file. The steps of a replay memory are in several files, and
a checkpoint writes only the new ones, see `plan_segments`. Whatever interrupts a save
(kill, full disk), the previous manifest and all files it names stay intact. The newest
two checkpoints are kept, see `intact`; others only for forks (`meta.keep_checkpoints`).
Files that no manifest names are deleted only once the newest is durable."""

import hashlib
import io
import os
import pickle
import re
import warnings
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slm_lab.agent.memory.memory import AppendLog
from slm_lab.agent.torch_versions import saves_unsigned
from slm_lab.core.errors import CheckpointError, LabError, UnusableCheckpointError
from slm_lab.core.files import new_file, read_file, write_atomically
from slm_lab.core.types import StateDict
from slm_lab.metrics.writer import Extent
from slm_lab.storage import manifest as manifests
from slm_lab.storage.manifest import Segment


class CheckpointStore:
    """The checkpoints of one process, in one folder, under one prefix."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._manifest_path = manifests.manifest_path(folder, prefix)

    def manifest(self) -> manifests.Manifest | None:
        """The newest complete manifest, or None if nothing has been saved yet."""
        return manifests.read_manifest(self._manifest_path)

    def save(
        self,
        frame: int,
        rows: Mapping[str, Extent],
        parts: Mapping[str, StateDict],
        finished: bool = False,
        log: AppendLog | None = None,
        commit_barrier: Callable[[], None] = lambda: None,
        kept_at: int | None = None,
    ) -> None:
        """Writes the parts and makes them the newest checkpoint. `commit_barrier` is
        called when everything is on disk, before it becomes valid. `rows` holds the
        extent of each file of rows. A part missing from `parts` keeps its previous
        file. Of `log` only new steps and merged short files are written. With the
        total frame `kept_at` it is kept for forks. Raises CheckpointError if the disk
        fails; then the previous checkpoint stays the newest."""
        previous = self.manifest()
        kept = self._kept()
        serial = 1
        if previous is not None:
            serial = previous.serial + 1
        files = {} if previous is None else dict(previous.files)
        written: list[Path] = []
        try:
            for part, state in parts.items():
                name = f"{self._prefix}_{part}_{serial:06d}_{frame}.pt"
                files[part] = self._write(name, state, written)
            segments = (
                ()
                if log is None
                else self._save_log(
                    log=log,
                    previous=previous,
                    serial=serial,
                    kept=kept,
                    written=written,
                )
            )
            manifest = manifests.Manifest(
                frame=frame,
                serial=serial,
                rows=dict(rows),
                finished=finished,
                files=files,
                segments=segments,
            )
            # the newest manifest comes last: then all that it needs is in place
            places = [self._manifest_path]
            contents = [manifest]
            if previous is not None:
                places.insert(0, manifests.previous_path(self._manifest_path))
                contents.insert(0, previous)
            if kept_at is not None:
                places.insert(
                    0, manifests.kept_path(self._manifest_path, serial, kept_at)
                )
                contents.insert(0, manifest)
            for place, content in zip(places, contents, strict=True):
                written.append(manifests.pending_path(place))
                _write_durably(written[-1], content.to_json().encode())
            commit_barrier()
            for place in places:
                os.replace(manifests.pending_path(place), place)
        except Exception as error:
            for path in written:
                path.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise CheckpointError(
                f"cannot save a checkpoint at frame {frame} in {self._folder}: "
                f"{error.strerror or error}; {previous_checkpoint_text(previous)}"
            ) from error
        try:
            _sync_folder(self._folder)
        # both checkpoints are intact; a power cut may leave either
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint at frame {frame} in {self._folder} may be lost in a "
                f"power cut: {error.strerror or error}; the one before it is kept"
            ) from error
        newest = [manifest] if previous is None else [manifest, previous]
        delete_unnamed(self._folder, self._prefix, [*newest, *kept])

    def edit(self, change: Callable[[StateDict], None]) -> None:
        """Changes the state of the newest checkpoint in place of it; the one before it
        stays the previous one. Raises CheckpointError, OSError."""
        manifest = self.manifest()
        assert manifest is not None
        state = self.load(manifest)
        change(state)
        serial = manifest.serial + 1
        name = f"{self._prefix}_state_{serial:06d}_{manifest.frame}.pt"
        saved = write_state(self._folder / name, state)
        edited = replace(
            manifest, serial=serial, files={**manifest.files, "state": saved}
        )
        write_atomically(self._manifest_path, edited.to_json().encode())

    def _kept(self) -> list[manifests.Manifest]:
        """The manifests that are kept for forks, by age; without unreadable ones, whose
        files are deleted."""
        kept = []
        for kept_manifest in manifests.kept_manifests(self._folder, self._prefix):
            with suppress(CheckpointError):
                manifest = manifests.read_manifest(kept_manifest.path)
                if manifest is not None:
                    kept.append(manifest)
        return kept

    def _save_log(
        self,
        log: AppendLog,
        previous: manifests.Manifest | None,
        serial: int,
        kept: Sequence[manifests.Manifest],
        written: list[Path],
    ) -> tuple[manifests.Segment, ...]:
        shared = {segment.name for manifest in kept for segment in manifest.segments}
        segments, new = plan_segments(
            () if previous is None else previous.segments, log, shared
        )
        for steps in new:
            name = f"{self._prefix}_steps_{serial:06d}_{steps.start}.pt"
            file = self._write(name, log.content(steps.start, steps.stop), written)
            segments.append(
                manifests.Segment(**vars(file), first=steps.start, end=steps.stop)
            )
        return tuple(segments)

    def _write(
        self, name: str, state: StateDict, written: list[Path]
    ) -> manifests.SavedFile:
        """Writes a state; its path joins `written` first, so that a partial file is
        removed."""
        written.append(self._folder / name)
        return write_state(written[-1], state)

    def save_copy(self, path: Path, state: StateDict) -> None:
        """Writes one state outside the checkpoints, for a person to inspect."""
        try:
            write_state(path, state)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise CheckpointError(
                f"cannot write {path}: {error.strerror or error}"
            ) from error

    def load(self, manifest: manifests.Manifest, part: str = "state") -> StateDict:
        """The state of one part. Raises CheckpointError if the file is missing or
        damaged."""
        self.file(manifest, part)
        return read_state(self._folder, manifest.files[part])

    def file(self, manifest: manifests.Manifest, part: str = "state") -> Path:
        """The file of a part. Raises CheckpointError if the checkpoint has no such
        part."""
        if part not in manifest.files:
            raise UnusableCheckpointError(
                f"the checkpoint {self._manifest_path} has no part {part}"
            )
        return self._folder / manifest.files[part].name

    def load_log(self, manifest: manifests.Manifest, log: AppendLog) -> None:
        """Restores the steps of a memory whose other state has been loaded. Raises
        CheckpointError if a file is damaged or a step is missing."""
        check_whole(manifest.segments, log, str(self._manifest_path))
        for segment in manifest.segments:
            content = read_state(self._folder, segment)
            with reading(self._folder / segment.name):
                log.load_content(content)


def delete_unnamed(
    folder: Path, prefix: str, retained: Iterable[manifests.Manifest]
) -> None:
    """Deletes files that no manifest in `retained` names: of older checkpoints, or left
    by a kill."""
    named = {name for manifest in retained for name in manifest.names}
    checkpoint_name = re.compile(rf"{re.escape(prefix)}_[a-z]+_\d{{6,}}_\d+\.pt")
    for path in folder.iterdir():
        if checkpoint_name.fullmatch(path.name) and path.name not in named:
            # the new checkpoint is safe; the next save tries again
            with suppress(OSError):
                path.unlink()


def previous_checkpoint_text(manifest: manifests.Manifest | None) -> str:
    """The part of a failed write's message about the previous checkpoint."""
    if manifest is None:
        return "there is no checkpoint before it"
    return f"the last checkpoint, at frame {manifest.frame}, is intact"


def read_state(folder: Path, file: manifests.SavedFile) -> StateDict:
    """Loads one file of a checkpoint, verified by its checksum; nothing is
    unpickled."""
    path = folder / file.name
    try:
        content = read_file(path)
    except OSError as error:
        raise UnusableCheckpointError(
            f"cannot read the checkpoint {path}: {error.strerror}"
        ) from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise UnusableCheckpointError(
            f"the checkpoint {path} is damaged: its checksum does not match; put back "
            "a copy, or start a new run"
        )
    return _state_in(content, path)


def read_initial(path: Path) -> StateDict:
    """The weights that a run began with. Raises CheckpointError; nothing is
    unpickled."""
    try:
        content = read_file(path)
    except OSError as error:
        raise UnusableCheckpointError(
            f"cannot read {path}: {error.strerror}"
        ) from error
    return _state_in(content, path)


def _state_in(content: bytes, path: Path) -> StateDict:
    with reading(path):
        state: StateDict = from_bytes(content)
        if not isinstance(state, dict):
            raise TypeError(f"it holds a {type(state).__name__}")
        return state


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Converts errors in the content of the file at `path` to a CheckpointError that
    names it. A file with the right checksum may still hold anything."""
    try:
        yield
    except CheckpointError as error:
        if path.name in str(error):
            raise
        raise UnusableCheckpointError(
            f"the checkpoint {path} cannot be loaded: {error}"
        ) from error
    except LabError:
        raise
    except Exception as error:
        name = ""
        if not isinstance(error, ValueError | TypeError):
            name = f"{type(error).__name__}: "
        why = f"{name}{error}".strip().splitlines()[0].rstrip(": ")
        raise UnusableCheckpointError(
            f"the checkpoint {path} cannot be loaded ({why}); put back a copy, or "
            "start a new run"
        ) from error


def try_state(state: StateDict) -> None:
    """Writes a state to memory and reads it back. Raises CheckpointError if that is
    impossible."""
    try:
        with _serialized(state) as content:
            from_bytes(content)
    except ValueError as error:
        raise CheckpointError(
            "the training's state cannot be read back from a file"
        ) from error


def _serialized(state: StateDict) -> memoryview:
    try:
        return to_bytes(state)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise CheckpointError(
            f"the training's state cannot be saved: {error}; a state_dict may hold "
            "tensors, arrays, numbers, strings, None, and lists and dicts of them"
        ) from error


def write_state(path: Path, state: StateDict) -> manifests.SavedFile:
    """Writes a state to the disk; returns the file's size and checksum. Raises
    OSError."""
    # The view is released at once. An error could keep it in a cycle, and Python 3.12.1
    # crashes when it collects such a view (python/cpython#111049).
    with _serialized(state) as content:
        _write_durably(path, content)
        return manifests.SavedFile(
            path.name, len(content), hashlib.sha256(content).hexdigest()
        )


def _write_durably(path: Path, content: bytes | memoryview) -> None:
    with new_file(path) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


ARRAY = "__array__"
DTYPE = "__dtype__"
"""The key beside ARRAY with the type of an array whose bytes are stored as a tensor of
integers."""
UNSIGNED = (np.uint16, np.uint32, np.uint64)
PLAIN = (type(None), bool, int, float, str)


def to_plain(state: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Nested state with every numpy array as a marked tensor and every numpy number as
    Python's. Raises TypeError for anything that `torch.load(weights_only=True)` would
    refuse; it names the place, whose keys begin with `path`."""
    if isinstance(state, dict):
        for key in state:
            if type(key) not in (str, int) or key == ARRAY:
                raise TypeError(
                    f"{_place(path)}{key!r} cannot be a key in a checkpoint"
                )
        return {key: to_plain(value, (*path, key)) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [to_plain(value, (*path, index)) for index, value in enumerate(state)]
    if isinstance(state, np.ndarray):
        if state.dtype == object:
            what = "an array of Python objects cannot be saved in a checkpoint"
            raise TypeError(f"{_place(path)}{what}")
        array = np.ascontiguousarray(state)
        if not array.flags.writeable:  # torch warns about read-only arrays
            array = array.copy()
        if array.dtype in UNSIGNED and not saves_unsigned():
            signed = array.view(f"i{array.itemsize}")
            tensor = torch.from_numpy(signed).reshape(state.shape)
            return {ARRAY: tensor, DTYPE: array.dtype.name}
        return {ARRAY: torch.from_numpy(array).reshape(state.shape)}
    if isinstance(state, np.generic):
        return to_plain(state.item(), path)
    # Exact types only: an IntEnum or a StrEnum would be pickled by class and rejected
    # on load.
    if type(state) in PLAIN or isinstance(state, torch.Tensor):
        return state
    what = f"a {type(state).__name__} cannot be saved in a checkpoint"
    raise TypeError(f"{_place(path)}{what}")


def _place(path: tuple[str | int, ...]) -> str:
    if path:
        return f"{'.'.join(map(str, path))}: "
    return ""


def from_plain(state: Any) -> Any:
    """The inverse of `to_plain`; tuples come back as lists."""
    if isinstance(state, dict):
        if ARRAY in state:
            array = state[ARRAY].numpy()
            return array.view(state[DTYPE]) if DTYPE in state else array
        return {key: from_plain(value) for key, value in state.items()}
    if isinstance(state, list):
        return [from_plain(value) for value in state]
    return state


def to_bytes(state: Any) -> memoryview:
    """The state as the content of a file of torch. Raises as `to_plain`."""
    buffer = io.BytesIO()
    torch.save(to_plain(state), buffer)
    return buffer.getbuffer()  # not getvalue(), which would copy a large state


def from_bytes(content: bytes | memoryview) -> Any:
    """The inverse of `to_bytes`; nothing is unpickled. Raises ValueError if it holds
    other types than tensors and plain values. torch's own message would advise to
    execute the file's code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = torch.load(
                io.BytesIO(content), map_location="cpu", weights_only=True
            )
    except Exception:
        raise ValueError("the lab did not write this file") from None
    return from_plain(plain)


SHARE = 32
"""The longest file holds 1/SHARE of a log's capacity."""
SHORT = 256
"""Steps that a file may hold in any case."""


def plan_segments(
    saved: Sequence[Segment], log: AppendLog, shared: Collection[str] = ()
) -> tuple[list[Segment], list[range]]:
    """The files of `saved` that the next checkpoint of `log` keeps, and the steps of
    each new file. Files that are `shared` with a kept checkpoint are never merged. So
    both checkpoints name the same file, and no step is written twice.

    A checkpoint writes the new steps and merges the newest files that are at most twice
    as long. So each file is more than twice as long as the next. Long files hold at
    least 1/64 of the log's capacity, so there are some 64 at most. A step is rewritten
    only if its file grows by at least half. No checkpoint writes more than 1/32 of the
    log beyond the new steps."""
    longest = max(log.capacity // SHARE, SHORT)
    segments = [segment for segment in saved if segment.end > log.first]
    # Rewrite the newest saved step: its episodes may have been truncated since.
    first = log.first
    if segments:
        first = max(segments[-1].end - 1, log.first)
    while (
        segments
        and segments[-1].name not in shared
        and segments[-1].end - segments[-1].first
        <= min(2 * (log.count - first), longest // 2)
    ):
        first = max(segments.pop().first, log.first)
    written = [
        range(start, min(start + longest, log.count))
        for start in range(first, log.count, longest)
    ]
    return segments, written


def check_whole(segments: Sequence[Segment], log: AppendLog, where: str) -> None:
    """Raises CheckpointError if the files lack steps of the log."""
    known = log.first
    for segment in segments:
        if segment.first <= known:
            known = max(known, segment.end)
    if known != log.count:
        raise UnusableCheckpointError(
            f"the checkpoint {where} holds the memory's steps {log.first} to {known} "
            f"only, but the memory had taken {log.count}; put back a copy, or start a "
            "new run"
        )
