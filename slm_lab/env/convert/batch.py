"""Observations of environments that step together, and their masks, as arrays."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from slm_lab.core.types import Array, BoolArray, IntArray
from slm_lab.env.convert.image import is_image
from slm_lab.env.convert.mask import MASK, MaskReader
from slm_lab.env.convert.nested import COMPOSITE
from slm_lab.env.convert.parts import RowConverter, check_parts
from slm_lab.env.interface import AnySpace
from slm_lab.spec.schema.env import EnvSpec


class BatchView(NamedTuple):
    """What the lab makes of observations and infos of environments that step
    together."""

    space: AnySpace
    """The space of one observation, once it is made."""
    key: str | None = None
    """The part that is the whole observation; None: it has no single part."""
    rows: RowConverter | None = None
    """What makes rows of observations with parts, a mask too."""
    masks: MaskReader | None = None
    """What reads their masks; None without masks."""

    @classmethod
    def of(cls, spec: EnvSpec, space: AnySpace, action_space: AnySpace) -> "BatchView":
        """The view of environments with these spaces, as `spec` asks for it. Raises
        SpecError for observations without numbers, and as `MaskReader`."""
        masks: MaskReader | None = None
        mask_sizes: tuple[int, ...] = ()
        if spec.action_mask is not None:
            masks = MaskReader(spec.action_mask, space, action_space, spec.name)
            mask_sizes = masks.sizes
            space = masks.space
        check_parts(space, spec.name)
        if isinstance(space, spaces.Dict) and len(space) == 1:
            ((key, part),) = space.items()
            if is_image(part):
                return cls(part, key=key)
        if not isinstance(space, COMPOSITE):
            return cls(space)
        rows = RowConverter(
            space=space,
            env_name=spec.name,
            image_size=spec.image_downsize,
            channels=spec.image_channels,
            mask_sizes=mask_sizes,
        )
        return cls(rows.row_space, rows=rows, masks=masks)

    @property
    def reads_info(self) -> bool:
        """Whether masks are in infos."""
        return self.masks is not None and self.masks.is_in_info

    def observe(
        self,
        obs: Any,
        info: Mapping[str, Any],
        method: str,
        count: int,
        is_last: bool | BoolArray = False,
    ) -> Array:
        """`count` observations → (count, ...). Those that are the last of an episode,
        all or the rows (count,), may have masks that allow nothing. Raises LabError if
        observations are not in their space, or for a mask as `MaskReader`."""
        if self.masks is not None:
            value = self.masks.find(obs, info, method)
            mask = self.masks.read_batch(value, count, may_be_empty=is_last)
            obs = {**self.masks.parts(obs), MASK: mask}
        if self.rows is not None:
            return self.rows.batch(obs, count)
        if self.key is not None:
            return np.array(obs[self.key])
        return np.asarray(obs)

    def allows_nothing(self, rows: Array) -> BoolArray:
        """(B,) whether the mask in these observations (B, ...) allows nothing; False
        without masks."""
        if self.masks is None:
            return np.zeros(len(rows), np.bool_)
        assert self.rows is not None
        layout = self.rows.layout
        return self.masks.allows_nothing(layout.view(rows, layout.part(MASK)))


def host_array(values: Any) -> Array:
    """Values as an array, which may share their memory. A simulator may return arrays
    of JAX, or tensors of torch, on the host or on a GPU."""
    to_host = getattr(values, "cpu", None)  # of torch: others copy by themselves
    if to_host is not None:
        values = to_host()
    return np.asarray(values)


def host_arrays(values: Any) -> Any:
    """The parts of a batch as arrays, or the batch if it has no parts."""
    if isinstance(values, Mapping):
        return {key: host_arrays(part) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(host_arrays, values))
    return host_array(values)


def rows_at(values: Any, index: IntArray) -> Any:
    """The rows `index` (K,) of a batch of observations or infos, in arrays: of each
    part, if there are parts. Object arrays, as Gymnasium has them, become arrays."""
    if isinstance(values, Mapping):
        return {key: rows_at(part, index) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(rows_at(part, index) for part in values)
    rows = host_array(values)
    if rows.ndim == 0:
        return values
    if rows.dtype != np.object_:
        return rows[index]
    return _stacked([rows[i] for i in index])


def _stacked(elements: Sequence[Any]) -> Any:
    """Single observations as a batch."""
    first = elements[0]
    if isinstance(first, Mapping):
        return {key: _stacked([part[key] for part in elements]) for key in first}
    if isinstance(first, tuple):
        return tuple(map(_stacked, zip(*elements, strict=True)))
    return np.stack([np.asarray(part) for part in elements])
