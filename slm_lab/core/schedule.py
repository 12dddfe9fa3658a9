"""Values that change over a run: exploration, entropy weight, clipping range.

A schedule moves from `start_val` to `end_val` between the frames `start_step` and
`end_step`, in either direction. Before and after it is constant."""

import math
from collections.abc import Callable

DECAY_RATE = 0.9
DECAY_STEPS = 20.0
PERIODIC_RANGE = 60.0


def linear(start: float, end: float, progress: float) -> float:
    """A straight line; `progress` in [0, 1]."""
    return start + (end - start) * progress


def rate(start: float, end: float, progress: float) -> float:
    """Compounding decay by 0.9 in twenty steps, bounded by `end`. A rise is the mirror
    image, so that it also works from or to zero."""
    factor = math.pow(DECAY_RATE, DECAY_STEPS * progress)
    if start >= end:
        return max(start * factor, end)
    return start + end - max(end * factor, start)


def periodic(start: float, end: float, progress: float) -> float:
    """A cosine around the mean, whose amplitude shrinks linearly to zero."""
    x = PERIODIC_RANGE * progress
    return end + 0.5 * (start - end) * (1 + math.cos(x)) * (1 - progress)


SHAPES: dict[str, Callable[[float, float, float], float]] = {
    "linear_decay": linear,
    "rate_decay": rate,
    "periodic_decay": periodic,
}


class Schedule:
    """A value as a function of the trial's frame clock, constant with the shape
    "no_decay". Stateless, so it needs no checkpoint."""

    def __init__(
        self,
        start_val: float,
        end_val: float | None = None,
        start_step: float = 0,
        end_step: float | None = None,
        shape: str = "no_decay",
    ) -> None:
        self._start_val = start_val
        self._end_val = start_val if end_val is None else end_val
        self._start_step = start_step
        self._end_step = end_step
        self._shape = SHAPES.get(shape)  # None: constant

    def at(self, frame: int) -> float:
        """The value at `frame`."""
        if self._shape is None or self._end_step is None or frame <= self._start_step:
            return self._start_val
        if frame >= self._end_step:
            return self._end_val
        length = self._end_step - self._start_step
        progress = (frame - self._start_step) / length
        return self._shape(self._start_val, self._end_val, progress)
