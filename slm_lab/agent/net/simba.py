"""SimBa (arXiv:2410.09754): a residual net for vectors, normalised by layer."""

from collections.abc import Sequence
from typing import Literal, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net import layers
from slm_lab.agent.net.body import Body
from slm_lab.agent.net.layers import products, restored
from slm_lab.core.types import Shape

EPSILON = 1e-6
"""ε of the layer norms, as in the authors' code; torch's default is 1e-5."""


class SimBaBlock(nn.Module):
    """x + W_2 φ(W_1 LN(x)), (B, W) to (B, W). W_1 has `expansion` × W rows. The sum and
    the norm are in float32, whatever multiplies."""

    def __init__(
        self,
        width: int,
        expansion: int,
        activation: layers.ActivationClass,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.expand = layers.EmptyLinear(width, expansion * width)
        self.contract = layers.EmptyLinear(expansion * width, width)
        self._activation = layers.activation_function(activation)
        for layer in (self.expand, self.contract):
            layers.init_linear(layer, "kaiming_normal_", 1.0, generator)

    @override
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.expand(self.norm(x))
        if self._activation is not None:
            hidden = self._activation(hidden)
        return x + restored(self.contract(hidden))


@final
class SimBaBody(Body):
    """A linear embedding, residual blocks, and a layer norm: section 4 of
    arXiv:2410.09754. The embedding begins as an orthogonal matrix, the blocks as He et
    al. propose (arXiv:1502.01852), all biases at 0. With `half` the blocks multiply in
    bfloat16."""

    def __init__(
        self,
        in_shape: Shape,
        width: int,
        num_blocks: int,
        generator: torch.Generator,
        *,
        expansion: int = 4,
        activation: layers.ActivationClass = nn.ReLU,
        half: bool = False,
        matmul: Literal["torch", "numpy"] = "torch",
    ) -> None:
        super().__init__()
        (in_size,) = in_shape
        self.width = width
        self.embedding = layers.EmptyLinear(in_size, width)
        layers.init_linear(self.embedding, "orthogonal_", 1.0, generator)
        blocks = [
            SimBaBlock(width, expansion, activation, generator)
            for _ in range(num_blocks)
        ]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self._blocks = tuple(blocks)
        self._products = products(half)
        for layer in self.modules():
            if isinstance(layer, layers.EmptyLinear):
                layer.by_numpy = matmul == "numpy" and not half

    @override
    def embed(self, obs: Tensor) -> Tensor:
        """(B, D) to the input of the last block, (B, W)."""
        x = self.embedding(layers.as_floats(obs))
        return self._through(self._blocks[:-1], x)

    @override
    def from_embedding(self, x: Tensor) -> Tensor:
        """What `embed` puts out, (B, W), to the features (B, W)."""
        features: Tensor = self.norm(self._through(self._blocks[-1:], x))
        return features

    def _through(self, blocks: Sequence[SimBaBlock], x: Tensor) -> Tensor:
        with self._products(x):
            for block in blocks:
                x = block(x)
        return x
