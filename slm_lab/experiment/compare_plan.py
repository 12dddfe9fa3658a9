"""What a comparison is going to run: one spec for each variant, and the seeds.

The variants differ in `meta.distributed`, `meta.max_session` and what follows from these, so that
what is compared is the word.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from slm_lab.analysis.compare import BASELINE, Variant
from slm_lab.core.cores import usable_cores
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.experiment.consent import check_allowed, check_source, named_by, recorded_imports
from slm_lab.experiment.manifest import FORMAT
from slm_lab.experiment.origin import check_format
from slm_lab.experiment.place import check_place
from slm_lab.experiment.provenance import provenance
from slm_lab.experiment.run import check_spaces
from slm_lab.experiment.run_dir import safe_name
from slm_lab.experiment.seeding import draw_root_seed
from slm_lab.spec.cross_check_nets import GLOBAL_TWIN
from slm_lab.spec.load import load_spec, load_specs
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import Parsed, parse
from slm_lab.spec.read import read_file
from slm_lab.spec.role import optimizer_paths
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.schema.wording import not_among

logger = logging.getLogger(__name__)

PLAN_BLOCK = "_compare"
"""The key beside the specs, in the comparison's own spec file, that says what is compared."""
PLAN_FILE = "{}_compare_specs.json"
HOGWILD = ("shared", "synced")
"""The modes whose optimizers keep their state in shared memory."""
BUSY = 0.5
"""Cores' worth of other work from which on it is told."""


@dataclass(frozen=True)
class CompareRequest:
    """What the user asked for; None: what is sensible on this machine."""

    spec_file: str
    spec_name: str | None
    modes: tuple[str, ...] | None
    workers: tuple[int, ...] | None
    seeds: int
    threshold: float | None = None
    sets: tuple[str, ...] = ()
    seed: int | None = None
    data_dir: Path = Path("data")
    imports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is compared, on which machine; the baseline's spec comes first."""

    name: str
    """Of the spec that it was made from."""
    specs: Mapping[Variant, Spec]
    seeds: tuple[int, ...]
    threshold: float | None
    cores: int
    processor: str
    imports: tuple[str, ...]
    notes: tuple[str, ...]
    """What has to be known to read the numbers."""

    @property
    def baseline(self) -> Spec:
        """The spec of one process."""
        return next(iter(self.specs.values()))

    def file(self, folder: Path) -> Path:
        """The plan's own file in the folder of the comparison."""
        return folder / PLAN_FILE.format(safe_name(self.name))

    def to_json(self) -> dict[str, Any]:
        """A spec file that holds every variant, and beside them what is compared."""
        about = {
            "format": FORMAT,
            "name": self.name,
            "variants": [
                {"spec": spec.name, "mode": variant.mode, "workers": variant.workers}
                for variant, spec in self.specs.items()
            ],
            "seeds": list(self.seeds),
            "threshold": self.threshold,
            "usable_cores": self.cores,
            "imports": list(self.imports),
            "notes": list(self.notes),
            **provenance(self.seeds[0]),
        }
        return {**{spec.name: spec.to_json() for spec in self.specs.values()}, PLAN_BLOCK: about}


def all_modes() -> list[str]:
    """The words for `meta.distributed` that can be compared with `false`."""
    given = MetaSpec.model_fields["distributed"].annotation
    return [word for word in get_args(given) if isinstance(word, str)]


def make_plan(request: CompareRequest) -> Plan:
    """The plan for a request. Raises UsageError, or SpecError with every problem of any variant."""
    cores = usable_cores()
    workers = _powers_of_two(cores) if request.workers is None else request.workers
    _refuse_unknown(request.modes or ())
    alone = {"meta.distributed": False, "meta.max_session": 1, "meta.max_run": 1}
    base = load_spec(request.spec_file, request.spec_name, request.sets, alone)
    check_source(request.spec_file, base, request.imports)
    named = set(all_modes() if request.modes is None else request.modes)
    twins = _twins(base) if named & set(HOGWILD) else {}
    optimizers = {path: twin for path, (_, twin) in twins.items()}
    modes, left_out = request.modes, list[str]()
    if modes is None:
        modes, left_out = _possible_modes(base, workers, optimizers)
    where = f"{request.spec_file}: {base.name}"
    if base.meta.cluster is not None:
        message = "a comparison measures this machine; leave it out with -s meta.cluster=null"
        problem = Problem("meta.cluster", message, base.meta.cluster, has_value=True)
        raise SpecError(where, [problem])
    variants = [
        Variant(BASELINE, 1),
        *(Variant(mode, count, count > cores) for mode in modes for count in workers),
    ]
    specs = _specs(where, base, variants, optimizers)
    check_spaces(where, base)
    check_place(where, base)
    seed = base.meta.random_seed if request.seed is None else request.seed
    first = draw_root_seed() if seed is None else seed
    replaced = [
        f"{path}: {given} replaced by {twin} in all variants, which Hogwild! needs"
        for path, (given, twin) in twins.items()
    ]
    return Plan(
        base.name,
        specs,
        tuple(range(first, first + request.seeds)),
        request.threshold,
        cores,
        processor(),
        request.imports,
        (*replaced, *left_out, *_other_work(cores)),
    )


def read_plan(folder: Path, imports: tuple[str, ...] = ()) -> Plan:
    """The plan in the folder of a comparison, whose plug-ins are imported.

    Raises UsageError where there is none, where it is of another format, or where it was begun on
    another machine, whose speeds tell nothing about this one; SpecError.
    """
    file, about = _plan_block(folder)
    check_format(folder, about.get("format"))
    specs = load_specs(file)
    cores, named = int(about["usable_cores"]), str(about["machine"]["processor"])
    here = (usable_cores(), processor())
    if here != (cores, named):
        raise UsageError(
            f"{folder} was begun on {cores} cores of {named}, this is {here[0]} of {here[1]}: "
            "speeds of different machines cannot be compared; begin a new comparison"
        )
    found = {
        Variant(each["mode"], each["workers"], each["workers"] > cores): specs[each["spec"]]
        for each in about["variants"]
    }
    return Plan(
        about["name"],
        found,
        tuple(about["seeds"]),
        about["threshold"],
        cores,
        named,
        imports,
        tuple(about["notes"]),
    )


def allowed_imports(folder: Path, given: Sequence[str], trust: bool) -> tuple[str, ...]:
    """The modules that a comparison was begun with, and those that are `given` now; with `trust`
    all that it names. Raises UsageError where the user has not allowed one; SpecError."""
    file, _ = _plan_block(folder)
    named = named_by([file], PLAN_BLOCK)
    allowed = (*given, *named) if trust else tuple(given)
    check_allowed(folder, named, allowed)
    return tuple(dict.fromkeys([*recorded_imports(file, read_file(file), PLAN_BLOCK), *allowed]))


def processor() -> str:
    """The name of this machine's processor."""
    return str(provenance(0)["machine"]["processor"])


def _plan_block(folder: Path) -> tuple[Path, dict[str, Any]]:
    files = sorted(folder.glob(PLAN_FILE.format("*")))
    about = read_file(files[0]).get(PLAN_BLOCK) if len(files) == 1 else None
    if not isinstance(about, dict):
        raise UsageError(
            f"{folder} is no folder of a comparison: it has no {PLAN_FILE.format('*')}"
        )
    return files[0], about


def _refuse_unknown(modes: Sequence[str]) -> None:
    for mode in modes:
        if mode == BASELINE:
            raise UsageError("--modes false: one process is what the others are compared with")
        if mode not in all_modes():
            raise UsageError(f"--modes {mode}: {not_among(mode, all_modes())}")


def _twins(spec: Spec) -> dict[str, tuple[str, str]]:
    """By the path of an optimizer its name and that of its Global twin, where it has one."""
    return {
        path: (optim.name, GLOBAL_TWIN[optim.name])
        for path, optim in optimizer_paths(spec.agent.net, spec.agent.critic_net)
        if optim.name in GLOBAL_TWIN
    }


def _specs(
    where: str, base: Spec, variants: Sequence[Variant], optimizers: Mapping[str, str]
) -> dict[Variant, Spec]:
    """A spec for each variant. Raises SpecError with the problems of all.

    What the baseline makes one doubt was said when it was loaded; of the others, what is theirs.
    """
    parsed = {variant: _parsed(base, variant, optimizers) for variant in variants}
    problems = {str(problem): problem for each in parsed.values() for problem in each.problems}
    if problems:
        raise SpecError(where, list(problems.values()))
    said: set[str] = set()
    for variant, each in parsed.items():
        doubts = [doubt for doubt in each.doubts if doubt not in said]
        if doubts and variant.mode != BASELINE:
            logger.warning("%s: is this meant? %s", variant.label, "; ".join(doubts))
        said.update(doubts)
    return {variant: each.spec for variant, each in parsed.items() if each.spec is not None}


def _parsed(base: Spec, variant: Variant, optimizers: Mapping[str, str]) -> Parsed:
    """The spec of one variant, or why there is none."""
    settings = [Setting(f"{path}.name", name) for path, name in optimizers.items()]
    name = f"{base.name}_{variant.mode}"
    if variant.mode != BASELINE:
        name = f"{name}_{variant.workers}"
        settings += [
            Setting("meta.distributed", variant.mode),
            Setting("meta.max_session", variant.workers),
        ]
        if base.logs_by_default:
            settings.append(Setting("meta.log_frequency", None))  # that of its own share
    data, found = apply_settings(base.to_json(), settings, dict)
    parsed = parse(name, data).for_training()
    return parsed._replace(problems=[*found, *parsed.problems])


def _possible_modes(
    base: Spec, workers: Sequence[int], optimizers: Mapping[str, str]
) -> tuple[tuple[str, ...], list[str]]:
    """All ways of parallel training that suit the spec, and why each of the others does not."""
    possible, notes = [], []
    for mode in all_modes():
        variants = [Variant(mode, count) for count in workers]
        problems = [p for each in variants for p in _parsed(base, each, optimizers).problems]
        if problems:
            notes.append(f"{mode} is left out: {problems[0]}")
        else:
            possible.append(mode)
    return tuple(possible), notes


def _powers_of_two(cores: int) -> tuple[int, ...]:
    """As many workers as there are cores at most."""
    return tuple(1 << power for power in range(cores.bit_length()))


def _other_work(cores: int) -> list[str]:
    load = os.getloadavg()[0]
    if load < BUSY:
        return []
    return [f"other processes were using about {load:.1f} of the {cores} cores when it began"]
