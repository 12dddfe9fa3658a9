"""Torch settings of a process that trains or plays, and the devices of its networks."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from slm_lab.spec.schema.spec import Spec

CPU_PRECISION = {"float32": "float32", "auto": "auto", "bf16": "auto"}
"""The precision of a net that is moved to the CPU, which may have no instructions for
bf16."""


def set_up_torch(threads: int) -> None:
    """Uses `threads` threads per operation and flushes subnormal floats to zero. Every
    process of a run uses the same settings, because both change the last bits. Adam's
    moments of weights behind a dead unit decay into subnormal numbers (below 1e-38). A
    CPU is up to 100 times slower on these."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)


@contextmanager
def torch_settings(threads: int) -> Iterator[None]:
    """`set_up_torch` for a while, in a process that is not the lab's own; floats are
    float32."""
    before = torch.get_num_threads()
    dtype = torch.get_default_dtype()
    flushes = bool((torch.full((1,), 1e-40) * 1.0).item() == 0.0)
    torch.set_default_dtype(torch.float32)
    set_up_torch(threads)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(before)
        torch.set_flush_denormal(flushes)


def on_cpu(spec: Spec, only: object = None) -> Spec:
    """The spec with all nets on the CPU, or only those whose `gpu` equals `only`."""
    moved = {
        key: net.model_copy(
            update={"gpu": False, "precision": CPU_PRECISION[net.precision]}
        )
        for key, net in spec.agent.nets.items()
        if only in (None, net.gpu)
    }
    return spec.model_copy(update={"agent": spec.agent.model_copy(update=moved)})
