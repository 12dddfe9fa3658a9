"""The reports of a trial to a scheduler: its mean score at frames all its Sessions reached."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from slm_lab.metrics.reader import GrowingRows, Rows


def reports(rows: Sequence[Rows]) -> list[tuple[int, float]]:
    """Frame and score for each row index that every Session has written, after equal numbers of
    their own frames: the mean of `recent_return`, skipped while a Session has too few episodes for
    one, at `total_frame`, so that trials are compared at equal shares of their budgets."""
    count = min((len(each) for each in rows), default=0)
    if not count:
        return []
    frames = np.max([each["total_frame"][:count] for each in rows], axis=0)
    scores = np.mean([each["recent_return"][:count] for each in rows], axis=0)
    known = np.isfinite(scores)
    return [(int(f), float(s)) for f, s in zip(frames[known], scores[known], strict=True)]


@final
class RowWatch:
    """The new reports of a trial, from the rows of its Sessions."""

    def __init__(self, files: Sequence[Path], after: int) -> None:
        self._files = [GrowingRows(file) for file in files]
        self._rows: list[Rows] = []
        self._last_frame = after

    def poll(self) -> list[tuple[int, float]]:
        """New reports, of frames after the last reported frame."""
        rows = [file.read() for file in self._files]
        if rows == self._rows:  # the same objects
            return []
        self._rows = rows
        new = [report for report in reports(rows) if report[0] > self._last_frame]
        if new:
            self._last_frame, _ = new[-1]
        return new
