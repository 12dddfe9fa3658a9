"""What each kind of work costs: seconds that were measured, and draws from them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np
from typing_extensions import override

from slm_lab.core.files import read_object, write_json
from slm_lab.session.pace import GRADIENT, UPDATE, Pace, network_kind
from slm_lab.spec.schema.meta import CostsSpec
from slm_lab.storage.run_dir import SessionPaths

Costs: TypeAlias = Mapping[str, Sequence[float]]
"""The seconds that work takes, by its kind. The values of a kind are equally likely.
Work on a single network has a kind for each network, such as `gradient.critic`."""

LEVELS: Final = 32
"""The most values of a kind that a measurement keeps."""
COLD: Final = 20
"""The first stretches of a kind, which are slower: buffers and caches are cold. Of few
stretches a quarter is left out."""
LEARNING: Final = (GRADIENT, UPDATE)
DRAWN_AT_ONCE: Final = 4096


@final
class MeasuredPace(Pace):
    """Keeps how long each stretch took."""

    def __init__(self) -> None:
        super().__init__()
        self._stretches: dict[str, list[float]] = {}
        self._before_learning: dict[str, int] | None = None
        """How many stretches of a kind came before any learning."""

    @override
    def add(self, kind: str, seconds: float) -> None:
        super().add(kind, seconds)
        work, _, _ = kind.partition(".")
        if self._before_learning is None and work in LEARNING:
            counts = {kind: len(taken) for kind, taken in self._stretches.items()}
            self._before_learning = counts
        self._stretches.setdefault(kind, []).append(seconds)

    @property
    def costs(self) -> Costs:
        """The costs of each kind of work so far."""
        return {kind: levels(self._kept(kind)) for kind in self._stretches}

    def _kept(self, kind: str) -> Sequence[float]:
        """The stretches of a kind without the first ones. If enough came later, the
        stretches before learning are left out too: an agent may act at random in
        them."""
        taken = self._stretches[kind]
        first = min(COLD, len(taken) // 4)
        before = (self._before_learning or {}).get(kind, 0)
        if len(taken) - before >= COLD:
            first = max(first, before)
        return taken[first:]


def keep_costs(paths: SessionPaths, pace: Pace) -> None:
    """Writes the costs of a Session into its run folder, if its pace has measured
    them."""
    if isinstance(pace, MeasuredPace):
        write_json(_costs_file(paths), pace.costs)


def read_costs(paths: SessionPaths) -> Costs:
    """The costs that a Session has measured; empty if it has none."""
    return read_object(_costs_file(paths))


def _costs_file(paths: SessionPaths) -> Path:
    return paths.info / f"{paths.prefix}_costs.json"


def costs_of(block: CostsSpec) -> Costs:
    """The costs in a spec, by kind; kinds without a value are left out."""
    costs: dict[str, Sequence[float]] = {}
    for kind in type(block).model_fields:
        values = getattr(block, kind)
        if isinstance(values, Mapping):
            costs |= {
                network_kind(kind, name): network_costs
                for name, network_costs in values.items()
            }
        elif values is not None:
            costs[kind] = values
    return {kind: values for kind, values in costs.items() if values}


def block_of(costs: Costs) -> CostsSpec:
    """The costs as they stand in a spec."""
    keys: dict[str, Any] = {}
    for kind, values in costs.items():
        name, _, network = kind.partition(".")
        if network:
            keys.setdefault(name, {})[network] = values
        else:
            keys[name] = values
    return CostsSpec.model_validate(keys)


def levels(stretches: Sequence[float]) -> list[float]:
    """Summarises stretches by at most `LEVELS` values with the same mean. The stretches
    are sorted and cut into equal shares, and a value is the mean of a share. So rare
    long stretches keep their weight."""
    ordered = np.sort(np.asarray(stretches, np.float64))
    shares = np.array_split(ordered, min(LEVELS, len(ordered)))
    means = np.array([share.mean() for share in shares])
    means *= ordered.mean() / means.mean()  # shares differ by one if they are not equal
    return [float(f"{mean:.4g}") for mean in means]


@final
class Draws:
    """Costs drawn from a table. The n-th draw of a kind depends on nothing but the seed
    and n."""

    def __init__(self, costs: Costs, seed: int) -> None:
        kinds = sorted(costs)
        seeds = np.random.SeedSequence(seed).spawn(len(kinds))
        self._values = {kind: np.array(costs[kind], np.float64) for kind in kinds}
        self._seeds = dict(zip(kinds, seeds, strict=True))
        self.counts = dict.fromkeys(kinds, 0)
        """The draws so far, by kind."""
        self._blocks: dict[str, list[float]] = {}

    def draw(self, kind: str) -> float:
        """The seconds of the next stretch. For a network without costs of its own they
        come from the kind without a network. A kind without costs takes no time."""
        if kind not in self.counts:
            kind = kind.partition(".")[0]
        if kind not in self.counts:
            return 0.0
        count = self.counts[kind]
        place = count % DRAWN_AT_ONCE
        if place == 0 or kind not in self._blocks:
            self._blocks[kind] = self._block(kind, count // DRAWN_AT_ONCE)
        self.counts[kind] = count + 1
        return self._blocks[kind][place]

    def _block(self, kind: str, number: int) -> list[float]:
        """The draws from `DRAWN_AT_ONCE` · `number` on."""
        entropy = [*self._seeds[kind].generate_state(4).tolist(), number]
        generator = np.random.default_rng(entropy)
        values = self._values[kind]
        chosen = generator.integers(len(values), size=DRAWN_AT_ONCE)
        drawn: list[float] = values[chosen].tolist()
        return drawn
