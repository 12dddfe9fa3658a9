"""How many trials run at a time: what each occupies, and what there is."""

from typing import NamedTuple, final

from slm_lab.core.cores import usable_cores
from slm_lab.core.errors import UsageError
from slm_lab.spec.schema.meta import SearchResourcesSpec
from slm_lab.spec.schema.spec import Spec

SLACK = 1e-9
"""Three thirds of a core are one, whatever their sum says."""


class Needs(NamedTuple):
    """What a trial occupies while it runs."""

    cpu: float
    gpu: float


class Place(NamedTuple):
    """What was given to a trial."""

    needs: Needs
    gpus: tuple[int, ...]


def needs_of(spec: Spec, given: SearchResourcesSpec, cpus: float) -> Needs:
    """What is `given` for a trial with this spec. The default of one core is one for each thread of
    its Sessions, or all of the `cpus` that there are."""
    of_all = float(spec.meta.num_sessions // spec.meta.max_run * spec.meta.threads)
    return Needs(min(of_all, cpus) if given.cpu == 1 else given.cpu, given.gpu)


@final
class Room:
    """Cores and GPUs, and who has them. A trial may have a share of one GPU, or several whole."""

    def __init__(self, cpus: float, gpus: float) -> None:
        self.cpus = cpus
        self._free = cpus
        self._gpus = [1.0] * int(gpus)

    def check(self, needs: Needs) -> None:
        """Raises UsageError where a trial never has room."""
        gpus = len(self._gpus)
        for name, what, need, there in (
            ("cpu", "cores", needs.cpu, self.cpus),
            ("gpu", "GPUs", needs.gpu, gpus),
        ):
            if need > there + SLACK:
                fix = f"at most {there:g}" if there else "0, there is none"
                raise UsageError(
                    f"meta.search_resources.{name} = {need:g}: a trial occupies more {what} than "
                    f"there are; set it to {fix}"
                )

    def has(self, needs: Needs) -> bool:
        """Whether there is room now."""
        return needs.cpu <= self._free + SLACK and self._chosen(needs.gpu) is not None

    def take(self, needs: Needs) -> Place:
        """Occupies it. There must be room."""
        gpus = self._chosen(needs.gpu)
        assert gpus is not None
        self._free -= needs.cpu
        for gpu in gpus:
            self._gpus[gpu] -= min(needs.gpu, 1.0)
        return Place(needs, gpus)

    def give_back(self, place: Place) -> None:
        """Frees what was taken."""
        self._free += place.needs.cpu
        for gpu in place.gpus:
            self._gpus[gpu] += min(place.needs.gpu, 1.0)

    def _chosen(self, need: float) -> tuple[int, ...] | None:
        """The GPUs with room for it; the fullest that has is the first, so that others stay
        whole."""
        if not need:
            return ()
        share, count = min(need, 1.0), max(int(need), 1)
        fitting = [gpu for gpu, free in enumerate(self._gpus) if free >= share - SLACK]
        fitting.sort(key=lambda gpu: self._gpus[gpu])
        return tuple(fitting[:count]) if len(fitting) >= count else None


def of_this_machine(with_gpus: bool) -> Room:
    """The cores that this process may run on, and the GPUs if somebody asks for them."""
    gpus = 0
    if with_gpus:
        import torch

        gpus = torch.cuda.device_count()
    return Room(usable_cores(), gpus)
