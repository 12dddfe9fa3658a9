"""The cores and GPUs that the trials of a search occupy."""

from typing import NamedTuple, final

from slm_lab.core.errors import UsageError
from slm_lab.core.process import usable_cores
from slm_lab.spec.schema.meta import SearchResourcesSpec
from slm_lab.spec.schema.spec import Spec

SLACK = 1e-9
"""Tolerance for rounding: three requests of a third of a core fit on one core."""


class Request(NamedTuple):
    """The cores and GPUs that a trial occupies while it runs."""

    cpu: float
    gpu: float


class Allocation(NamedTuple):
    """The resources allocated to a trial; `gpus` are indices of this machine's GPUs."""

    request: Request
    gpus: tuple[int, ...]


def request_of(spec: Spec, given: SearchResourcesSpec, cpus: float) -> Request:
    """A trial's request. `cpu = 1` means a core per thread of its Sessions, at most
    `cpus`."""
    num_threads = float(spec.meta.num_sessions // spec.meta.max_run * spec.meta.threads)
    return Request(min(num_threads, cpus) if given.cpu == 1 else given.cpu, given.gpu)


@final
class Resources:
    """Free cores and GPUs. A trial takes a share of one GPU, or several whole GPUs."""

    def __init__(self, cpus: float, gpus: float) -> None:
        self.cpus = cpus
        self._free = cpus
        self._gpus = [1.0] * int(gpus)

    def check(self, request: Request) -> None:
        """Raises UsageError if a trial does not fit even when everything is free."""
        cores = ("cpu", "cores", self.cpus)
        gpus = ("gpu", "GPUs", len(self._gpus))
        for (name, what, total), need in zip((cores, gpus), request, strict=True):
            if need > total + SLACK:
                fix = "0, there is none"
                if total:
                    fix = f"at most {total:g}"
                raise UsageError(
                    f"meta.search_resources.{name} = {need:g}: a trial occupies more "
                    f"{what} than there are; set it to {fix}"
                )

    def has(self, request: Request) -> bool:
        """Whether the request fits now."""
        return (
            request.cpu <= self._free + SLACK and self._chosen(request.gpu) is not None
        )

    def take(self, request: Request) -> Allocation:
        """Allocates the request. It must fit."""
        gpus = self._chosen(request.gpu)
        assert gpus is not None
        self._free -= request.cpu
        for gpu in gpus:
            self._gpus[gpu] -= min(request.gpu, 1.0)
        return Allocation(request, gpus)

    def give_back(self, allocation: Allocation) -> None:
        """Frees an allocation."""
        self._free += allocation.request.cpu
        for gpu in allocation.gpus:
            self._gpus[gpu] += min(allocation.request.gpu, 1.0)

    def _chosen(self, need: float) -> tuple[int, ...] | None:
        """GPUs with room for the request, or None. Fullest first, so that others stay
        whole."""
        if not need:
            return ()
        share = min(need, 1.0)
        count = max(int(need), 1)
        fitting = [gpu for gpu, free in enumerate(self._gpus) if free >= share - SLACK]
        fitting.sort(key=lambda gpu: self._gpus[gpu])
        if len(fitting) >= count:
            return tuple(fitting[:count])
        return None


def of_this_machine(with_gpus: bool) -> Resources:
    """The cores that this process may run on, and the GPUs if `with_gpus`."""
    gpus = 0
    if with_gpus:
        import torch

        gpus = torch.cuda.device_count()
    return Resources(usable_cores(), gpus)
