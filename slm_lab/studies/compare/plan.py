"""The plan of a comparison: which trainings it runs. It is fixed when it begins."""

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from slm_lab.charts.speeds import Way
from slm_lab.records.comparison import PLAN_BLOCK, PLAN_FILE, ComparisonKind
from slm_lab.records.origin import provenance
from slm_lab.session.seeding import draw_root_seed
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import Parsed, parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.run_dir import safe_name


class Variant(NamedTuple):
    """A label, and the changes to a spec that it stands for."""

    label: str
    """How graphs, tables and messages call it."""
    spec_name: str
    """The name of its spec; its run folders begin with it."""
    changes: tuple[Setting, ...]

    def parse(self, base: Spec) -> Parsed:
        """The changed spec, with every problem of the changes."""
        data, problems = apply_settings(base.to_json(), self.changes, dict)
        parsed = parse(self.spec_name, data).for_training()
        return parsed._replace(problems=[*problems, *parsed.problems])


class Planned(NamedTuple):
    """One training of a comparison."""

    number: int
    variant: str
    """The label of its variant."""
    spec: Spec
    seed: int

    @property
    def label(self) -> str:
        """Its name in messages."""
        return f"{self.variant}, seed {self.seed}"


def consecutive_seeds(first: int | None, base: Spec, count: int) -> tuple[int, ...]:
    """The seeds of each variant: the given one, else the spec's, else a drawn one, and
    those that follow it."""
    if first is None:
        first = base.meta.random_seed
    if first is None:
        first = draw_root_seed()
    return tuple(range(first, first + count))


class RecordedVariant(BaseModel):
    """What a plan file says of a variant."""

    spec: str
    label: str | None = None
    """Earlier versions wrote none, and compared only modes."""


class RecordedMachine(BaseModel):
    """What a plan file says of the machine, as far as a resume asks."""

    processor: str


class RecordedPlan(BaseModel):
    """The block of a plan file that `Plan.to_json` writes, as far as a resume asks."""

    name: str
    variants: Annotated[tuple[RecordedVariant, ...], Field(min_length=1)]
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    threshold: float | None
    usable_cores: Annotated[int, Field(ge=1)]
    machine: RecordedMachine
    notes: tuple[str, ...]


class Plan(NamedTuple):
    """The variants of a comparison and their machine."""

    kind: ComparisonKind
    name: str
    specs: Mapping[str, Spec]
    """The spec of each variant by its label, the baseline's first."""
    seeds: tuple[int, ...]
    threshold: float | None
    cores: int
    processor: str
    imports: tuple[str, ...]
    notes: tuple[str, ...]
    terms: Mapping[str, Any]
    """What only plans of its kind say, as JSON."""

    @property
    def baseline(self) -> Spec:
        """The spec that the others are compared with."""
        return next(iter(self.specs.values()))

    @property
    def ways(self) -> dict[str, Way]:
        """How each variant trains in parallel, by its label."""
        return {label: Way.of(spec, self.cores) for label, spec in self.specs.items()}

    @property
    def trainings(self) -> list[Planned]:
        """Every training in order: all variants with one seed, then all with the next
        seed. So a temporary disturbance of the machine affects all variants."""
        return [
            Planned(number, variant, spec, seed)
            for number, (seed, (variant, spec)) in enumerate(
                product(self.seeds, self.specs.items())
            )
        ]

    def file(self, folder: Path) -> Path:
        """The plan file in the folder of the comparison."""
        return folder / PLAN_FILE.format(safe_name(self.name))

    def to_json(self) -> dict[str, Any]:
        """The content of the plan file: every variant's spec, and the plan's own
        block."""
        block = {
            "format": FORMAT,
            "kind": self.kind.word,
            "name": self.name,
            "variants": [*self._entries()],
            "seeds": list(self.seeds),
            "threshold": self.threshold,
            "usable_cores": self.cores,
            "imports": list(self.imports),
            "notes": list(self.notes),
            **provenance(self.seeds[0]),
        }
        if self.terms:
            block[self.kind.terms_key] = dict(self.terms)
        return {
            **{spec.name: spec.to_json() for spec in self.specs.values()},
            PLAN_BLOCK: block,
        }

    def _entries(self) -> Iterable[dict[str, Any]]:
        """What the plan's block says of each variant. Earlier versions of the lab read
        `mode` and `workers`, and know no `label`."""
        ways = self.ways
        for label, spec in self.specs.items():
            yield {
                "label": label,
                "spec": spec.name,
                "mode": ways[label].mode,
                "workers": ways[label].workers,
            }
