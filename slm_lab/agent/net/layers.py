"""Layers, activations, initialisation, the inputs of networks, and half precision.

Half precision means products in bfloat16, which has the exponents of float32 and 8 of
its 24 digits. Weights, their gradients and optimizers, normalisation, losses and
targets stay in float32. So do the layer that sees an observation vector and the heads.
Their numbers may be large, and 8 digits tell only 36.00 from 36.25. The bytes of an
image are exact."""

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, linear
from torch.nn.modules.batchnorm import _BatchNorm as AnyBatchNorm
from torch.nn.modules.conv import _ConvNd as AnyConv
from typing_extensions import override

from slm_lab.agent.torch_versions import cpu_capabilities
from slm_lab.core.errors import LabError


def as_floats(obs: Tensor) -> Tensor:
    """uint8 as float32; floats as they are."""
    if obs.is_floating_point():
        return obs
    return obs.float()


def image_input(obs: Tensor, normalize: bool, half: bool = False) -> Tensor:
    """Turns (B, C, H, W) of uint8 or floats into new floats in channels_last. They are
    divided by 255 to `normalize`, and rounded to bfloat16 with `half`. Stacked frames,
    (B, L, C, H, W), keep their order. The channels go last while the numbers are bytes,
    plane by plane: a quarter less time than torch's own conversion."""
    if obs.dim() != 4:
        x = as_floats(obs)
        if normalize:
            return x * (1 / 255)
        return x
    x = torch.stack(obs.unbind(1), -1)
    if normalize:
        x = x * (1 / 255)
    elif half:
        x = x.bfloat16()
    else:
        x = as_floats(x)
    return x.permute(0, 3, 1, 2)


ActivationClass: TypeAlias = str | type[nn.Module]
"""A class of torch.nn, or its name, as "relu", "leaky_relu" or "LeakyReLU"."""

ActivationFunction = Callable[[Tensor], Tensor]

_WITH_ARGUMENTS = ("MultiheadAttention", "Threshold")
ACTIVATIONS: dict[str, type[nn.Module]] = {
    name.lower(): getattr(nn, name)
    for name in nn.modules.activation.__all__
    if name not in _WITH_ARGUMENTS
}
"""torch's activations that need no arguments, by name in lower case."""

DIRECT: dict[type[nn.Module], ActivationFunction] = {
    nn.Tanh: torch.tanh,
    nn.ReLU: torch.relu,
    nn.Sigmoid: torch.sigmoid,
}
"""Functions for the commonest: calling a module costs more than they do."""


def activation_class(activation: ActivationClass) -> type[nn.Module]:
    """The class of torch.nn. Raises ValueError for a name that torch does not have."""
    if not isinstance(activation, str):
        return activation
    name = activation.lower().replace("_", "")
    if name not in ACTIVATIONS:
        raise ValueError(f'torch has no activation "{activation}"')
    return ACTIVATIONS[name]


def activation_function(
    activation: ActivationClass | None, dim: int = -1
) -> ActivationFunction | None:
    """The function of an activation; None for None. One that combines several features
    finds them in the dimension `dim`. Raises ValueError for a name that torch does not
    have."""
    if activation is None:
        return None
    cls = activation_class(activation)
    if cls in DIRECT:
        return DIRECT[cls]
    if "dim" in inspect.signature(cls).parameters:
        return cls(dim=dim)
    return cls()


MAX_SCALE = 3.0
"""r_max of the paper: bounds the correction of a batch's deviation towards the running
one."""
MAX_SHIFT = 5.0
"""d_max: the bound of its mean, in running deviations."""


@final
class BatchRenorm(nn.Module):
    """Normalises with the batch's moments, corrected towards the running ones.

        x̂ = (x − μ_B)/σ_B · r + d,   r = σ_B/σ,   d = (μ_B − μ)/σ

    Both r and d are clipped, and constant for the gradient. During the first
    `warmup_steps` batches r = 1 and d = 0: plain batch normalisation. `momentum` is the
    weight of a new batch in the running moments. Evaluation mode uses the running
    moments alone."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-3,
        momentum: float = 0.01,
        warmup_steps: int = 100_000,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.momentum = momentum
        self.warmup_steps = warmup_steps
        self.weight = nn.Parameter(torch.ones(num_features))
        self.bias = nn.Parameter(torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))
        # a float, as every shared buffer
        self.register_buffer("num_batches", torch.zeros(()))

    @override
    def forward(self, x: Tensor) -> Tensor:
        """(B, num_features, …) to the same; the moments of a feature are over all other
        axes."""
        # of a layer with half precision
        x = x.float() if x.dtype == torch.bfloat16 else x
        if x.dim() == 2:
            return self._normalised(x)
        last = x.movedim(1, -1)  # no copy for images in channels_last
        rows = self._normalised(last.reshape(-1, last.shape[-1]))
        return rows.view(last.shape).movedim(-1, 1)

    def _normalised(self, x: Tensor) -> Tensor:
        mean, var, num_batches = (
            self.get_buffer(name)
            for name in ("running_mean", "running_var", "num_batches")
        )
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        if not self.training:
            return batch_norm(x, mean, var, weight=weight, bias=bias, eps=self.eps)
        # The kernel's own moments: torch.var_mean takes ten times as long as the rest.
        _, batch_mean, inverse_deviation = torch.native_batch_norm(
            x.detach(),
            weight=None,
            bias=None,
            running_mean=None,
            running_var=None,
            training=True,
            momentum=0.0,
            eps=self.eps,
        )
        deviation = inverse_deviation.reciprocal()
        is_warm = num_batches >= self.warmup_steps
        if not x.is_cpu or is_warm:
            running = (var + self.eps).sqrt()
            scale = (deviation / running).clamp_(1 / MAX_SCALE, MAX_SCALE)
            shift = ((batch_mean - mean) / running).clamp_(-MAX_SHIFT, MAX_SHIFT)
            if not x.is_cpu:  # where the host would wait for `is_warm`
                scale = torch.where(is_warm, scale, 1.0)
                shift = torch.where(is_warm, shift, 0.0)
            bias = weight * shift + bias
            weight = weight * scale
        mean.lerp_(batch_mean, self.momentum)
        var.lerp_(deviation.square() - self.eps, self.momentum)
        num_batches += 1
        return batch_norm(
            x, None, None, weight=weight, bias=bias, training=True, eps=self.eps
        )


Norm: TypeAlias = Callable[[int], nn.Module]
"""Makes the normalisation of a layer of some width: BatchRenorm, or a class of
torch.nn."""

Linear: TypeAlias = nn.Linear | AnyConv
"""A layer with a weight (out, in, …) and an optional bias."""


class Empty:
    """A layer that is built without drawing from the global generator, to be filled
    later. torch's own way to that, by the meta device, imports sympy: half a second and
    50 MiB."""

    def reset_parameters(self) -> None:
        """Leaves the memory as it is."""


def _multiply(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`linear` as a function of Python: torch 2.4 exports no built-in one."""
    return linear(x, weight, bias)


class EmptyLinear(Empty, nn.Linear):
    """A layer without values, which `init_linear` fills."""

    by_numpy = False
    """Whether NumPy is to multiply wide matrices on a CPU."""
    multiply: Callable[[Tensor, Tensor, Tensor], Tensor] = staticmethod(_multiply)
    """Maps x, W and b to x Wᵀ + b."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight, self.bias)


class EmptyConv2d(Empty, nn.Conv2d):
    """A layer without values, which `init_linear` fills. Convolves `scale` times its
    input: it multiplies the weights, which are fewer than the pixels."""

    scale = 1.0

    @override
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.scale == 1.0 else self.weight * self.scale
        return self._conv_forward(x, weight, self.bias)


def init_linear(
    layer: Linear, init_fn: str | None, gain: float, generator: torch.Generator
) -> None:
    """Fills one linear layer or convolution. `init_fn` is a name in torch.nn.init,
    applied to the weight; the bias is then zero. Without a name, weight and bias are
    uniform in ±1/√fan_in, as torch does by default. `gain` scales the weight if the
    initialiser has a gain."""
    with torch.no_grad():
        if init_fn is None:
            bound = 1 / math.sqrt(layer.weight[0].numel())
            layer.weight.uniform_(-bound, bound, generator=generator)
            if layer.bias is not None:
                layer.bias.uniform_(-bound, bound, generator=generator)
            return
        apply_initialiser(layer.weight, init_fn, gain, generator)
        if layer.bias is not None:
            layer.bias.zero_()


class Head(NamedTuple):
    """One linear output of a net."""

    dim: int
    gain: float | None = None
    """It starts as this multiple of an orthogonal matrix; None: as `init_fn` fills
    it."""
    per_action: int = 1
    """Outputs of each action, where `dim` counts the outputs of all actions."""


Heads: TypeAlias = Sequence[Head]


def init_heads(
    layers: Iterable[Linear],
    heads: Heads,
    init_fn: str | None,
    generator: torch.Generator,
) -> None:
    """Fills the linear layers of the heads."""
    for layer, head in zip(layers, heads, strict=True):
        gain = head.gain
        if gain is None:
            init_linear(layer, init_fn, 1.0, generator)
        else:
            init_linear(layer, "orthogonal_", gain, generator)


def apply_initialiser(
    weight: Tensor, init_fn: str, gain: float, generator: torch.Generator
) -> None:
    """Calls torch.nn.init.`init_fn`, with gain and generator if it takes them."""
    initialiser = getattr(nn.init, init_fn)
    accepted = inspect.signature(initialiser).parameters
    offered = {"gain": gain, "generator": generator}
    initialiser(weight, **{k: v for k, v in offered.items() if k in accepted})


def init_recurrent(
    cell: nn.RNNBase, init_fn: str | None, generator: torch.Generator
) -> None:
    """Fills recurrent layers, the matrix of every gate separately. With a name in
    torch.nn.init the biases are zero. Without, all is uniform in ±1/√width, as torch
    does by default."""
    bound = 1 / math.sqrt(cell.hidden_size)
    with torch.no_grad():
        for parameter in cell.parameters():
            if init_fn is None:
                parameter.uniform_(-bound, bound, generator=generator)
            elif parameter.dim() == 1:
                parameter.zero_()
            else:
                for gate in torch.split(parameter, cell.hidden_size):
                    apply_initialiser(gate, init_fn, 1.0, generator)


GAINS: dict[type[nn.Module], float] = {
    nn.ReLU: math.sqrt(2),
    nn.LeakyReLU: math.sqrt(2),
    nn.Tanh: math.sqrt(2),
    nn.SELU: 3 / 4,
}


def hidden_gain(activation: ActivationClass | None) -> float:
    """The gain that keeps the variance through `activation` (He et al.,
    arXiv:1502.01852). For tanh √2, as is customary in this field; 5/3 drives deep
    stacks into saturation."""
    if activation is None:
        return 1.0
    return GAINS.get(activation_class(activation), 1.0)


def reject_single_samples(net: nn.Module, block: str) -> None:
    """Makes every batch normalisation in `net` raise LabError when it learns from one
    sample. `block` is the net's block in the spec file. The moments of one number are
    meaningless, and torch's own error does not name the spec's keys."""
    for module in net.modules():
        if isinstance(module, AnyBatchNorm | BatchRenorm):
            module.register_forward_pre_hook(partial(_needs_several, block))


def _needs_several(block: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
    (x,) = inputs
    if module.training and x.numel() == x.shape[1]:
        raise LabError(
            f"{block}: batch normalisation cannot learn from one sample alone; make "
            "the batch larger (agent.memory.batch_size, training_frequency × "
            "num_envs, minibatch_size, or episodes of more than one step), or use "
            "layer_norm"
        )


INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Processors that have one of these multiply in bfloat16; on others it is slower than
float32."""


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = cpu_capabilities()
    return any(can.get(name) for name in INSTRUCTIONS)


Products = Callable[[Tensor], AbstractContextManager[object]]
"""Maps an input to the context in which layers multiply."""


def products(half: bool) -> Products:
    """The context of the layers of a net, in bfloat16 if `half`. A cast of a weight
    ends with the product: in shared memory others change the weight."""
    if not half:
        return lambda _: nullcontext()
    context = cache(partial(torch.autocast, dtype=torch.bfloat16, cache_enabled=False))
    return lambda x: context(x.device.type)


def restored(x: Tensor) -> Tensor:
    """bfloat16 as float32, other numbers as they are."""
    if x.dtype == torch.bfloat16:
        return x.float()
    return x
