"""Half precision: products in bfloat16, which has the exponents of float32 and 8 of its
24 digits.

Weights, their gradients and optimizers, normalisation, losses and targets stay in
float32. So do the layer that sees an observation vector and the heads: both their
numbers may be large, and 8 digits tell only 36.00 from 36.25. The bytes of an image are
exact."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch
from torch import Tensor

from slm_lab.agent.device import NO_GPU, has_gpu, resolve_device
from slm_lab.core.errors import Problem
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.net import NetSpec

INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Processors that have one of these multiply in bfloat16; on others it is slower than
float32."""

NO_BF16 = (
    'this machine has no instructions for bfloat16, which is slow; use "float32" or '
    '"auto"'
)


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = torch.cpu.get_capabilities()
    return any(can.get(name) for name in INSTRUCTIONS)


def problems_here(agent: AgentSpec) -> Iterator[Problem]:
    """What the nets of an agent need and this machine does not have."""
    for key, net in agent.nets.items():
        if net.gpu is True and not has_gpu():
            yield Problem(f"agent.{key}.gpu", NO_GPU, True)
        elif net.precision == "bf16" and not has_bf16(resolve_device(net.gpu)):
            yield Problem(f"agent.{key}.precision", NO_BF16, "bf16")


def with_precision(spec: NetSpec) -> NetSpec:
    """The spec with "auto" replaced by the precision that suits its device."""
    if spec.precision != "auto":
        return spec
    fast = has_bf16(resolve_device(spec.gpu))
    return spec.model_copy(update={"precision": "bf16" if fast else "float32"})


Products = Callable[[Tensor], AbstractContextManager[object]]
"""From an input to the context in which layers multiply."""


def products(spec: NetSpec) -> Products:
    """The context of the layers of a net whose precision is decided. A cast of a weight
    ends with the product: in shared memory others change the weight."""
    if spec.precision != "bf16":
        return lambda _: nullcontext()
    context = cache(partial(torch.autocast, dtype=torch.bfloat16, cache_enabled=False))
    return lambda x: context(x.device.type)


def restored(x: Tensor) -> Tensor:
    """bfloat16 as float32, other numbers as they are."""
    return x.float() if x.dtype == torch.bfloat16 else x
