"""Which steps of a log a checkpoint writes anew, and which files of earlier ones it keeps.

A checkpoint writes the steps that are new, and with them the newest files before that are not
twice as long as what it writes, but only the short ones. So each file is more than twice as long
as the next, but for the long ones, which hold at least a sixty-fourth of what the log can keep:
there are never more than 64 and a few. A step is written again only when its file becomes half as
long again at least, that is a few times in all; and no checkpoint writes more than a thirty-second
of the log beyond what is new.
"""

from collections.abc import Sequence
from typing import NamedTuple

from slm_lab.agent.memory.step_log import StepLog
from slm_lab.core.errors import UnusableCheckpointError
from slm_lab.experiment.manifest import Segment

SHARE = 32
"""The longest file has one part in so many of what a log can keep."""
SHORT = 256
"""Steps that a file may have whatever the share is."""


class Plan(NamedTuple):
    """What becomes of a log in the next checkpoint."""

    kept: list[Segment]
    """The files of earlier ones that it keeps."""
    written: list[range]
    """The numbers of the steps that go into each new file."""


def plan(saved: Sequence[Segment], log: StepLog) -> Plan:
    """How to save `log`, whose steps but for the newest the files `saved` hold up to some point."""
    longest = max(log.capacity // SHARE, SHORT)
    kept = [segment for segment in saved if segment.end > log.first]
    # The newest saved step goes along: its episodes may have been broken off since.
    first = max(kept[-1].end - 1, log.first) if kept else log.first
    while kept and kept[-1].end - kept[-1].first <= min(2 * (log.count - first), longest // 2):
        first = max(kept.pop().first, log.first)
    written = [
        range(start, min(start + longest, log.count)) for start in range(first, log.count, longest)
    ]
    return Plan(kept, written)


def check_whole(segments: Sequence[Segment], log: StepLog, where: str) -> None:
    """Raises CheckpointError where files do not hold every step that the log is to have."""
    known = log.first
    for segment in segments:
        if segment.first <= known:
            known = max(known, segment.end)
    if known != log.count:
        raise UnusableCheckpointError(
            f"the checkpoint {where} holds the steps of the memory from {log.first} to {known} "
            f"only, and {log.count} had been taken"
        )
