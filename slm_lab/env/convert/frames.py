"""The last few observations of an episode as one."""

from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.types import Array, IntArray


class FrameJoiner:
    """The last L frames of each environment as one observation, the newest last.

    "stack" puts them along a new first axis, (L, …); "concat" behind one another along the first
    axis that they have. Of images with one channel both make (L, H, W). At the start of an episode
    all are its first frame. What was joined last is all that has to be remembered.
    """

    def __init__(self, op: Literal["stack", "concat"], length: int, space: Space[Any]) -> None:
        assert isinstance(space, spaces.Box)
        frame = space.shape
        gray = len(frame) == 3 and frame[0] == 1 and space.dtype == np.uint8
        joined = (length, *frame) if op == "stack" and not gray else (length * frame[0], *frame[1:])
        self.length = length
        self._frame, self._joined = frame, joined
        low = np.broadcast_to(space.low, (length, *frame)).reshape(joined)
        high = np.broadcast_to(space.high, (length, *frame)).reshape(joined)
        assert space.dtype is not None
        self.space = spaces.Box(low, high, dtype=space.dtype.type)

    def begin(self, frames: Array) -> Array:
        """The first frames (B, …) of episodes → (B, *joined)."""
        repeated = np.repeat(frames[:, None], self.length, axis=1)
        return repeated.reshape(len(frames), *self._joined)

    def follow(self, joined: Array, frames: Array) -> Array:
        """What was joined before (N, *joined) moved on by the newest frames (N, …); a new array."""
        moved = np.empty((len(frames), self.length, *self._frame), joined.dtype)
        moved[:, :-1] = joined.reshape(moved.shape)[:, 1:]
        moved[:, -1] = frames
        return moved.reshape(joined.shape)

    def follow_and_begin(
        self, joined: Array, last: Array, first: Array, over: IntArray
    ) -> tuple[Array, Array]:
        """`follow` with the `last` frames (N, …) of a step, and the same with new episodes, which
        begin with their `first` frames, in the rows `over` (K,)."""
        ended = self.follow(joined, last)
        if len(over) == 0:
            return ended, ended
        begun = ended.copy()
        begun[over] = self.begin(first[over])
        return ended, begun
