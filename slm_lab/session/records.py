"""What a Session writes: its rows and the checkpoints that match them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import final

from slm_lab.agent.memory.memory import AppendLog
from slm_lab.core.errors import CheckpointError
from slm_lab.core.types import StateDict
from slm_lab.metrics.row import Cell, Row
from slm_lab.metrics.writer import Extent, RowFiles
from slm_lab.storage.checkpoint import CheckpointStore, what_remains
from slm_lab.storage.run_dir import SessionPaths


@final
class Records:
    """The files of one Session. Rows can be added once `open` has been called."""

    def __init__(self, paths: SessionPaths) -> None:
        self._paths = paths
        self.store = CheckpointStore(paths.models, paths.prefix)
        self.best: StateDict | None = None
        """The best agent, until the next checkpoint writes it; it may be beaten before
        then."""
        self.saved_at = time.perf_counter()
        """When the last checkpoint was made; a kill would lose the training since
        then."""

    def open(
        self,
        columns: Mapping[str, Sequence[str]],
        extents: Mapping[str, Extent] | None,
        frame: int,
    ) -> None:
        """Creates the files of rows or continues them, see RowFiles; `frame` is the
        Session's current frame."""
        with self._writing_rows(frame):
            self._rows = RowFiles(self._paths.info, columns, extents)

    def append(self, name: str, row: Row) -> None:
        """Adds a row to the file `name`. Raises CheckpointError if the disk is full."""
        with self._writing_rows(row["frame"]):
            self._rows.append(name, row)

    def save(
        self,
        frame: int,
        state: StateDict,
        log: AppendLog | None,
        finished: bool,
        commit_barrier: Callable[[], None],
    ) -> list[str]:
        """Writes a checkpoint; rows first, so that the manifest never names missing
        rows. Returns the names of its parts. For the arguments and errors see
        CheckpointStore."""
        with self._writing_rows(frame):
            rows = self._rows.sync()
        parts = {"state": state}
        if self.best is not None:
            parts["best"] = self.best
        self.store.save(
            frame,
            rows,
            parts,
            finished=finished,
            log=log,
            commit_barrier=commit_barrier,
        )
        self.best = None
        self.saved_at = time.perf_counter()
        return list(parts)

    def save_copy(self, frame: int, state: StateDict) -> str:
        """Writes a faulty state for a person to inspect; returns the frame and file as
        text."""
        path = self._paths.models / f"{self._paths.prefix}_nonfinite_{frame}.pt"
        self.store.save_copy(path, state)
        kept = what_remains(self.store.manifest())
        return f"at frame {frame}; the state is in {path}; {kept}"

    def close(self) -> None:
        """Closes the files of rows."""
        self._rows.close()

    @contextmanager
    def _writing_rows(self, frame: Cell) -> Iterator[None]:
        """Reports a full disk together with the checkpoint from which a run can
        resume."""
        try:
            yield
        except OSError as error:
            raise CheckpointError(
                f"cannot write rows to {self._paths.info} at frame {frame}: "
                f"{error.strerror or error}; {what_remains(self.store.manifest())}"
            ) from error
