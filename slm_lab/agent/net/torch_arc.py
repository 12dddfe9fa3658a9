"""A net whose body is a list of torch.nn layers, as the spec writes it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.body import Body
from slm_lab.agent.net.layers import (
    ACTIVATIONS,
    BatchRenorm,
    Linear,
    as_floats,
    hidden_gain,
    image_input,
    init_linear,
    products,
    restored,
)
from slm_lab.core.errors import LabError
from slm_lab.core.types import Shape

Layer: TypeAlias = tuple[str, Mapping[str, Any]]
"""The name of a class of torch.nn (or LazyBatchRenorm1d), and its arguments."""

IMAGE_DIMS = (3, 4)
"""axes of an image (C, H, W), and of frames that were stacked (L, C, H, W)"""

BODY = "modules.body.Sequential"
"""The path of the layers in an arc."""


class ArcError(LabError):
    """A layer that does not fit; `place` is its path in BODY, `reason` the cause."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


class Arc(NamedTuple):
    """An arc, built for observations of one shape."""

    layers: Sequence[Layer]
    modules: nn.Sequential
    shape: Shape
    """The shape of the features after them."""
    hidden: list[int]
    """The widths of the multilayer perceptron that follows."""
    activation: str


@final
class ArcBody(Body):
    """The layers of an arc. With `normalize` it divides images by 255."""

    def __init__(
        self,
        obs_shape: Shape,
        arc: Arc,
        normalize: bool = False,
        half: bool = False,
    ) -> None:
        super().__init__()
        (self.width,) = arc.shape
        for name, module in arc.modules.named_children():
            self.add_module(name, module)
        self._is_image = len(obs_shape) in IMAGE_DIMS
        self._normalize = normalize
        self._products = products(half)
        num_exact = 0 if self._is_image else 1
        self._exact = tuple(arc.modules)[:num_exact]
        self._rest = tuple(arc.modules)[num_exact:]

    @property
    def is_empty(self) -> bool:
        """Whether it has no layers: its features are the observation."""
        return not self._exact and not self._rest

    @override
    def embed(self, obs: Tensor) -> Tensor:
        """(B, *obs_shape) of uint8 or floats to (B, width)."""
        x = image_input(obs, self._normalize) if self._is_image else as_floats(obs)
        for layer in self._exact:
            x = layer(x)
        with self._products(x):
            for layer in self._rest:
                x = layer(x)
        return restored(x)


PERCEPTRON_ACTIVATIONS = "Tanh", "ReLU"
"""Activations between the layers of a multilayer perceptron at the end of an arc."""


def build_arc(arc: Sequence[Layer], obs_shape: Shape) -> Arc:
    """The layers of `arc` for observations of `obs_shape`, not initialised. Raises
    ArcError where torch refuses a layer, or if they do not end in vectors."""
    layers, hidden, activation = _split(arc)
    modules, shape = _build(layers, obs_shape)
    if len(shape) != 1:
        raise ArcError(
            str(len(layers)),
            "the layer after these must take vectors, and the shape that arrives "
            f"there is {shape}; put {{Flatten: null}} before it",
        )
    return Arc(
        layers=layers,
        modules=modules,
        shape=shape,
        hidden=hidden,
        activation=activation,
    )


def _split(layers: Sequence[Layer]) -> tuple[Sequence[Layer], list[int], str]:
    """The layers before the multilayer perceptron at the end; its widths and its
    activation."""
    rest = list(layers)
    widths: list[int] = []
    last, _ = layers[-1]
    activation = "ReLU"
    if last in PERCEPTRON_ACTIVATIONS:
        activation = last
    while len(rest) > 1:
        (before, args), (after, _) = rest[-2:]
        is_linear = before == "LazyLinear" and args.get("bias", True)
        if not is_linear or after != activation:
            break
        widths.insert(0, int(args["out_features"]))
        del rest[-2:]
    return rest, widths, activation


def _build(layers: Sequence[Layer], obs_shape: Shape) -> tuple[nn.Sequential, Shape]:
    """The modules of the layers, and the shape of one observation after them. An
    observation of zeros passes through them, so that lazy ones learn the width of their
    input."""
    x = torch.zeros(2, *obs_shape)
    modules: list[nn.Module] = []
    # torch initialises some at random
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for index, layer in enumerate(layers):
            try:
                module = _module(layer, x).train(False)
                y = module(x)
            except (
                RuntimeError,
                ValueError,
                TypeError,
                LookupError,
                AssertionError,
            ) as error:
                raise ArcError(
                    f"{index}.{layer[0]}",
                    "torch refuses these arguments, or the shape "
                    f"{tuple(x.shape[1:])} that arrives there: "
                    f"{' '.join(str(error).split())}",
                ) from error
            if (
                not isinstance(y, Tensor)
                or y.dim() < 2
                or len(y) != len(x)
                or _mixes(module, x, y)
            ):
                raise ArcError(
                    f"{index}.{layer[0]}",
                    "must give one output for each observation of a batch, "
                    f"{tuple(x.shape)} arrives there",
                )
            modules.append(module)
            x = y
    return nn.Sequential(*modules), tuple(x.shape[1:])


def _mixes(module: nn.Module, x: Tensor, y: Tensor) -> bool:
    """Whether the output for the first observation of `x`, y[0], changes with the
    second one."""
    other = x.clone()
    other[1] += 1
    return not torch.allclose(module(other)[0], y[0], equal_nan=True)


def _module(layer: Layer, x: Tensor) -> nn.Module:
    name, args = layer
    if name == "LazyBatchRenorm1d":
        return BatchRenorm(x.shape[1], **args)
    # it would change observations
    kept = {key: value for key, value in args.items() if key != "inplace"}
    return getattr(nn, name)(**kept)


def init_arc(
    modules: nn.Sequential,
    layers: Sequence[Layer],
    init_fn: str | None,
    generator: torch.Generator,
) -> None:
    """Fills linear layers and convolutions; all others start at values that are not
    random."""
    pairs = list(zip(modules, layers, strict=True))
    for index, (module, _) in enumerate(pairs):
        if isinstance(module, Linear):
            activation = _first_activation(pairs[index + 1 :])
            init_linear(module, init_fn, hidden_gain(activation), generator)


def _first_activation(following: Iterable[tuple[nn.Module, Layer]]) -> str | None:
    """The activation that the output of a layer goes through before the next linear
    layer."""
    for module, (name, _) in following:
        if isinstance(module, Linear):
            break
        if name.lower() in ACTIVATIONS:
            return name
    return None
