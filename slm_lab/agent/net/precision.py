"""Half precision: products in bfloat16, which has the exponents of float32 and 8 of its
24 digits.

Weights, their gradients and optimizers, normalisation, losses and targets stay in
float32. So do the layer that sees an observation vector and the heads: both their
numbers may be large, and 8 digits tell only 36.00 from 36.25. The bytes of an image are
exact."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial

import torch
from torch import Tensor

INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Processors that have one of these multiply in bfloat16; on others it is slower than
float32."""


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    can = torch.cpu.get_capabilities()
    return any(can.get(name) for name in INSTRUCTIONS)


Products = Callable[[Tensor], AbstractContextManager[object]]
"""From an input to the context in which layers multiply."""


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
