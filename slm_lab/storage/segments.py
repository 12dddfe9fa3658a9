"""Plans which steps of a log a checkpoint writes, and which earlier files it keeps.

A checkpoint writes the new steps and merges the newest files that are at most twice as
long. So each file is more than twice as long as the next. Long files hold at least 1/64
of the log's capacity, so there are some 64 at most. A step is rewritten only if its
file grows by at least half. No checkpoint writes more than 1/32 of the log beyond the
new steps."""

from collections.abc import Sequence

from slm_lab.agent.memory.memory import AppendLog
from slm_lab.core.errors import UnusableCheckpointError
from slm_lab.storage.manifest import Segment

SHARE = 32
"""The longest file holds 1/SHARE of a log's capacity."""
SHORT = 256
"""Steps that a file may hold in any case."""


def plan(saved: Sequence[Segment], log: AppendLog) -> tuple[list[Segment], list[range]]:
    """The files of `saved` that the next checkpoint of `log` keeps, and the steps of
    each new file."""
    longest = max(log.capacity // SHARE, SHORT)
    kept = [segment for segment in saved if segment.end > log.first]
    # Rewrite the newest saved step: its episodes may have been truncated since.
    first = max(kept[-1].end - 1, log.first) if kept else log.first
    while kept and kept[-1].end - kept[-1].first <= min(
        2 * (log.count - first), longest // 2
    ):
        first = max(kept.pop().first, log.first)
    written = [
        range(start, min(start + longest, log.count))
        for start in range(first, log.count, longest)
    ]
    return kept, written


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
