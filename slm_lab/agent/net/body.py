"""Nets that are a body, which turns observations into features, and heads on it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.mlp import MLPNet


class Body(nn.Module, ABC):
    """Computes features of observations, in two parts: an embedding, which other
    numbers can modulate, and what follows it."""

    width: int
    """The number of features, and of an embedding."""

    @abstractmethod
    def embed(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) to the embedding (B, width)."""

    def from_embedding(self, x: Tensor) -> Tensor:
        """An embedding (B, width) to the features (B, width). By default they are
        equal."""
        return x

    @override
    def forward(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) to the features (B, width)."""
        return self.from_embedding(self.embed(obs))


class BodyNet(nn.Module):
    """A body, then a multilayer perceptron with one linear head per output."""

    def __init__(self, body: Body, tail: MLPNet) -> None:
        super().__init__()
        self.body = body
        self.tail = tail

    @override
    def forward(self, obs: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """(B, *obs_shape) to one (B, head_dim) per head. An action (B, A) of a critic
        joins the features of the body."""
        features = self.body(obs)
        if action is not None:
            features = torch.cat([features, action], -1)
        return self.tail.forward(features)

    @property
    def width(self) -> int:
        """The numbers of `features`."""
        return self.tail.width

    def features(self, obs: Tensor | Mapping[str, Tensor]) -> Tensor:
        """(B, *obs_shape), or its parts, to the output of the last hidden layer, (B,
        width)."""
        return self.tail.features(self.body(obs))

    @property
    def embedded_width(self) -> int:
        """The numbers of `embed`."""
        return self.body.width

    def embed(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) to the embedding of the body, (B, W)."""
        return self.body.embed(obs)

    def from_embedding(self, x: Tensor) -> tuple[Tensor, ...]:
        """What `embed` puts out, (B, W), to one (B, head_dim) per head."""
        return self.tail.forward(self.body.from_embedding(x))


class HiddenLayers(Body):
    """All of a net but its heads."""

    def __init__(self, net: MLPNet | BodyNet) -> None:
        super().__init__()
        self.net = net
        self.width = net.width

    @override
    def embed(self, obs: Tensor) -> Tensor:
        return self.net.features(obs)


class PassedFeatures(Body):
    """Passes features on that other layers have computed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    @override
    def embed(self, obs: Tensor) -> Tensor:
        return obs
