"""Joins the last observations of an episode."""

from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.types import Array, IntArray


class FrameJoiner:
    """Joins the last L frames of each environment, the newest last. "stack" joins along
    a new first axis, (L, …); "concat" along the existing first axis. For images with
    one channel both give (L, H, W). At the start of an episode all frames are its first
    one. The only state is the last joined observation."""

    def __init__(
        self, op: Literal["stack", "concat"], length: int, space: Space[Any]
    ) -> None:
        assert isinstance(space, spaces.Box)
        frame = space.shape
        gray = len(frame) == 3 and frame[0] == 1 and space.dtype == np.uint8
        joined = (
            (length, *frame)
            if op == "stack" and not gray
            else (length * frame[0], *frame[1:])
        )
        self.length = length
        self._frame = frame
        self._joined = joined
        low = np.broadcast_to(space.low, (length, *frame)).reshape(joined)
        high = np.broadcast_to(space.high, (length, *frame)).reshape(joined)
        assert space.dtype is not None
        self.space = spaces.Box(low, high, dtype=space.dtype.type)

    def begin(self, frames: Array) -> Array:
        """The first frames (B, …) of episodes → (B, *joined)."""
        return np.repeat(frames[:, None], self.length, axis=1).reshape(
            len(frames), *self._joined
        )

    def follow(self, joined: Array, frames: Array) -> Array:
        """The joined frames (N, *joined) shifted by the newest ones (N, …); a new
        array."""
        moved = np.empty((len(frames), self.length, *self._frame), joined.dtype)
        moved[:, :-1] = joined.reshape(moved.shape)[:, 1:]
        moved[:, -1] = frames
        return moved.reshape(joined.shape)

    def follow_and_begin(
        self, joined: Array, last: Array, first: Array, over: IntArray
    ) -> tuple[Array, Array]:
        """`follow` with the `last` frames (N, …) of a step, without and with new
        episodes. In the rows `over` (K,) new episodes begin with their `first`
        frames."""
        ended = self.follow(joined, last)
        if len(over) == 0:
            return ended, ended
        begun = ended.copy()
        begun[over] = self.begin(first[over])
        return ended, begun
