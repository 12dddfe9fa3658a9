"""CUDA graphs without a GPU: what they keep, and what they forbid, on the CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Recorder(TorchDispatchMode):
    """Notes each operation of torch with its tensors and all other arguments.

    A replay runs the same operations on the same memory, as a CUDA graph does: values
    that Python computed while it was recorded stay as they were. As with CUDA, a number
    cannot be read from a tensor within, and a generator of the host cannot be drawn
    from.
    """

    def __init__(self):
        super().__init__()
        self._calls = []
        self._before = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func._schema.name in ("aten::_local_scalar_dense", "aten::item"):
            raise RuntimeError("operation not permitted when stream is capturing")
        assert not isinstance(kwargs.get("generator"), torch.Generator)
        for tensor in tree_leaves((args, kwargs)):
            if isinstance(tensor, torch.Tensor):
                self._keep(tensor)
        results = func(*args, **kwargs)
        self._calls.append((func, args, kwargs, results))
        return results

    def _keep(self, tensor):
        """Work is recorded without being run: what it changes is put back."""
        storage = tensor.untyped_storage()
        self._before.setdefault(storage.data_ptr(), (storage, storage.clone()))

    def undo(self):
        """Restores the memory that existed before and was changed."""
        for storage, before in self._before.values():
            storage.copy_(before)

    @torch.no_grad()
    def replay(self):
        """The same operations on the same memory."""
        for func, args, kwargs, results in self._calls:
            if func.is_view:
                continue
            again = func(*args, **kwargs)
            for result, value in zip(_tensors(results), _tensors(again), strict=True):
                if result.data_ptr() != value.data_ptr():
                    result.copy_(value)


def _tensors(results):
    several = results if isinstance(results, tuple | list) else [results]
    return [each for each in several if isinstance(each, torch.Tensor)]


def record(_, work):
    """In place of `recorded_step.Recorder.record`."""
    with Recorder() as recorder:
        work()
    recorder.undo()
    return recorder.replay
