"""The record of a search: a line for everything that happened, written as it happens.

What a search knows is what its record says. One that is resumed after a kill reads it, and reports
to the engine and the scheduler again what they had heard.

Each line ends with a checksum of itself and of the line before, so that a line that was changed,
lost, doubled or moved is noticed. Lines that were cut off at the end are an earlier record.
"""

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias, final

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import open_own

Point: TypeAlias = Mapping[str, Any]
"""The value of each searched key, by its dotted path."""


class Status(StrEnum):
    """Where a trial of a search stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether it runs no more."""
        return self in (Status.FINISHED, Status.STOPPED, Status.FAILED)


@final
@dataclass(frozen=True)
class Proposed:
    """A trial, and the values of the keys that are searched."""

    trial: int
    point: Point


@final
@dataclass(frozen=True)
class Began:
    """It runs from now on: for the first time, or again."""

    trial: int


@final
@dataclass(frozen=True)
class Reported:
    """The mean score of its Sessions at a frame that all have reached."""

    trial: int
    frame: int
    score: float


@final
@dataclass(frozen=True)
class Paused:
    """The scheduler has others run."""

    trial: int
    seconds: float
    metrics: Mapping[str, float | None]


@final
@dataclass(frozen=True)
class Copied:
    """It goes on from the checkpoint that `donor` had at `frame`, with other values."""

    trial: int
    donor: int
    point: Point
    frame: int
    seconds: float


@final
@dataclass(frozen=True)
class Retried:
    """It failed, and is tried again from its last checkpoint."""

    trial: int
    error: str
    seconds: float


@final
@dataclass(frozen=True)
class Interrupted:
    """The search was stopped while it ran."""

    trial: int
    seconds: float


@final
@dataclass(frozen=True)
class Ended:
    """It has come to its end, was ended by the scheduler, or failed too often."""

    trial: int
    status: Status
    frame: int
    score: float | None
    seconds: float
    metrics: Mapping[str, float | None]
    error: str | None = None
    would_repeat: bool = False
    """Whether it failed in a way in which it would fail again."""


@final
@dataclass(frozen=True)
class Confirmed:
    """The spec of a trial was run again under fresh seeds, with these scores."""

    trial: int
    scores: tuple[float, ...]
    """Of the seeds that came to their end."""
    error: str | None = None

    @property
    def mean(self) -> float | None:
        """Over the seeds; None where none has a score."""
        return fmean(self.scores) if self.scores else None


Event: TypeAlias = (
    Proposed | Began | Reported | Paused | Copied | Retried | Interrupted | Ended | Confirmed
)
_KINDS: dict[str, type[Event]] = {
    kind.__name__.lower(): kind
    for kind in (
        Proposed, Began, Reported, Paused, Copied, Retried, Interrupted, Ended, Confirmed
    )
}  # fmt: skip


@dataclass
class TrialState:
    """What is known of a trial."""

    trial: int
    point: Point
    status: Status = Status.WAITING
    frame: int = 0
    """Up to which it has reported."""
    score: float | None = None
    reports: int = 0
    seconds: float = 0.0
    restarts: int = 0
    has_begun: bool = False
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None
    last_failure: str | None = None
    """Why it was last tried again."""
    would_repeat: bool = False
    copies: int = 0
    donor: int | None = None
    """Whose weights it has last taken over."""


@final
class Standing:
    """What all events so far amount to."""

    def __init__(self) -> None:
        self.trials: dict[int, TrialState] = {}
        self.confirmed: dict[int, Confirmed] = {}
        """By trial."""

    @classmethod
    def of_record(cls, file: Path) -> "Standing":
        """That of a search, from its record. Raises UsageError where it is damaged."""
        standing = cls()
        for event in Record(file).read():
            standing.apply(event)
        return standing

    def apply(self, event: Event) -> None:
        """Takes in the next event. Raises UsageError where it is of a trial that was never
        proposed: a line of the record is missing."""
        if isinstance(event, Proposed):
            self.trials[event.trial] = TrialState(event.trial, event.point)
            return
        if event.trial not in self.trials:
            raise UsageError(
                f"the record of the search is damaged: it never proposes t{event.trial}"
            )
        if isinstance(event, Confirmed):
            self.confirmed[event.trial] = event
            return
        its = self.trials[event.trial]
        its.seconds += getattr(event, "seconds", 0.0)
        match event:
            case Began():
                its.status, its.has_begun = Status.RUNNING, True
            case Reported():
                its.frame, its.score = event.frame, event.score
                its.reports += 1
            case Paused():
                its.status, its.metrics = Status.PAUSED, event.metrics
            case Copied():
                its.status, its.frame, its.point = Status.PAUSED, event.frame, event.point
                its.copies += 1
                its.donor = event.donor
            case Retried():
                its.status, its.error = Status.WAITING, None
                its.last_failure = event.error
                its.restarts += 1
            case Interrupted():
                its.status = Status.WAITING
            case Ended():
                its.status, its.frame, its.score = event.status, event.frame, event.score
                its.metrics, its.error = event.metrics, event.error
                its.would_repeat = event.would_repeat

    def of(self, *statuses: Status) -> list[TrialState]:
        """The trials that stand there, by number."""
        return [its for its in self.trials.values() if its.status in statuses]

    @property
    def results(self) -> list[Confirmed]:
        """What was run again under fresh seeds, the best first; without a score last."""
        found = self.confirmed.values()
        return sorted(found, key=lambda each: (each.mean is None, -(each.mean or 0.0), each.trial))

    @property
    def is_over(self) -> bool:
        """Whether no trial has anything left to do."""
        return all(its.status.is_over for its in self.trials.values())


_CHAIN = re.compile(rb'(\{.*), "chain": "([0-9a-f]{16})"\}')
"""A line: the event, and the checksum that links it to the line before."""


@final
class Record:
    """The file of the events. A line that a kill has cut off is dropped."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stream: int | None = None
        self._chain = b""
        """The checksum of the last line."""

    def read(self) -> Iterator[Event]:
        """The events, in their order. Raises UsageError where a line is none, or does not follow
        from the line before. Records of earlier versions have no checksums."""
        lines = self._whole_lines()
        chain = b"" if not lines or _CHAIN.fullmatch(lines[0]) else None
        for number, line in enumerate(lines, 1):
            try:
                content = line
                if chain is not None:
                    content, chain = _unlinked(line, chain)
                yield _event(json.loads(content))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise UsageError(f"{self._file}, line {number}, is no event: {error}") from error

    def _whole_lines(self) -> list[bytes]:
        content = self._file.read_bytes() if self._file.is_file() else b""
        return content.split(b"\n")[:-1]

    def write(self, event: Event) -> None:
        """Adds an event. It outlives a kill at once, and what cannot be made again a power cut too.

        Raises LabError where the disk does not take it; what was noted before is safe.
        """
        kind = type(event).__name__.lower()
        content = json.dumps({"event": kind, **asdict(event)}).encode()
        try:
            self._append(content, durably=not isinstance(event, Reported))
        except OSError as error:
            raise LabError(
                f"cannot write the record {self._file}: {error.strerror or error}; the search ends "
                "here, and can go on from what was noted before"
            ) from error

    def _append(self, content: bytes, durably: bool) -> None:
        if self._stream is None:
            self._stream = self._opened()
        chain = _link(content, self._chain)
        line = content[:-1] + b', "chain": "' + chain + b'"}\n'
        if os.write(self._stream, line) < len(line):
            self.close()  # the next one takes the place of what has been written of this
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._chain = chain
        if durably:
            os.fsync(self._stream)

    def _opened(self) -> int:
        """At the end of the last whole line."""
        stream = open_own(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        lines = self._whole_lines()
        os.truncate(stream, sum(len(line) + 1 for line in lines))
        last = _CHAIN.fullmatch(lines[-1]) if lines else None
        self._chain = last[2] if last else b""
        return stream

    def close(self) -> None:
        """May be called twice."""
        if self._stream is not None:
            os.close(self._stream)
            self._stream = None


def _link(content: bytes, before: bytes) -> bytes:
    """The checksum of an event whose line follows the one with the checksum `before`."""
    return hashlib.sha256(before + content).hexdigest()[:16].encode()


def _unlinked(line: bytes, before: bytes) -> tuple[bytes, bytes]:
    """The event of a line, and the line's checksum. Raises ValueError where that is another."""
    found = _CHAIN.fullmatch(line)
    content = found[1] + b"}" if found else b""
    if found is None or _link(content, before) != found[2]:
        raise ValueError("it does not follow from the lines before, which were changed or lost")
    return content, found[2]


def _event(content: dict[str, Any]) -> Event:
    kind = _KINDS[content.pop("event")]
    if kind is Ended:
        content["status"] = Status(content["status"])
    if kind is Confirmed:
        content["scores"] = tuple(content["scores"])
    return kind(**content)
