"""A net whose body is a list of torch.nn layers, as the spec writes it."""

from collections.abc import Iterable, Sequence
from typing import final

import torch
from torch import Tensor, nn

from slm_lab.agent.net.acting import ArrayNet
from slm_lab.agent.net.batch_renorm import BatchRenorm
from slm_lab.agent.net.init import Linear, hidden_gain, init_linear
from slm_lab.agent.net.inputs import as_floats, image_input
from slm_lab.agent.net.mlp import MLPNet, as_mlp
from slm_lab.agent.net.mlp_function import KERNELS
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array, FloatArray
from slm_lab.spec.schema.arc import Layer
from slm_lab.spec.schema.net import TorchArcNetSpec
from slm_lab.spec.torch_table import activation_class

IMAGE_DIMS = (3, 4)
"""axes of an image (C, H, W), and of frames that were stacked (L, C, H, W)"""

PATH = "agent.net.arc.modules.body.Sequential"


@final
class TorchArcNet(nn.Module, ArrayNet):
    """The layers of the arc, then one linear head per output.

    Hidden layers at its end that are those of a multilayer perceptron are run by one, see
    `MLPNet`: an arc of nothing else is as fast as that net, and equal to it.
    """

    def __init__(
        self,
        spec: TorchArcNetSpec,
        obs_shape: tuple[int, ...],
        head_dims: Sequence[int],
        head_gains: Sequence[float | None],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if spec.arc is None:
            raise LabError("agent.net.arc: is missing: the body of a TorchArcNet")
        layers, hid_layers, activation = _split(spec.arc.layers())
        self._is_image = len(obs_shape) in IMAGE_DIMS
        self._normalize = spec.normalize
        self.body, shape = _build(layers, obs_shape)
        if len(shape) != 1:
            raise LabError(
                f"{PATH}.{len(layers)}: the layer after these must take vectors, and the shape "
                f"that arrives there is {shape}; put {{Flatten: null}} before it"
            )
        _initialise(self.body, layers, spec.init_fn, generator)
        mlp = as_mlp(spec, hid_layers).model_copy(update={"hid_layers_activation": activation})
        self.tail = MLPNet(mlp, shape, head_dims, head_gains, generator)

    def forward(self, obs: Tensor) -> tuple[Tensor, ...]:
        """(B, *obs_shape) of uint8 or floats to one (B, head_dim) per head."""
        x = image_input(obs, self._normalize) if self._is_image else as_floats(obs)
        return self.tail.forward(self.body(x))

    def forward_array(self, obs: Array) -> tuple[FloatArray, ...] | None:
        """See `ArrayNet`."""
        return None if len(self.body) else self.tail.forward_array(obs)


def _split(layers: Sequence[Layer]) -> tuple[Sequence[Layer], list[int], str]:
    """The layers before the multilayer perceptron at the end; its widths and its activation."""
    rest = list(layers)
    widths: list[int] = []
    activation = layers[-1].name if layers[-1].name in KERNELS else "ReLU"
    while (
        len(rest) > 1
        and rest[-1].name == activation
        and rest[-2].name == "LazyLinear"
        and rest[-2].args.get("bias", True)
    ):
        widths.insert(0, int(rest[-2].args["out_features"]))
        del rest[-2:]
    return rest, widths, activation


def _build(
    layers: Sequence[Layer], obs_shape: tuple[int, ...]
) -> tuple[nn.Sequential, tuple[int, ...]]:
    """The modules of the layers, and the shape that one observation has after them.

    An observation of zeros goes through them, so that lazy ones learn the width of their input.
    """
    x = torch.zeros(2, *obs_shape)
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():  # torch initialises some by chance
        for index, layer in enumerate(layers):
            try:
                module = _module(layer, x).train(False)
                y = module(x)
            except (RuntimeError, ValueError, TypeError, LookupError, AssertionError) as error:
                raise LabError(
                    f"{PATH}.{index}.{layer.name}: torch refuses these arguments, or the shape "
                    f"{tuple(x.shape[1:])} that arrives there: {_one_line(error)}"
                ) from error
            if not isinstance(y, Tensor) or y.dim() < 2 or len(y) != len(x) or _mixes(module, x, y):
                raise LabError(
                    f"{PATH}.{index}.{layer.name}: must give one output for each observation of a "
                    f"batch, {tuple(x.shape)} arrives there"
                )
            modules.append(module)
            x = y
    return nn.Sequential(*modules), tuple(x.shape[1:])


def _mixes(module: nn.Module, x: Tensor, y: Tensor) -> bool:
    """Whether the output for the first observation of `x`, y[0], changes with the second one."""
    other = x.clone()
    other[1] += 1
    return not torch.allclose(module(other)[0], y[0], equal_nan=True)


def _module(layer: Layer, x: Tensor) -> nn.Module:
    """The module of one layer, for inputs like `x`."""
    if layer.name == "LazyBatchRenorm1d":
        return BatchRenorm(x.shape[1], **layer.args)
    args = {k: v for k, v in layer.args.items() if k != "inplace"}  # it would change observations
    module: nn.Module = getattr(nn, layer.name)(**args)
    return module


def _initialise(
    body: nn.Sequential, layers: Sequence[Layer], init_fn: str | None, generator: torch.Generator
) -> None:
    """Fills linear layers and convolutions; all others begin at values that are not by chance."""
    pairs = list(zip(body, layers, strict=True))
    for index, (module, _) in enumerate(pairs):
        if isinstance(module, Linear):
            activation = _first_activation(pairs[index + 1 :])
            init_linear(module, init_fn, hidden_gain(activation), generator)


def _first_activation(following: Iterable[tuple[nn.Module, Layer]]) -> str | None:
    """The activation that the output of a layer goes through before the next linear layer."""
    for module, layer in following:
        if isinstance(module, Linear):
            break
        if activation_class(layer.name) is not None:
            return layer.name
    return None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
