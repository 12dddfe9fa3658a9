"""Functions that a user's program has called on what a training has written."""

import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from slm_lab.core.errors import CheckpointError, UsageError
from slm_lab.core.registry import import_failure, nearest_name
from slm_lab.experiment.plot.runs import FoundTrial
from slm_lab.metrics.reader import RowFollower
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.run_dir import SessionPaths

if TYPE_CHECKING:
    from slm_lab.api.run import Run

GROUP = "slm_lab.callbacks"
"""The group of entry points: classes, or objects, with some of the methods `EVENTS`."""
EVENTS = ("on_row", "on_checkpoint", "on_end")


def resolved(callbacks: Sequence[Any]) -> list[Any]:
    """Objects with callbacks, where a name stands for an entry point of `GROUP`.

    Raises UsageError for an unknown name, or an object without any callback.
    """
    found = [_installed(each) if isinstance(each, str) else each for each in callbacks]
    for each in found:
        if not any(callable(getattr(each, event, None)) for event in EVENTS):
            raise UsageError(f"callbacks: {each!r} has none of the methods {', '.join(EVENTS)}")
    return found


def _installed(name: str) -> Any:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        nearest = nearest_name(name, list(points))
        listed = f"did you mean {nearest}?" if nearest else f"installed: {', '.join(points) or '–'}"
        raise UsageError(f'callbacks: there is no "{name}"; {listed}')
    try:
        target = points[name].load()
        return target() if isinstance(target, type) else target
    except Exception as error:
        raise UsageError(f"callbacks: {name}: {import_failure(error)}") from error


class Position(NamedTuple):
    """What a Session has written."""

    frame: float = -1.0
    """Of its last row; −1 without rows."""
    serial: int = -1
    """Of its newest checkpoint; −1 without one."""


def positions(trial: FoundTrial) -> dict[int, Position]:
    """What each Session has written so far."""
    found = {}
    for session, paths in _paths(trial).items():
        frames = [row["frame"] or 0.0 for row in RowFollower(paths.rows).new_rows()]
        serial, _ = _newest_checkpoint(paths.manifest)
        found[session] = Position(max(frames, default=-1.0), serial)
    return found


@final
class CallbackRunner:
    """Calls callbacks for the rows and checkpoints of a Trial.

    A callback that raises is reported once, with its traceback, and its object is not called again.
    """

    def __init__(
        self,
        run: "Run",
        trial: FoundTrial,
        callbacks: Sequence[Any],
        since: Mapping[int, Position],
    ) -> None:
        """Leaves out what is no later than `since`."""
        self._run = run
        self._callbacks = list(callbacks)
        paths = _paths(trial)
        self._rows = {session: RowFollower(each.rows) for session, each in paths.items()}
        self._manifests = {session: each.manifest for session, each in paths.items()}
        self._since = {session: since.get(session, Position()) for session in paths}

    def tick(self) -> None:
        """Calls `on_row` for each new row, in order, then `on_checkpoint` for new checkpoints."""
        if not self._callbacks:
            return
        for session, follower in self._rows.items():
            for row in follower.new_rows():
                frame = row["frame"] or 0.0
                if frame > self._since[session].frame:  # else written again after a restart
                    self._since[session] = self._since[session]._replace(frame=frame)
                    self._call("on_row", {"session": session, **row})
        for session, manifest in self._manifests.items():
            serial, saved_frame = _newest_checkpoint(manifest)
            if serial not in (-1, self._since[session].serial):
                self._since[session] = self._since[session]._replace(serial=serial)
                self._call("on_checkpoint", session, saved_frame)

    def end(self, interrupted: bool) -> None:
        """Calls `on_end`; before that, unless Ctrl-C ended the training, all that is left."""
        if not interrupted:
            self.tick()
        self._call("on_end")

    def _call(self, event: str, *args: Any) -> None:
        for each in list(self._callbacks):
            callback = getattr(each, event, None)
            if callback is None:
                continue
            try:
                callback(self._run, *map(copy, args))  # a callback may change its own row
            except (Exception, SystemExit):
                self._callbacks.remove(each)
                traceback.print_exc()
                print(f"{event} of {each!r} raised this; it is switched off", file=sys.stderr)


def _paths(trial: FoundTrial) -> dict[int, SessionPaths]:
    return {s: trial.run_dir.session(trial.trial, s) for s in trial.meta.writers}


def _newest_checkpoint(manifest: Path) -> tuple[int, int]:
    """Its number and frame; −1 and 0 without one."""
    with suppress(CheckpointError):
        found = read_manifest(manifest)
        if found is not None:
            return found.serial, found.frame
    return -1, 0
