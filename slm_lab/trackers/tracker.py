"""What all trackers have in common. A tracker sends a training to a program that shows
many trainings.

A tracker has one run of its own per Session, and one for the Trial if this has several
Sessions. It reads what the training has written, so it can never slow or stop one. What
it has sent is noted in the run folder. So a training that resumes continues the same
tracker runs, and no row is sent twice."""

import math
import os
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, Protocol, TextIO

from slm_lab.core.errors import LabError
from slm_lab.core.files import read_object, write_json
from slm_lab.core.recorded import value_at
from slm_lab.core.text import one_line, shortened
from slm_lab.env.extras import require
from slm_lab.metrics.reader import NewRows
from slm_lab.records.annotations import read_annotations
from slm_lab.records.lookup import find_trial
from slm_lab.records.run_record import RunRecord, trial_metrics
from slm_lab.storage.result import Ending

PAUSE = 1.0
"""Seconds between two sendings."""
FIRST_RETRY = 30.0
LONGEST_RETRY = 600.0
"""Seconds until a tracker that failed tries again; each failure doubles them."""
LARGEST_IMAGE = 10 << 20
"""Bytes of a graph; larger ones stay in the run folder."""
LONGEST_REASON = 240
"""Letters of a library's message."""
TRIAL = "trial"
"""The key of the tracker run of a Trial with several Sessions."""
FACTS = ("random_seed", "git_sha", "packages", "python", "machine", "set", "mode")
"""Keys of the origin that go into the config of a tracker run."""


class AnyRun(Protocol):
    """What a tracker needs of a run: `slm_lab.Run` and `TrackedRun` have it."""

    folder: Path

    def __fspath__(self) -> str:
        """The name by which it is found."""


class Point(NamedTuple):
    """The numbers of a row at a frame."""

    frame: int
    values: dict[str, float]
    """The numbers by column; columns of evaluations begin with "eval/". All are
    finite."""


class About(NamedTuple):
    """What a tracker run is about."""

    key: str
    """ "s0" of a Session, or `TRIAL`."""
    name: str
    group: str
    """The run folder, with the number of the trial in a search."""
    spec_name: str
    config: Mapping[str, Any]
    """The spec, and under "run" where it came from."""
    tags: tuple[str, ...]
    note: str
    folder: Path
    """The run folder."""
    log_prefix: str
    """The name of its folder of TensorBoard events."""


class Tracker(ABC):
    """A callback that sends runs to a tracker. Its library is imported when it is used.

    A failure of the tracker is reported once; it is tried again later."""

    name: ClassVar[str]
    """Its word, which is also the name of the extra that installs its library."""
    module: ClassVar[str]
    """The library that it needs."""

    def __init__(self) -> None:
        """Raises MissingExtraError if the library is not installed."""
        require(self.module, self.name)
        self.stream: TextIO | None = None
        """What gets the warning; by default the standard error."""
        self.is_alone = False
        """Whether nobody else in this process uses the library."""
        self._feeds: dict[str, _Feed] = {}
        self._failed_at = -math.inf
        self._failures = 0
        """Failures in a row."""
        self._has_warned = False

    def on_row(self, run: AnyRun, row: dict[str, Any]) -> None:
        """Sends the new rows of all Sessions, at most once a second."""
        self.flush(run)

    def on_end(self, run: AnyRun) -> None:
        """Sends the rest: rows, results, graphs and, unless it is one trial of many,
        the best agent."""
        if time.monotonic() >= self._failed_at + FIRST_RETRY:  # else it would again
            self._try(run, _Feed.end)
        self._feeds.pop(os.fspath(run), None)

    def flush(self, run: AnyRun) -> None:
        """Sends what is new, unless it is too early."""
        pause = min(FIRST_RETRY * 2.0 ** (self._failures - 1), LONGEST_RETRY)
        if time.monotonic() >= self._failed_at + pause:
            self._try(run, _Feed.send_if_due)

    def add_best(self, run: AnyRun) -> None:
        """Sends the agent of the best trial of a search, which has ended."""
        if time.monotonic() >= self._failed_at + FIRST_RETRY:
            self._try(run, _Feed.end_with_agent)
        self._feeds.pop(os.fspath(run), None)

    def is_done(self, run: AnyRun) -> bool:
        """Whether the results of a run were sent, by this or an earlier process."""
        return _Feed(self, run).is_done

    @abstractmethod
    def open(self, about: About, known: str | None, parent: Any) -> tuple[Any, str]:
        """Begins a tracker run, or continues the one with the id `known`. Returns it
        and its id. `parent` is the one of the Trial, if this has several Sessions."""

    @abstractmethod
    def log(self, tracked: Any, points: Sequence[Point]) -> None:
        """Sends rows."""

    @abstractmethod
    def summarise(self, tracked: Any, values: Mapping[str, float], frame: int) -> None:
        """Sends results, which hold at the last `frame`."""

    @abstractmethod
    def add_image(self, tracked: Any, name: str, file: Path) -> None:
        """Sends a graph."""

    @abstractmethod
    def add_agent(self, tracked: Any, file: Path) -> None:
        """Sends the best agent, as a zip that `slm-lab run eval@FILE.zip` plays."""

    @abstractmethod
    def close(self, tracked: Any, ending: Ending) -> None:
        """Ends a tracker run. It can be continued."""

    def recover(self, error: BaseException) -> None:
        """Repairs the library after an error, where the library does not repair
        itself."""

    def _try(self, run: AnyRun, send: "Callable[[_Feed], None]") -> None:
        key = os.fspath(run)
        try:
            if key not in self._feeds:
                self._feeds[key] = _Feed(self, run)
            send(self._feeds[key])
            self._failures = 0
        except (Exception, SystemExit) as error:
            if key in self._feeds:
                self._feeds[key].let_go()
            self.recover(error)
            self._failed_at = time.monotonic()
            self._failures += 1
            self._warn(run, error)

    def _warn(self, run: AnyRun, error: BaseException) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        print(
            f"{self.name}: {shortened(one_line(error), LONGEST_REASON)}; the training "
            f"goes on. What is not sent follows once {self.name} works, or with "
            f"train@{run.folder.name}",
            file=self.stream or sys.stderr,
            flush=True,
        )


class _Rows:
    """The unsent rows of one file, and the frame of the last one sent."""

    def __init__(self, rows: NewRows, prefix: str, sent: float) -> None:
        self._rows = rows
        self._prefix = prefix
        self.sent = sent
        self.pending: list[Point] = []

    def read(self) -> list[Point]:
        """The rows that have not been sent."""
        for row in self._rows.read():
            values = {
                f"{self._prefix}{column}": value
                for column, value in row.items()
                if column != "frame" and value is not None and math.isfinite(value)
            }
            self.pending.append(Point(int(row["frame"] or 0), values))
        return self.pending

    def mark_sent(self) -> None:
        """Notes that the rows of the last `read` were sent."""
        if self.pending:
            self.sent = self.pending[-1].frame
            self.pending = []


class _Feed:
    """One run, and its tracker runs."""

    def __init__(self, tracker: Tracker, run: AnyRun) -> None:
        self._tracker = tracker
        self._source = os.fspath(run)
        self._record = find_trial(self._source, run.folder.parent)
        prefix = self._record.run_dir.trial_prefix(self._record.trial)
        self._prefix = prefix
        self._state_file = (
            self._record.folder / "info" / f"{prefix}_tracker_{tracker.name}.json"
        )
        self._state: dict[str, Any] = read_object(self._state_file)
        self._open: dict[str, Any] = {}
        self._sessions = {
            session: self._rows_of(session) for session in self._record.sessions
        }
        self._has_parent = len(self._sessions) > 1
        self._due = 0.0

    def _rows_of(self, session: int) -> tuple[_Rows, _Rows]:
        """The unsent rows of a Session, and of its evaluations."""
        sent = value_at(self._state, f"s{session}.frame", 0.0)
        eval_sent = value_at(self._state, f"s{session}.eval_frame", 0.0)
        rows = self._record.new_rows(session, sent)
        evaluations = self._record.new_evaluation_rows(session, eval_sent)
        return _Rows(rows, "", sent), _Rows(evaluations, "eval/", eval_sent)

    def _new_points(self, session: int) -> list[Point]:
        """The rows of a Session that are not sent, by their frames."""
        points = [point for rows in self._sessions[session] for point in rows.read()]
        return sorted(points, key=lambda point: point.frame)

    def send_if_due(self) -> None:
        """Sends the new rows, at most once a second."""
        if time.monotonic() >= self._due:
            self.send()
            self._due = time.monotonic() + PAUSE

    def send(self) -> None:
        """Sends the new rows of all Sessions."""
        for session in self._sessions:
            if not self._new_points(session):
                continue
            key = f"s{session}"
            tracked = self._tracked(key)
            self._tracker.log(tracked, self._new_points(session))
            files = self._sessions[session]
            for rows in files:
                rows.mark_sent()
            self._state[key] |= {"frame": files[0].sent, "eval_frame": files[1].sent}
            self._write_state()

    def end(self) -> None:
        """Sends the rest, and ends all tracker runs."""
        for session in self._sessions:
            if f"s{session}" in self._state:
                self._tracked(f"s{session}")  # it may be gone, and begin anew
        self.send()
        record = self._record
        if not self._state:  # no row was ever written
            return
        for session in self._sessions:
            key = f"s{session}"
            if key in self._state:
                tracked = self._tracked(key)
                results = _numbers(record.session_metrics(session))
                self._tracker.summarise(tracked, results, self._frame(session))
                self._add_graphs(tracked, record.session_graphs(session))
        metrics = trial_metrics(record.run_dir, record.trial)
        speeds = value_at(metrics, "throughput", {})
        numbers = {**_numbers(metrics), **_numbers(speeds)}
        newest = max(map(self._frame, self._sessions))
        self._tracker.summarise(self._main(), numbers, newest)
        if _endings(record)[TRIAL] is not Ending.INTERRUPTED:  # its user waits
            self._add_results()
        self._close()

    def _add_results(self) -> None:
        """Sends the graphs of the Trial, and the agent."""
        record = self._record
        self._add_graphs(self._main(), record.trial_graphs())
        if not record.is_trial_of_search:
            self._add_agent()

    def end_with_agent(self) -> None:
        """Sends the best agent to the tracker runs of a Trial that has ended."""
        if self._state:
            self._add_agent()
            self._close()

    def let_go(self) -> None:
        """Has all tracker runs opened again: their library may have crashed."""
        self._open.clear()

    @property
    def is_done(self) -> bool:
        """Whether it was ended, and nothing was sent since."""
        return any(value_at(self._state, f"{key}.ended", False) for key in self._state)

    def _close(self) -> None:
        endings = _endings(self._record)
        for key in [*self._open]:
            ending = endings.get(key, endings[TRIAL])
            self._tracker.close(self._open.pop(key), ending)
            self._state[key]["ended"] = True
        self._write_state()

    def _main(self) -> Any:
        """The tracker run of the Trial, or of its only Session."""
        return self._tracked(TRIAL if self._has_parent else next(iter(self._state)))

    def _frame(self, session: int) -> int:
        """The frame of the last row sent of a Session."""
        return int(max(rows.sent for rows in self._sessions[session]))

    def _tracked(self, key: str) -> Any:
        """The tracker run of a Session or of the Trial, opened at its first use."""
        if key not in self._open:
            parent = None
            if self._has_parent and key != TRIAL:
                parent = self._tracked(TRIAL)
            known = value_at(self._state, f"{key}.id", "") or None
            about = self._about(key)
            self._open[key], identity = self._tracker.open(about, known, parent)
            if identity != known:
                self._state[key] = {"id": identity}
                self._write_state()
            self._state[key]["ended"] = False
            if known not in (None, identity) and key != TRIAL:  # it was deleted
                session = int(key.removeprefix("s"))
                self._sessions[session] = self._rows_of(session)
        return self._open[key]

    def _about(self, key: str) -> About:
        record = self._record
        group = record.folder.name
        if record.is_trial_of_search:
            group = f"{group} t{record.trial}"
        name = group
        if self._has_parent and key != TRIAL:
            name = f"{group} {key}"
        annotations = read_annotations(record.run_dir)
        origin = record.origin
        facts = {fact: origin.get(fact) for fact in FACTS}
        return About(
            key=key,
            name=name,
            group=group,
            spec_name=record.name,
            config={**record.spec, "run": {"folder": record.folder.name, **facts}},
            tags=annotations.tags,
            note=annotations.note,
            folder=record.folder,
            log_prefix=self._prefix if key == TRIAL else f"{self._prefix}_{key}",
        )

    def _add_graphs(self, tracked: Any, files: Sequence[Path]) -> None:
        for file in files:
            with suppress(FileNotFoundError):
                if 0 < file.stat().st_size <= LARGEST_IMAGE:
                    name = file.stem.removeprefix(f"{self._prefix}_")
                    self._tracker.add_image(tracked, name, file)

    def _add_agent(self) -> None:
        with (
            TemporaryDirectory(prefix="slm_lab_") as folder,
            suppress(LabError),  # it has no checkpoint, or cannot be loaded
        ):
            file = _zip(self._source, Path(folder))
            self._tracker.add_agent(self._main(), file)

    def _write_state(self) -> None:
        with suppress(OSError):  # a full disk: a resume sends some rows again
            write_json(self._state_file, self._state)


def new_id() -> str:
    """An id for a tracker run that no other has."""
    return secrets.token_hex(6)


def _endings(record: RunRecord) -> dict[str, Ending]:
    """How each Session, and the Trial, ended. Without results it was killed."""
    results = []
    with suppress(LabError):
        results = RunRecord(record.run_dir, record.trial).results
    endings = {f"s{result.session}": result.ending for result in results}
    worst = Ending.FINISHED
    for ending in (Ending.INTERRUPTED, Ending.FAILED):
        if ending in endings.values():
            worst = ending
    return {**endings, TRIAL: worst if endings else Ending.FAILED}


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The metrics that are finite numbers."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def _zip(source: str, folder: Path) -> Path:
    """The best agent of a run as a file in `folder`. Raises LabError."""
    from slm_lab.export.export import export_agent, file_name  # imports torch
    from slm_lab.records.playable_run import find_agent

    saved, agent = find_agent(
        run=source,
        data_dir=Path(source).parent,
        imports=(),
        trust=True,  # the training has imported the same modules
    )
    file = folder / file_name(saved, agent, "zip")
    export_agent(saved, agent, file, force=True)
    return file
