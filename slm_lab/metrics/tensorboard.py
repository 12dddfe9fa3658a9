"""Exports a session CSV to TensorBoard, in another process than the one that trains."""

import time
from pathlib import Path
from typing import Any, final

from slm_lab.metrics.reader import RowFile

_NO_SCALARS = ("frame", "wall_t")  # the step and the time of every event


@final
class TensorBoardExporter:
    """Copies one session CSV into event files in `log_dir`, incrementally. An event's
    step is the row's `frame`, its time `started_at` plus `wall_t`. `started_at` is in
    seconds since the epoch; by default the last row is now. A new event file gets all
    rows, after a purge of earlier events, in two cases. A resumed run cut the CSV back,
    or `log_dir` has events of an earlier exporter."""

    def __init__(
        self, csv_path: str | Path, log_dir: str | Path, started_at: float | None = None
    ) -> None:
        self.log_dir = Path(log_dir)
        self._rows = RowFile(Path(csv_path))
        self._started_at = started_at
        self._cuts = 0
        self._events: _EventFile | None = None

    def update(self) -> int:
        """Exports the whole lines since the last call; returns the number of rows."""
        new = self._rows.new_rows()
        rows = [
            {name: cell for name, cell in row.items() if cell is not None}
            for row in new
        ]
        if self._rows.cuts > self._cuts:
            self._cuts = self._rows.cuts
            self.close()
        if not rows:
            return 0
        if self._events is None:
            self._events = _EventFile(self.log_dir)
        if self._started_at is None:
            self._started_at = time.time() - rows[-1]["wall_t"]
        for row in rows:
            scalars = {name: row[name] for name in row if name not in _NO_SCALARS}
            self._events.add(
                int(row["frame"]), self._started_at + row["wall_t"], scalars
            )
        self._events.file.flush()
        return len(rows)

    def close(self) -> None:
        """Closes the event file; may be called twice."""
        if self._events is not None:
            self._events.file.close()
            self._events = None


@final
class _EventFile:
    """One event file. The EventFileWriter of `tensorboard` writes in a thread, where a
    full disk raises no error."""

    def __init__(self, log_dir: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event: Any = event_pb2.Event
        self._summary: Any = summary_pb2.Summary
        log_dir.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files of a folder in the order of their names.
        names = [file.suffix[1:] for file in log_dir.glob("events.out.tfevents.*")]
        index = 1 + max((int(name) for name in names if name.isdecimal()), default=-1)
        path = log_dir / f"events.out.tfevents.{index:06d}"
        self.file = open(path, "xb")  # noqa: SIM115 - open as long as self
        self._records = RecordWriter(self.file)
        now = time.time()
        self._write(wall_time=now, file_version="brain.Event:2")
        if index > 0:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(wall_time=now, step=0, session_log=start)

    def add(self, step: int, wall_time: float, scalars: dict[str, float]) -> None:
        make_value = self._summary.Value
        values = [
            make_value(tag=name, simple_value=value) for name, value in scalars.items()
        ]
        self._write(wall_time=wall_time, step=step, summary=self._summary(value=values))

    def _write(self, **fields: Any) -> None:
        self._records.write(self._event(**fields).SerializeToString())
