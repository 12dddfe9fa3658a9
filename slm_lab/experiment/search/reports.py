"""The reports of a trial to a scheduler: its mean score at frames all its Sessions reached."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from slm_lab.metrics.reader import Rows, read_rows

SHARE = 0.05
"""The share of a core that reading the rows of a trial may take."""


class Report(NamedTuple):
    """A mean score of all Sessions, and the frame of the budget at which they had it."""

    frame: int
    score: float


def reports(rows: Sequence[Rows]) -> list[Report]:
    """A report for each row index that every Session has written, after equal numbers of their own
    frames: the mean of `recent_return`, skipped while a Session has too few episodes for one, at
    `total_frame`, so that trials are compared at equal shares of their budgets."""
    count = min((len(each) for each in rows), default=0)
    if not count:
        return []
    frames = np.max([each["total_frame"][:count] for each in rows], axis=0)
    scores = np.mean([each["recent_return"][:count] for each in rows], axis=0)
    known = np.isfinite(scores)
    return [Report(int(f), float(s)) for f, s in zip(frames[known], scores[known], strict=True)]


@final
class RowWatch:
    """Reads the rows of a trial's Sessions when there are new ones: whole files, because a resume
    may cut off rows, and long files less often, to cost at most `SHARE` of a core."""

    def __init__(self, files: Sequence[Path], after: int) -> None:
        self._files = files
        self._sizes: list[int] | None = None
        self._last_frame = after
        self._due = 0.0

    def poll(self, at_the_end: bool = False) -> list[Report]:
        """New reports, of frames after the last reported frame."""
        began = time.monotonic()
        if began < self._due and not at_the_end:
            return []
        try:
            sizes = [file.stat().st_size for file in self._files]
        except FileNotFoundError:
            return []
        if sizes == self._sizes:
            return []
        known = reports([read_rows(file) for file in self._files])
        self._sizes = sizes
        self._due = began + (time.monotonic() - began) / SHARE
        new = [report for report in known if report.frame > self._last_frame]
        if new:
            self._last_frame = new[-1].frame
        return new
