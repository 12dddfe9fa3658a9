"""Bodies that encode each part of an observation by itself."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from typing_extensions import override

from slm_lab.agent.net.body import Body, BodyNet
from slm_lab.agent.net.dueling import DuelingNet
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.core.observation import ObservationLayout, Part

TORCH_TYPES = {
    name: getattr(torch, name)
    for name in ("float32", "float16", "int32", "int16", "uint16", "int8", "uint8")
}
"""torch's types of the numbers in a row of bytes, by NumPy's names."""


class Encoder(NamedTuple):
    """What encodes a part."""

    module: nn.Module
    """Its output is (B, width)."""
    width: int
    sees_image: bool
    """Whether it sees (B, C, H, W), not a vector."""


@final
class IndexEmbedding(nn.Module):
    """A learned vector for each value of an index. It maps (B, K) indices, or their
    one-hots side by side, to (B, K · dim)."""

    def __init__(
        self, sizes: Sequence[int], dim: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.sizes = list(sizes)
        self.width = len(sizes) * dim
        tables = [torch.empty(size, dim) for size in sizes]
        for table in tables:
            table.normal_(generator=generator)
        self.tables = nn.ParameterList([nn.Parameter(table) for table in tables])

    @override
    def forward(self, numbers: Tensor) -> Tensor:
        """Indices (B, K), or floats that are one-hots side by side, (B, Σ sizes), to
        (B, K · dim)."""
        if numbers.is_floating_point():
            parts = torch.split(numbers, self.sizes, -1)
            pairs = zip(parts, self.tables, strict=True)
            return torch.cat([part @ table for part, table in pairs], -1)
        columns = zip(numbers.long().unbind(1), self.tables, strict=True)
        return torch.cat([embedding(index, table) for index, table in columns], -1)


@final
class PartsBody(Body):
    """Encodes the parts of an observation that have an encoder. Their features, in the
    order of `names`, stand behind the numbers of the other parts. It sees the parts in
    `names` alone. If frames are joined over time, an image's frames become its
    channels. Of other parts it sees the newest frame."""

    def __init__(
        self,
        layout: ObservationLayout,
        names: Sequence[str],
        encoders: Mapping[str, Encoder],
    ) -> None:
        super().__init__()
        self._layout = layout
        self._encoders = dict(encoders)
        parts = [layout.part(name) for name in names]
        self._plain = [part for part in parts if part.name not in encoders]
        self._encoded = [part for part in parts if part.name in encoders]
        self.encoders = nn.ModuleList(
            [encoders[part.name].module for part in self._encoded]
        )
        self.widths = [vector_width(part) for part in self._plain]
        self.widths += [encoders[part.name].width for part in self._encoded]
        """The number of features of each part, in the order of `names`."""
        self.width = sum(self.widths)

    @override
    def embed(self, obs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Rows (B, D), or the parts of these as `read` returns them, to (B, width)."""
        if isinstance(obs, Tensor):
            obs = {name: self.read(obs, name) for name in self.names}
        return self.join(obs)

    @property
    def names(self) -> list[str]:
        """The parts that it sees."""
        return [part.name for part in (*self._plain, *self._encoded)]

    def read(self, rows: Tensor, name: str) -> Tensor:
        """A part of rows (B, D). It is (B, C, H, W) where its encoder sees an image,
        else (B, …) as rows have it."""
        part = self._layout.part(name)
        frames = rows.reshape(-1, self._layout.frames, self._layout.row_size)
        if not self.sees_image(name):
            frames = frames[:, -1:]
        columns = frames[..., part.start : part.end]
        numbers = columns
        if self._layout.is_bytes:
            numbers = columns.view(TORCH_TYPES[part.dtype.name])
        if not self.sees_image(name):
            return numbers.squeeze(1)
        image = numbers.reshape(*numbers.shape[:2], *part.shape)
        if part.channels_last:
            image = image.movedim(-1, 2)
        return image.flatten(1, 2)

    def join(self, parts: Mapping[str, Tensor]) -> Tensor:
        """The features (B, width) of parts by name, as `read` returns them."""
        plain = [as_vector(parts[part.name], part) for part in self._plain]
        encoded = [
            encoder(self._input(parts[part.name], part))
            for part, encoder in zip(self._encoded, self.encoders, strict=True)
        ]
        return torch.cat([*plain, *encoded], -1)

    def _input(self, numbers: Tensor, part: Part) -> Tensor:
        if self.sees_image(part.name):
            return numbers
        if isinstance(self._encoders[part.name].module, IndexEmbedding):
            return numbers.flatten(1)
        return as_vector(numbers, part)

    def sees_image(self, name: str) -> bool:
        """Whether the encoder of a part sees it as an image."""
        encoder = self._encoders.get(name)
        return encoder is not None and encoder.sees_image


@final
class EncodedNet(nn.Module):
    """A net of vectors that sees the features of a body in place of the observation. In
    a critic the action stands beside them."""

    def __init__(self, body: Body, net: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.net = net

    @override
    def forward(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """(B, *obs_shape), with actions (B, A), to one (B, head_dim) per head."""
        features = self.body(obs)
        if action is not None:
            features = torch.cat([features, action], -1)
        outputs: tuple[Tensor, ...] = self.net(features)
        return outputs

    @property
    def embedded_width(self) -> int:
        """The numbers of `embed`."""
        return self._split_net.embedded_width

    def embed(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) to the embedding of the net, (B, W)."""
        return self._split_net.embed(self.body(obs))

    def from_embedding(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `embed` puts out, (B, W), to one (B, head_dim) per head."""
        return self._split_net.from_embedding(x)

    @property
    def _split_net(self) -> MLPNet | BodyNet | DuelingNet:
        assert isinstance(self.net, MLPNet | BodyNet | DuelingNet)
        return self.net


def vector_width(part: Part) -> int:
    """The length of a part as a vector. An index is as long as its one-hot."""
    if part.sizes:
        return sum(part.sizes)
    return math.prod(part.shape)


def as_vector(numbers: Tensor, part: Part) -> Tensor:
    """The numbers of a part as floats, (B, `vector_width`); indices as one-hots."""
    flat = numbers.flatten(1)
    if not part.sizes or flat.is_floating_point():
        return flat.float()
    columns = zip(flat.unbind(1), part.sizes, strict=True)
    return torch.cat([_one_hot(index, size) for index, size in columns], -1)


def _one_hot(index: Tensor, size: int) -> Tensor:
    """(B,) to (B, size). torch's own looks at the indices, which a recorded step cannot
    do."""
    values = torch.arange(size, device=index.device)
    return (index.unsqueeze(-1) == values).float()
