"""A GPU that has no values: torch's "meta" device, with the copies that a host would
wait for."""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CPU, GPU = torch.device("cpu"), torch.device("meta")


class FakeGPU(TorchDispatchMode):
    """Counts what makes the host wait for the GPU, and answers it with zeros.

    torch refuses tensors of two devices in one operation, and the memory of a GPU as an
    array, as it does on a real GPU. It does not refuse a generator of the wrong device.
    """

    waits = 0
    copies = copied = 0
    """From the host to the GPU, and their bytes."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name
        is_away = bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_meta
        if is_away and name in ("aten::_local_scalar_dense", "aten::item"):
            self.waits += 1
            return torch.zeros((), dtype=args[0].dtype).item()
        if (
            is_away
            and name in ("aten::_to_copy", "aten::to")
            and CPU in (*args, *kwargs.values())
        ):
            self.waits += 1
            return torch.zeros(args[0].shape, dtype=args[0].dtype)
        if name == "aten::_to_copy" and args[0].is_cpu and GPU in kwargs.values():
            self.copies += 1
            self.copied += args[0].nbytes
        if isinstance(kwargs.get("generator"), torch.Generator):
            filled = [each for each in args if isinstance(each, torch.Tensor)]
            assert not any(each.is_meta for each in filled), (
                f"{func}: the generator is on the CPU"
            )
        return func(*args, **kwargs)

    @contextmanager
    def waiting(self, times):
        """Within, the host waits so often and no more."""
        before = self.waits
        yield
        assert self.waits - before == times
