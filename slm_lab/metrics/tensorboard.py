"""Exports a session CSV to TensorBoard as scalar events.

The training process only appends rows. This exporter runs in another process, reads new whole lines
and needs only the `tensorboard` package.
"""

import time
from pathlib import Path
from typing import Any, Self, final

from slm_lab.metrics.reader import column_names, parse_row

_NO_SCALARS = ("frame", "wall_t")  # the step and the time of every event


@final
class TensorBoardExporter:
    """Copies one session CSV into event files in `log_dir`, incrementally.

    An event's step is the row's `frame`. Its time is `started_at` (seconds since the epoch) plus
    the row's `wall_t`. By default the last existing row gets the present time.

    If the CSV was cut back (a resumed run), or `log_dir` has events of an earlier exporter, all
    rows are written to a new event file. It begins with a purge of earlier events, so no point is
    shown twice.
    """

    def __init__(
        self, csv_path: str | Path, log_dir: str | Path, started_at: float | None = None
    ) -> None:
        self.csv_path = Path(csv_path)
        self.log_dir = Path(log_dir)
        self._started_at = started_at
        self._columns: tuple[str, ...] = ()
        self._offset = 0
        self._last_line = b""
        self._events: _EventFile | None = None

    def update(self) -> int:
        """Exports the whole lines since the last call; returns the number of rows."""
        if not self.csv_path.exists():
            return 0
        lines = self._new_lines()
        if lines and not self._columns:
            self._columns = column_names(lines.pop(0))
        if not lines:
            return 0
        rows = [self._filled_cells(line) for line in lines]
        if self._events is None:
            self._events = _EventFile(self.log_dir)
        if self._started_at is None:
            self._started_at = time.time() - rows[-1]["wall_t"]
        for row in rows:
            scalars = {name: row[name] for name in row if name not in _NO_SCALARS}
            self._events.add(int(row["frame"]), self._started_at + row["wall_t"], scalars)
        self._events.flush()
        return len(rows)

    def close(self) -> None:
        """Closes the event file; may be called twice."""
        if self._events is not None:
            self._events.close()
            self._events = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _new_lines(self) -> list[bytes]:
        with open(self.csv_path, "rb") as file:
            # A file that was cut back may have grown past the offset since. So the line that was
            # read last, with its wall_t, must still be at its place.
            file.seek(self._offset - len(self._last_line))
            if file.read(len(self._last_line)) != self._last_line:
                self._start_over()
                file.seek(0)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        lines = whole.splitlines(keepends=True)
        if lines:
            self._offset += len(whole)
            self._last_line = lines[-1]
        return [line.rstrip(b"\r\n") for line in lines]

    def _start_over(self) -> None:
        self.close()
        self._columns, self._offset, self._last_line = (), 0, b""

    def _filled_cells(self, line: bytes) -> dict[str, float]:
        cells = zip(self._columns, parse_row(self._columns, line), strict=True)
        return {name: cell for name, cell in cells if cell is not None}


@final
class _EventFile:
    """One event file. The EventFileWriter of `tensorboard` writes in a thread, where a full disk
    raises no error."""

    def __init__(self, log_dir: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        log_dir.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        index = len(list(log_dir.glob("events.out.tfevents.*")))
        path = log_dir / f"events.out.tfevents.{index:06d}"
        self._file = open(path, "xb")  # noqa: SIM115 - open as long as self
        self._records = RecordWriter(self._file)
        now = time.time()
        self._write(wall_time=now, file_version="brain.Event:2")
        if index > 0:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(wall_time=now, step=0, session_log=start)

    def add(self, step: int, wall_time: float, scalars: dict[str, float]) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()
        ]
        self._write(wall_time=wall_time, step=step, summary=self._summary(value=values))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _write(self, **fields: Any) -> None:
        self._records.write(self._event(**fields).SerializeToString())
