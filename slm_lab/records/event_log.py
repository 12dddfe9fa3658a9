"""The event log, the only state of a study: one line per event, written as it happens.
A resumed study replays every event to its policy.

Each line ends with a checksum of itself and its number. So a changed, lost, doubled or
moved line is detected. A log with lines cut off at the end is a valid earlier log."""

import errno
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias, final, get_args

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import open_own
from slm_lab.metrics.trial_state import Params, Status, TrialState, ranked


class Proposed(NamedTuple):
    """A new trial, with the values of the searched keys."""

    trial: int
    params: Params


class Began(NamedTuple):
    """The trial started, for the first time or again."""

    trial: int
    folder: str | None = None
    """The name of its own run folder inside the study's folder; None without one."""


class Reported(NamedTuple):
    """The mean score of the trial's Sessions at a frame that all have reached."""

    trial: int
    frame: int
    score: float


class Paused(NamedTuple):
    """The scheduler paused the trial to run others."""

    trial: int
    seconds: float
    metrics: Mapping[str, float | None]


class Copied(NamedTuple):
    """The trial continues from the checkpoint of `donor` at `frame`, with new
    values."""

    trial: int
    donor: int
    params: Params
    frame: int
    seconds: float


class Retried(NamedTuple):
    """The trial failed and restarts from its last checkpoint."""

    trial: int
    error: str
    seconds: float


class Interrupted(NamedTuple):
    """The search was stopped while the trial ran."""

    trial: int
    seconds: float


class Ended(NamedTuple):
    """The trial finished, was stopped by the scheduler, or failed too often."""

    trial: int
    status: Status
    frame: int
    score: float | None
    seconds: float
    metrics: Mapping[str, float | None]
    error: str | None = None
    would_repeat: bool = False
    """Whether a restart would fail in the same way."""


class Confirmed(NamedTuple):
    """The spec of a trial was run again with fresh seeds, with these scores."""

    trial: int
    scores: tuple[float, ...]
    """The scores of the finished seeds."""
    error: str | None = None

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None without a score."""
        if self.scores:
            return fmean(self.scores)
        return None


Event: TypeAlias = (
    Proposed
    | Began
    | Reported
    | Paused
    | Copied
    | Retried
    | Interrupted
    | Ended
    | Confirmed
)
_KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind for kind in get_args(Event)
}


@final
class StudyState:
    """The state of a study after all events so far."""

    def __init__(self) -> None:
        self.trials: dict[int, TrialState] = {}
        self.confirmed: dict[int, Confirmed] = {}

    @classmethod
    def from_log(cls, file: Path) -> "StudyState":
        """Reads the state from an event log. Raises UsageError if the log is
        damaged."""
        study_state = cls()
        for event in EventLog(file).read():
            study_state.apply(event)
        return study_state

    def apply(self, event: Event) -> None:
        """Applies the next event, whose trial was proposed."""
        if isinstance(event, Proposed):
            self.trials[event.trial] = TrialState(event.trial, event.params)
            return
        if isinstance(event, Confirmed):
            self.confirmed[event.trial] = event
            return
        state = self.trials[event.trial]
        state.seconds += getattr(event, "seconds", 0.0)
        match event:
            case Began():
                state.status = Status.RUNNING
                state.has_begun = True
                state.folder = event.folder
            case Reported():
                state.frame = event.frame
                state.score = event.score
                state.reports += 1
            case Paused():
                state.status = Status.PAUSED
                state.metrics = event.metrics
            case Copied():
                state.status = Status.PAUSED
                state.frame = event.frame
                state.params = event.params
                state.copies += 1
                state.donor = event.donor
            case Retried():
                state.status = Status.WAITING
                state.error = None
                state.last_failure = event.error
                state.restarts += 1
            case Interrupted():
                state.status = Status.WAITING
            case Ended():
                state.status = event.status
                state.frame = event.frame
                state.score = event.score
                state.metrics = event.metrics
                state.error = event.error
                state.would_repeat = event.would_repeat

    def of(self, *statuses: Status) -> list[TrialState]:
        """The trials with one of these statuses, by number."""
        return [state for state in self.trials.values() if state.status in statuses]

    @property
    def ranked(self) -> list[TrialState]:
        """The trials in the order of `ranked`, the best first."""
        return ranked(self.trials.values())

    @property
    def results(self) -> list[Confirmed]:
        """The confirmed trials, best mean first; those without a score last."""
        results = self.confirmed.values()
        return sorted(
            results,
            key=lambda result: (
                result.mean is None,
                -(result.mean or 0.0),
                result.trial,
            ),
        )

    @property
    def has_failed(self) -> bool:
        """Whether all trials have failed."""
        return len(self.of(Status.FAILED)) == len(self.trials)

    @property
    def is_over(self) -> bool:
        """Whether all trials are over."""
        return all(state.status.is_over for state in self.trials.values())


_SUM = b', "sum": "'
"""The text between an event and the checksum of its line."""
_CHAIN = re.compile(rb'(\{.*), "chain": "([0-9a-f]{16})"\}')
"""A line of an earlier version: its checksum also covers the line before."""
_CHANGED = "it does not follow from the lines before, which were changed or lost"


@final
class EventLog:
    """The file of events. Drops a last line that a kill left incomplete."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: int | None = None
        self._lines = 0

    def read(self) -> Iterator[Event]:
        """The events, in order. Raises UsageError if a line is no event, or if its
        checksum does not match. A log that an earlier version began has lines with
        checksums of another kind, or without any. Lines of this version follow them."""
        lines = self._whole_lines()
        proposed: set[int] = set()
        chain = None
        if lines and _CHAIN.fullmatch(lines[0]):
            chain = b""
        for number, line in enumerate(lines, 1):
            try:
                if _SUM in line or chain is None:
                    content = _content(line, number)
                else:
                    content, chain = _chained(line, chain)
                event = _event(_parsed(content))
                if isinstance(event, Proposed):
                    proposed.add(event.trial)
                elif event.trial not in proposed:
                    raise ValueError(f"no line before it proposes t{event.trial}")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(
                    f"{self._file}, line {number}, is no event: {error}"
                ) from error
            yield event

    def _whole_lines(self) -> list[bytes]:
        content = b""
        if self._file.is_file():
            content = self._file.read_bytes()
        return content.split(b"\n")[:-1]

    def write(self, event: Event) -> None:
        """Appends an event. It survives a kill and, unless it is a Reported, which can
        be recomputed, a power cut. Raises LabError if the disk is full; earlier events
        are safe."""
        kind = type(event).__name__.lower()
        content = json.dumps({"event": kind, **event._asdict()}).encode()
        try:
            self._append(content, durably=not isinstance(event, Reported))
        except OSError as error:
            raise LabError(
                f"cannot write the event log {self._file}: {error.strerror or error}; "
                "the search stops, and can be resumed from the last written event"
            ) from error

    def _append(self, content: bytes, durably: bool) -> None:
        if self._stream is None:
            self._stream = self._opened()
        body = content.removesuffix(b"}")
        number = self._lines + 1
        line = body + _SUM + _checksum(body, number) + b'"}\n'
        if os.write(self._stream, line) < len(line):
            self.close()  # the next write truncates this incomplete line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._lines = number
        if durably:
            os.fsync(self._stream)

    def _opened(self) -> int:
        """Opens the file, and truncates it after the last whole line."""
        stream = open_own(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        lines = self._whole_lines()
        os.truncate(stream, sum(len(line) + 1 for line in lines))
        self._lines = len(lines)
        return stream

    def close(self) -> None:
        """Closes the file. May be called twice."""
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None


def _checksum(body: bytes, number: int) -> bytes:
    """The checksum of an event in this line of its log."""
    return b"%08x" % zlib.crc32(body, number)


def _content(line: bytes, number: int) -> bytes:
    """The event of a line. Raises ValueError on a wrong checksum."""
    body, has_sum, rest = line.rpartition(_SUM)
    if not has_sum:
        return line
    if rest != _checksum(body, number) + b'"}':
        raise ValueError(_CHANGED)
    return body + b"}"


def _chained(line: bytes, before: bytes) -> tuple[bytes, bytes]:
    """The event of a line of an earlier version, and the line's checksum. It also
    covers the checksum of the line `before`. Raises ValueError on a wrong one."""
    match = _CHAIN.fullmatch(line)
    if match is None:
        raise ValueError(_CHANGED)
    content = match[1] + b"}"
    if hashlib.sha256(before + content).hexdigest()[:16].encode() != match[2]:
        raise ValueError(_CHANGED)
    return content, match[2]


def _parsed(content: bytes) -> dict[str, Any]:
    """The JSON object of an event. Raises ValueError if it is none."""
    try:
        parsed = json.loads(content)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError("it is cut, or no JSON object")
    return parsed


def _event(content: dict[str, Any]) -> Event:
    kind = _KINDS[content.pop("event")]
    if not isinstance(content.get("trial", 0), int):
        raise ValueError(f"the trial {content['trial']!r} is no number")
    if "point" in content:  # in records of earlier versions
        content["params"] = content.pop("point")
    if kind is Ended:
        content["status"] = Status(content["status"])
    if kind is Confirmed:
        content["scores"] = tuple(content["scores"])
    return kind(**content)
