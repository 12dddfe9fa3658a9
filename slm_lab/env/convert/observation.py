"""Converts an environment's observations to an agent's: float32 vectors and uint8
images; joins the last observations of an episode."""

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import Space, spaces

from slm_lab.core.errors import LabError, Problem, SpecError
from slm_lab.core.types import Array, IntArray
from slm_lab.env.convert.image import ImageConverter, channels_are_last, is_image
from slm_lab.env.interface import breaks_its_space, typed


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


SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""The supported spaces of observations and their parts."""

FLOAT32_MAX = float(np.finfo(np.float32).max)


class ObservationConverter:
    """Converts observations to float32 vectors and arrays (C, H, W), and images to
    uint8 (C, H, W). Box → float32 (uint8 stays uint8), MultiBinary → float32, Discrete
    → one-hot, MultiDiscrete → concatenated one-hots. Numbers and matrices become
    vectors; arrays of three axes (C, H, W). `flatten` converts spaces with parts to a
    Box before. Raises SpecError for other spaces, for an `image_size` (width, height)
    without images, and for `channels` ("first" or "last") without any."""

    space: Space[Any]
    """The agent's observation space, of one environment."""

    def __init__(
        self,
        raw_space: Space[Any],
        env_name: str,
        image_size: tuple[int, ...] | None = None,
        channels: Literal["first", "last"] | None = None,
    ) -> None:
        self.first_column: Array | None = None
        """Takes each component to its column of the one-hots; None: there are no
        one-hots."""
        self._image: ImageConverter | None = None
        self.channels_last = False
        """Whether observations (..., C) become (C, ...)."""
        self._channels = channels
        if isinstance(raw_space, spaces.Box) and is_image(raw_space):
            self._image = ImageConverter(raw_space, image_size, channels)
            self.space = self._image.space
            self.channels_last = self._image.channels_last
        elif image_size is not None:
            raise SpecError("env", [_image_problem(raw_space, image_size)])
        elif isinstance(raw_space, spaces.Box):
            box = raw_space
            if raw_space.dtype != np.uint8:
                box = float32_box(raw_space)
            self.space = self._arranged(box)
        elif isinstance(raw_space, spaces.MultiBinary):
            self.space = self._arranged(
                spaces.Box(0.0, 1.0, raw_space.shape, np.float32)
            )
        elif isinstance(raw_space, spaces.Discrete | spaces.MultiDiscrete):
            start, sizes = discrete_parts(raw_space)
            ends = np.cumsum(sizes)
            self.first_column = ends - sizes - start
            self._columns = (ends - sizes, ends - 1)
            self._raw_space = raw_space
            self.space = spaces.Box(0.0, 1.0, (int(sizes.sum()),), np.float32)
        else:
            raise SpecError("env", [unsupported(raw_space, env_name)])
        assert raw_space.dtype is not None
        assert self.space.dtype is not None
        self._env_name = env_name
        self._raw_shape = raw_space.shape or ()
        self._raw_dtype = raw_space.dtype
        self._dtype = self.space.dtype
        if channels is not None and len(self._raw_shape) < 3:
            raise SpecError("env", [_channels_problem(raw_space, channels)])
        self._shape = None if self.space.shape == raw_space.shape else self.space.shape

    @property
    def resizes(self) -> bool:
        """Whether it resizes images."""
        return self._image is not None and self._image.size is not None

    def convert(self, raw_obs: Array) -> Array:
        """Raw observations of B environments → (B, ...), in the shape and type of
        `space`. Raises LabError if they are not in the environment's own space, or
        beyond float32."""
        if raw_obs.dtype is not self._raw_dtype or raw_obs.shape[1:] != self._raw_shape:
            raw_obs = self._cast_to_raw_space(raw_obs)
        if self._image is not None:
            return self._image.convert(raw_obs)
        if self.first_column is None:
            obs = raw_obs
            if obs.dtype is not self._dtype:
                obs = self._cast_to_agents_type(obs)
            if self.channels_last:
                return np.ascontiguousarray(np.moveaxis(obs, -1, 1))
            if self._shape is None:
                return obs
            return obs.reshape(len(obs), *self._shape)
        columns = raw_obs.reshape(len(raw_obs), -1) + self.first_column
        is_outside = ((columns < self._columns[0]) | (columns > self._columns[1])).any(
            axis=1
        )
        if is_outside.any():
            index = int(is_outside.argmax())
            value = f"the observation of copy {index} is {raw_obs[index].tolist()}"
            fault = f"{value}, which {self._raw_space} has not"
            raise breaks_its_space(self._env_name, fault)
        one_hot = np.zeros((len(raw_obs), *(self.space.shape or ())), np.float32)
        np.put_along_axis(one_hot, columns, 1.0, axis=1)
        return one_hot

    def _cast_to_raw_space(self, raw_obs: Array) -> Array:
        """Observations of a vector environment, which it may give in another type."""
        try:
            if raw_obs.shape[1:] != self._raw_shape:
                shapes = f"the shape {raw_obs.shape[1:]}, its space {self._raw_shape}"
                raise ValueError(f"the observation has {shapes}")
            return typed(raw_obs, self._raw_dtype)
        except ValueError as error:
            raise breaks_its_space(self._env_name, error) from None

    def _cast_to_agents_type(self, raw_obs: Array) -> Array:
        # No value is larger than the root of their sum of squares, which is cheap.
        if (
            raw_obs.dtype.kind != "f"
            or float(np.vdot(raw_obs, raw_obs)) < FLOAT32_MAX**2
        ):
            return raw_obs.astype(self._dtype, copy=False)
        try:
            return typed(raw_obs, self._dtype)
        except ValueError as error:
            fix = "scale it in a wrapper (env.wrappers)"
            raise LabError(
                f"{self._env_name} cannot be observed: {error}; {fix}"
            ) from None

    def _arranged(self, box: spaces.Box) -> spaces.Box:
        """The box with the axes that nets expect: channels first, no matrices, no
        numbers."""
        self.channels_last = len(box.shape) == 3 and channels_are_last(
            box.shape, self._channels
        )
        if self.channels_last:
            low, high = (np.moveaxis(bound, -1, 0) for bound in (box.low, box.high))
        elif len(box.shape) in (0, 2):
            low = box.low.ravel()
            high = box.high.ravel()
        else:
            return box
        assert box.dtype is not None
        return spaces.Box(low, high, dtype=box.dtype.type)


def discrete_parts(
    space: spaces.Discrete | spaces.MultiDiscrete,
) -> tuple[Array, Array]:
    """The first value and the number of values of each component, both (K,) int64."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.start], np.int64), np.array([space.n], np.int64)
    return space.start.ravel().astype(np.int64), space.nvec.ravel().astype(np.int64)


def float32_box(box: spaces.Box) -> spaces.Box:
    """The box in float32; bounds beyond its range become infinite."""
    with np.errstate(over="ignore"):
        low = box.low.astype(np.float32)
        high = box.high.astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def unsupported(
    space: Space[Any],
    env_name: str,
    path: tuple[str, ...] = (),
    usable: Sequence[str] = (),
) -> Problem:
    """The problem of an unsupported `space`, or of its part at `path`; `usable`: the
    usable keys."""
    subject = "its observations are"
    if path:
        subject = f'its observation "{".".join(path)}" is'
    remedy = "observes one of these"
    if path:
        remedy = f"leaves this part out: {only_parts(usable or ['…'])}"
    return Problem(
        "env.name",
        f"{subject} a {_kind(space)}, which is not supported; supported are Box, "
        "Discrete, MultiDiscrete and MultiBinary, also as parts of a Dict or Tuple; "
        f"wrap the environment so that it {remedy}",
        env_name,
    )


def only_parts(keys: Sequence[str]) -> str:
    """The option that leaves only these parts of a Dict."""
    wrapper = {"name": "gymnasium.wrappers:FilterObservation", "filter_keys": [*keys]}
    return f"-s 'env.wrappers=[{json.dumps(wrapper)}]'"


def _image_problem(space: Space[Any], size: tuple[int, ...]) -> Problem:
    kind = (
        f"a {_kind(space)}"
        if space.shape is None
        else f"{space.dtype} of shape {space.shape}"
    )
    message = f"only images can be resized; its observations are {kind}"
    return Problem("env.image_downsize", message, list(size))


def _channels_problem(space: Space[Any], channels: str) -> Problem:
    kind = f"a {_kind(space)} of the shape {space.shape}"
    message = (
        f"only arrays of three or four axes have channels; its observations are {kind}"
    )
    return Problem("env.image_channels", message, channels)


def _kind(space: Space[Any]) -> str:
    if isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces) == 0:
        return f"{type(space).__name__} space without parts"
    if is_empty(space):
        return (
            f"{type(space).__name__} space of the shape {space.shape}, without a "
            "number in it"
        )
    return f"{type(space).__name__} space"


def is_empty(space: Space[Any]) -> bool:
    """Whether an observation of this space has no numbers."""
    return 0 in (space.shape or ())
