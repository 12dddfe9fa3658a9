"""The plan of a comparison: which trainings it runs. It is fixed when it begins."""

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.charts.speeds import Way
from slm_lab.records.origin import provenance
from slm_lab.session.seeding import draw_root_seed
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import Parsed, parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.run_dir import PLAN_BLOCK, PLAN_FILE, safe_name


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


class StoppingRule(NamedTuple):
    """The rule by which a test of two variants ends before its last seed."""

    confidence: float
    """The chance, at least, that the interval of the difference is right."""
    smallest: float | None
    """A difference in the final return that does not matter yet."""


class TriedRemedy(NamedTuple):
    """One remedy of a treatment."""

    findings: tuple[str, ...]
    """The findings that it may cure."""
    settings: tuple[str, ...]
    """Its changes as `-s` takes them."""
    frame: int
    """The total frame at which it leaves the run; 0: it begins anew."""
    since: int
    """The total frame until which the run was well."""
    until: int
    """The total frame at which it ends."""


class Treatment(NamedTuple):
    """What a treatment treats."""

    run: str
    """The folder of the run."""
    frames: int
    """The total frames of each remedy, after the beginning of the illness."""
    remedies: tuple[TriedRemedy, ...]
    """The remedies, in the order of the variants."""


class Plan(NamedTuple):
    """The variants of a comparison and their machine."""

    name: str
    specs: Mapping[str, Spec]
    """The spec of each variant by its label, the baseline's first."""
    seeds: tuple[int, ...]
    threshold: float | None
    cores: int
    processor: str
    imports: tuple[str, ...]
    notes: tuple[str, ...]
    rule: StoppingRule | None = None
    """The rule of a test of two variants; `seeds` are then the most that it may use."""
    treatment: Treatment | None = None
    """The treatment whose remedies are the variants. Without rule and treatment the
    plan is a comparison's."""

    @property
    def kind(self) -> str:
        """The command that began it."""
        if self.rule is not None:
            return "ab"
        return "compare" if self.treatment is None else "treat"

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
            "name": self.name,
            "variants": [*self._entries()],
            "seeds": list(self.seeds),
            "threshold": self.threshold,
            "usable_cores": self.cores,
            "imports": list(self.imports),
            "notes": list(self.notes),
            **self._purpose,
            **provenance(self.seeds[0]),
        }
        return {
            **{spec.name: spec.to_json() for spec in self.specs.values()},
            PLAN_BLOCK: block,
        }

    @property
    def _purpose(self) -> dict[str, Any]:
        """What the plan's block says of the stopping rule or of the treatment."""
        if self.rule is not None:
            return {"rule": self.rule._asdict()}
        if self.treatment is None:
            return {}
        remedies = [remedy._asdict() for remedy in self.treatment.remedies]
        return {"treatment": {**self.treatment._asdict(), "remedies": remedies}}

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
