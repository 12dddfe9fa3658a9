"""Values that change over a run: exploration, entropy weight, clipping range.

A schedule moves from `start_val` to `end_val` between the frames `start_step` and
`end_step`, in either direction. Before and after it is constant."""

import math
from collections.abc import Callable

from slm_lab.spec.schema.schedule import ScheduleSpec

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
    """A value as a function of the trial's frame clock. Stateless, so it needs no
    checkpoint."""

    def __init__(self, spec: ScheduleSpec) -> None:
        self._spec = spec
        self._shape = SHAPES.get(spec.name)  # None: constant

    def at(self, frame: int) -> float:
        """The value at `frame`."""
        spec = self._spec
        if self._shape is None or frame <= spec.start_step:
            return spec.start_val
        if spec.end_val is None or spec.end_step is None:
            return spec.start_val
        if frame >= spec.end_step:
            return spec.end_val
        progress = (frame - spec.start_step) / (spec.end_step - spec.start_step)
        return self._shape(spec.start_val, spec.end_val, progress)
