"""The speed of a training, as its frames are counted."""

from collections import deque

SPEED_WINDOW = 5.0
"""The minimum number of seconds over which the speed is averaged."""
SPEED_SHARE = 0.1
"""The minimum share of the run over which the speed is averaged, for a steady time
left."""
SPEED_PAUSES = 4
"""The minimum averaging window, in multiples of the longest pause between two frames.
An agent may learn for seconds without a step, and unrolls of seconds arrive at once."""


class Speed:
    """The recent frames per second of a running Session."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._began: float | None = None
        self._longest_pause = 0.0

    def update(self, frame: int, now: float) -> float | None:
        """Records the frame at the time `now`; returns the speed, or None before any
        progress. Pauses count, but the one since the last frames only once it exceeds
        the mean pause."""
        self._began = now if self._began is None else self._began
        if self._seen:
            self._longest_pause = max(self._longest_pause, now - self._seen[-1][0])
        if not self._seen or frame != self._seen[-1][1]:
            self._seen.append((now, frame))
        window = max(
            SPEED_WINDOW,
            SPEED_SHARE * (now - self._began),
            SPEED_PAUSES * self._longest_pause,
        )
        while len(self._seen) > 2 and self._seen[1][0] < now - window:
            self._seen.popleft()
        (before, first) = self._seen[0]
        (last, _) = self._seen[-1]
        if frame == first:
            return None
        pause = (last - before) / (len(self._seen) - 1)
        return (frame - first) / (max(last, now - pause) - before)
