"""Nets of fully connected layers."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from typing_extensions import override

from slm_lab.spec.schema import layers
from slm_lab.spec.schema.layers import Widths, weights_between
from slm_lab.spec.schema.net import NetSpec


class MLPNetSpec(NetSpec):
    """Fully connected layers."""

    LEGACY: ClassVar[Mapping[str, str]] = {
        "normalize": "it divides images by 255; env.normalize_obs normalises other "
        "observations"
    }

    ENCODES = True
    HAS_EMBEDDING = True
    HAS_DROPOUT = True

    hid_layers: Widths = Field((64, 64), description="units per hidden layer")

    @override
    def hidden_weights(self) -> int:
        return weights_between(self.hid_layers)


class DuelingMLPNetSpec(MLPNetSpec):
    """Fully connected layers, then a value and an advantage stream
    (arXiv:1511.06581)."""

    ENCODES = False
    SPLITS_Q = True


class HydraMLPNetSpec(NetSpec):
    """Layers that all outputs share, then separate hidden layers for each output. With
    `shared` the outputs are the policy and the value, in this order, otherwise one per
    net. There is one observation, so there is one head; the body follows it."""

    LEGACY = MLPNetSpec.LEGACY

    hid_layers: layers.HydraLayers = Field(
        description="units per layer of [heads, body, tails]; tails: one list for all "
        "outputs, or one list per output, as [[64], [64], [[32], [16, 16]]]"
    )

    def trunk(self) -> layers.Stack:
        """Units of the layers that all outputs share."""
        heads, body = (layers.stacks_of(part) for part in self.hid_layers[:2])
        return (*heads[0], *body[0])

    def tails(self) -> tuple[layers.Stack, ...]:
        """Units of the layers of each output; a single stack is for all."""
        return layers.stacks_of(self.hid_layers[2])

    @override
    def hidden_weights(self) -> int:
        trunk = self.trunk()
        tails = [weights_between((*trunk[-1:], *tail)) for tail in self.tails()]
        return weights_between(trunk) + sum(tails)

    @override
    def wrong_tails(self, outputs: int) -> str | None:
        tails = len(self.tails())
        if tails in (1, outputs):
            return None
        return (
            f"has {tails} tails, and this network needs {outputs}; give one list for "
            "all outputs, or one list each (with shared: policy, value)"
        )
