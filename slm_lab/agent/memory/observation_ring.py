"""The observations of a ring of steps: each stored once, stacks of frames as single
frames.

The index of (row, environment) in the ring is row · N + environment. The index of the
environment's next step is N larger, modulo the size. The final observation of an
episode would overwrite the first of the next, so it is kept apart.

An `Allocate` function decides where the arrays are stored."""

import errno
import math
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from slm_lab.agent.batch import VectorStep
from slm_lab.agent.device import moved
from slm_lab.agent.memory.memory import MemoryLayout
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, BoolArray, IntArray, StateDict

Allocate: TypeAlias = Callable[[tuple[int, ...], np.dtype[np.generic]], Array]
"""Makes an array of zeros of a shape and a type."""


def allocate_in_memory(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
    """An ordinary array. Raises LabError if there is not enough memory."""
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError) as error:  # ValueError: more than can be indexed
        size = math.prod(shape) * dtype.itemsize
        raise LabError(
            "agent.memory.max_size: there is no memory for an array of "
            f"{size / 1e6:,.1f} MB; "
            'lower it, or use "storage": "memmap"'
        ) from error


def mapped_in(folder: Path) -> Allocate:
    """Makes arrays in files in `folder`, which the system keeps in memory as far as
    there is room. The files have no name, so that the system frees them however the
    process ends. Raises LabError if there is not enough space."""

    def allocate(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        size = math.prod(shape) * dtype.itemsize
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                _reserve(file.fileno(), max(size, 1))
                mapped = mmap.mmap(file.fileno(), max(size, 1))
        except OSError as error:
            raise LabError(
                f'agent.memory.storage = "memmap": cannot keep {size / 1e6:,.1f} MB '
                f"in {folder}: "
                f"{error.strerror or error}; make room there, lower "
                "agent.memory.max_size, "
                'or use "memory"'
            ) from error
        return np.frombuffer(mapped, dtype, count=math.prod(shape)).reshape(shape)

    return allocate


def _reserve(descriptor: int, size: int) -> None:
    """Makes an empty file `size` bytes long and reserves its space on the disk. A page
    without space kills the process when it is first written. Where the system cannot
    reserve space (macOS), only the free space is checked. Raises OSError."""
    take_room = getattr(os, "posix_fallocate", None)
    if take_room is not None:
        take_room(descriptor, 0, size)
        return
    disk = os.fstatvfs(descriptor)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.ftruncate(descriptor, size)


@final
class DeviceRows:
    """Rows on a device, in place of an array of rows. They are written and saved as
    arrays, and sampled as tensors there. Raises LabError if the device has no memory
    for them."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        device: torch.device | None,
    ) -> None:
        numbers = torch.from_numpy(np.zeros(0, dtype))
        try:
            self._rows = numbers.new_zeros(shape, device=device)
        except RuntimeError as error:
            size = numbers.itemsize * np.prod(shape, dtype=float) / 1e6
            raise LabError(
                f'agent.memory.storage = "device": {device or "cpu"} has no memory for '
                f'{size:,.1f} MB; lower agent.memory.max_size, or use "memory"'
            ) from error

    def __setitem__(self, where: slice | IntArray, rows: Array) -> None:
        rows_here = torch.from_numpy(rows)
        self._rows[self._place(where)] = moved(rows_here, self._rows.device)

    def __getitem__(self, where: slice | IntArray) -> Array:
        array: Array = self._rows[self._place(where)].cpu().numpy()
        return array

    @staticmethod
    def _place(where: slice | IntArray) -> slice | Tensor:
        if isinstance(where, slice):
            return where
        return torch.from_numpy(where)

    def take(self, indices: IntArray) -> Tensor:
        """The rows at `indices`, of any shape and counted from either end, modulo their
        number."""
        place = torch.from_numpy(indices % len(self._rows))
        return self._rows[moved(place, self._rows.device)]


def put(stacks: Array | Tensor, place: tuple[int | slice, ...], frames: Array) -> None:
    """Copies frames into an array, or into a tensor on a device."""
    if isinstance(stacks, Tensor):
        stacks[place] = moved(torch.from_numpy(frames), stacks.device)
    else:
        stacks[place] = frames


class SparseRows(dict[int, Array]):
    """Arrays of one shape by index, at a few indices."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> None:
        super().__init__()
        self._nothing = np.zeros((0, *shape), dtype)

    def put(self, indices: IntArray, arrays: Array) -> None:
        """Copies the last K of `arrays`, one to each of the indices (K,)."""
        last = arrays[len(arrays) - len(indices) :]
        for index, array in zip(indices.tolist(), last, strict=True):
            self[index] = array.copy()

    def stacked(self, indices: IntArray) -> Array:
        """A copy of the observations at these indices, (K, …)."""
        if not len(indices):
            return self._nothing.copy()
        return np.stack([self[index] for index in indices.tolist()])

    def forget(self, indices: slice) -> None:
        """Drops the arrays at these indices."""
        if self:
            for index in range(indices.start, indices.stop):
                self.pop(index, None)


@final
class Observations:
    """The observations at each index of a ring, and after it.

    An observation is a stack of the last L frames, of which only the newest is stored.
    The frames are equal parts of the first axis, the newest last: (L, …) or, where
    frames have channels, (L·C, …). The other frames of the first stack of an episode
    are kept apart, whatever they are. With L = 1 an observation is a frame. With
    `on_device` the frames are on the device of the layout, and observations are tensors
    there."""

    def __init__(
        self,
        layout: MemoryLayout,
        num_slots: int,
        allocate: Allocate,
        on_device: bool = False,
    ) -> None:
        length = layout.frame_stack
        frame = layout.obs_shape
        dtype = layout.obs_dtype
        if length > 1:
            assert frame[0] % length == 0, "a stack leads with its frames"
            frame = (frame[0] // length, *frame[1:])
        self._obs_shape = layout.obs_shape
        self._stack_shape = (length, *frame)
        self._history = length - 1
        self._num_envs = layout.num_envs
        self._num_slots = num_slots
        shape = (num_slots, *frame)
        self._frames: Array | DeviceRows = (
            DeviceRows(shape, dtype, layout.device)
            if on_device
            else allocate(shape, dtype)
        )
        self._last = SparseRows(frame, dtype)
        """The newest frames of the final observations of episodes."""
        self._keys = ("frames", "last_frames") if self._history else ("obs", "last_obs")
        """The names of frames and last frames in a checkpoint."""
        if self._history:
            self._depth = allocate((num_slots,), np.dtype(np.int8))
            """The number of frames before each that belong to the same episode, L − 1
            at most."""
            self._before = SparseRows((self._history, *frame), dtype)
            """The frames before the first of an episode, as in its first stack."""
            self._back = np.arange(self._history, -1, -1)
            """The age of each frame of a stack in steps."""

    def write(
        self,
        here: slice,
        following: slice,
        started: BoolArray,
        step: VectorStep,
    ) -> None:
        """Stores the observations of a step at the indices `here`, and the state after
        it at `following`. `started` (N,): environments whose episode starts here. What
        was at `following` is dropped."""
        obs = step.obs
        next_obs = step.next_obs
        self._last.forget(following)
        if self._history:
            self._note_starts(here, following, started, self._split(obs))
            obs = self._split(obs)[:, -1]
            next_obs = self._split(next_obs)[:, -1]
        self._frames[here] = obs
        self._frames[following] = next_obs

    def _note_starts(
        self, here: slice, after: slice, started: BoolArray, stacks: Array
    ) -> None:
        self._before.forget(after)
        if np.count_nonzero(started):
            first = np.flatnonzero(started)
            first = first[~self._continues(first + here.start, stacks[first])]
            self._depth[first + here.start] = 0
            self._before.put(first + here.start, stacks[first, :-1])
        self._depth[after] = np.minimum(self._depth[here] + 1, self._history)

    def _continues(self, indices: IntArray, stacks: Array) -> BoolArray:
        """(K,) whether the `stacks` (K, L, …) that start an episode at `indices` are
        stored already. That is so where an episode ended for the learner only, as with
        a lost life in a game."""
        continues = self._depth[indices] > 0
        stored = self._stacks(indices[continues])
        stored = stored.cpu().numpy() if isinstance(stored, Tensor) else stored
        same = stored == stacks[continues]
        continues[continues] = same.all(axis=tuple(range(1, same.ndim)))
        return continues

    def keep_final(self, indices: IntArray, last_obs: Array) -> None:
        """Keeps the final observations (K, *obs_shape) of episodes that end at
        `indices` (K,)."""
        self._last.put(indices, self._split(last_obs)[:, -1])

    def at(self, indices: IntArray) -> Array | Tensor:
        """The observations at `indices` (B,), (B, *obs_shape)."""
        return self._joined(self._stacks(indices))

    def after(self, indices: IntArray, ended: BoolArray) -> Array | Tensor:
        """The states after the steps at `indices` (B,); `ended` (B,): the episode ended
        there."""
        stacks = self._stacks(indices, later=True)
        which = np.flatnonzero(ended)
        for index, step in zip(which.tolist(), indices[which].tolist(), strict=True):
            put(stacks, (index, -1), self._last[step])
        return self._joined(stacks)

    def _split(self, obs: Array) -> Array:
        return obs.reshape(len(obs), *self._stack_shape)

    def _joined(self, stacks: Array | Tensor) -> Array | Tensor:
        return stacks.reshape(len(stacks), *self._obs_shape)

    def _taken(self, indices: IntArray) -> Array | Tensor:
        if isinstance(self._frames, DeviceRows):
            return self._frames.take(indices)
        return self._frames.take(indices, axis=0, mode="wrap")

    def _stacks(self, indices: IntArray, later: bool = False) -> Array | Tensor:
        """The stacks (B, L, *frame) at `indices` (B,), or one step `later`."""
        newest = indices
        if later:
            newest = indices + self._num_envs
        if not self._history:
            return self._taken(newest)[:, None]
        depth = np.minimum(self._depth[indices] + later, self._history)
        back = np.minimum(self._back, depth[:, None])
        stacks = self._taken(newest[:, None] - back * self._num_envs)
        for index in np.flatnonzero(depth < self._history).tolist():
            known = int(depth[index])
            start = (int(newest[index]) - known * self._num_envs) % self._num_slots
            put(
                stacks,
                (index, slice(self._history - known)),
                self._before[start][known:],
            )
        return stacks

    def newest(self, following: slice) -> StateDict:
        """A copy of the state after the newest step, at the indices `following`."""
        state = {self._keys[0]: self._frames[following].copy()}
        if self._history:
            state["depth"] = self._depth[following].copy()
        return state

    def load_newest(self, following: slice, newest: StateDict) -> None:
        """Drops what is kept apart, and restores the state after the newest step."""
        self._last.clear()
        self._frames[following] = newest[self._keys[0]]
        if self._history:
            self._before.clear()
            self._depth[following] = newest["depth"]

    def content(self, indices: IntArray, done: BoolArray) -> StateDict:
        """A copy of all that `indices` (K,) hold; `done` (K,): where episodes ended."""
        frames, last = self._keys
        content = {
            frames: self._frames[indices],
            last: self._last.stacked(indices[done]),
        }
        if self._history:
            depth = self._depth[indices]
            content |= {
                "depth": depth,
                "before": self._before.stacked(indices[depth == 0]),
            }
        return content

    def load_content(
        self, indices: IntArray, done: BoolArray, content: StateDict, first: int
    ) -> None:
        """Restores `content` without its `first` entries; `indices` and `done` are of
        the rest."""
        frames, last = self._keys
        self._frames[indices] = content[frames][first:]
        self._last.put(indices[done], content[last])
        if self._history:
            depth = content["depth"][first:]
            self._depth[indices] = depth
            self._before.put(indices[depth == 0], content["before"])
