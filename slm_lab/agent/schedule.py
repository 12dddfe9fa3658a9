"""Values that change over a run: exploration, entropy weight, clipping range.

A schedule goes from `start_val` to `end_val` between the frames `start_step` and `end_step`, in
either direction; before and after it is constant.
"""

import math
from collections.abc import Callable
from typing import Protocol

from slm_lab.core.errors import LabError

DECAY_RATE = 0.9
DECAY_STEPS = 20.0
PERIODIC_RANGE = 60.0


class ScheduleParams(Protocol):
    """The fields of a schedule in the spec; the steps are frames."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def start_val(self) -> float: ...  # noqa: D102
    @property
    def end_val(self) -> float | None: ...  # noqa: D102
    @property
    def start_step(self) -> int: ...  # noqa: D102
    @property
    def end_step(self) -> int | None: ...  # noqa: D102


def linear(start: float, end: float, progress: float) -> float:
    """A straight line; `progress` in [0, 1]."""
    return start + (end - start) * progress


def rate(start: float, end: float, progress: float) -> float:
    """Compounding decay by 0.9 in twenty steps, never beyond `end`.

    Upwards it is the mirror image, so that it also works from or to zero.
    """
    factor = math.pow(DECAY_RATE, DECAY_STEPS * progress)
    if start >= end:
        return max(start * factor, end)
    return start + end - max(end * factor, start)


def periodic(start: float, end: float, progress: float) -> float:
    """A cosine around the mean, of an amplitude that shrinks linearly to nothing."""
    x = PERIODIC_RANGE * progress
    return end + 0.5 * (start - end) * (1 + math.cos(x)) * (1 - progress)


SHAPES: dict[str, Callable[[float, float, float], float]] = {
    "linear_decay": linear,
    "rate_decay": rate,
    "periodic_decay": periodic,
}


class Schedule:
    """A value as a function of the trial's frame clock. Stateless, so it needs no checkpoint."""

    def __init__(self, params: ScheduleParams) -> None:
        self._params = params
        if params.name == "no_decay":
            self._shape = None
        elif params.name in SHAPES:
            self._shape = SHAPES[params.name]
        else:
            raise LabError(f'there is no schedule named "{params.name}"')

    def at(self, frame: int) -> float:
        """The value at `frame`."""
        p = self._params
        if self._shape is None or frame <= p.start_step:
            return p.start_val
        if p.end_val is None or p.end_step is None:
            return p.start_val
        if frame >= p.end_step:
            return p.end_val
        progress = (frame - p.start_step) / (p.end_step - p.start_step)
        return self._shape(p.start_val, p.end_val, progress)
