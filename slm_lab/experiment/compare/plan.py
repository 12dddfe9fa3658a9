"""The plan of a comparison: one spec for each variant, and the seeds.

The variants differ only in `meta.distributed`, `meta.max_session` and values derived
from these."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slm_lab.charts.speeds import BASELINE, Variant
from slm_lab.core.errors import MissingRunError, Problem, SpecError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.experiment.run import check_machine, check_spaces
from slm_lab.experiment.run_source import RunSource
from slm_lab.experiment.trust import (
    check_allowed,
    check_cluster_allowed,
    named_by,
    recorded_imports,
)
from slm_lab.session.seeding import draw_root_seed
from slm_lab.spec.checks.nets import GLOBAL_TWIN
from slm_lab.spec.load import load_specs
from slm_lab.spec.modes import MODES, mode_of
from slm_lab.spec.override import Setting, apply_settings
from slm_lab.spec.parse import Parsed, parse
from slm_lab.spec.read import read_file
from slm_lab.spec.role import optimizer_paths
from slm_lab.spec.schema.messages import not_among
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.origin import check_format
from slm_lab.storage.provenance import processor, provenance
from slm_lab.storage.run_dir import PLAN_BLOCK, PLAN_FILE, safe_name

logger = logging.getLogger(__name__)

BUSY = 0.5
"""The load of other processes, in cores, from which on a note reports it."""


class CompareRequest(NamedTuple):
    """The options of the user's command; None: a default for this machine."""

    source: RunSource
    """The spec; `seed` is the first one."""
    modes: tuple[str, ...] | None
    workers: tuple[int, ...] | None
    seeds: int
    threshold: float | None = None


class Plan(NamedTuple):
    """The variants of a comparison and their machine; the baseline's spec comes
    first."""

    name: str
    specs: Mapping[Variant, Spec]
    seeds: tuple[int, ...]
    threshold: float | None
    cores: int
    processor: str
    imports: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def baseline(self) -> Spec:
        """The spec of the variant with one process."""
        return next(iter(self.specs.values()))

    def file(self, folder: Path) -> Path:
        """The plan file in the folder of the comparison."""
        return folder / PLAN_FILE.format(safe_name(self.name))

    def to_json(self) -> dict[str, Any]:
        """The content of the plan file: every variant's spec, and the plan's own
        block."""
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
        return {
            **{spec.name: spec.to_json() for spec in self.specs.values()},
            PLAN_BLOCK: about,
        }


def _variant(mode: str, workers: int, cores: int) -> Variant:
    has_learner = mode != BASELINE and mode_of(mode).has_learner
    return Variant(mode, workers, workers > cores, has_learner)


def make_plan(request: CompareRequest) -> Plan:
    """The plan for a request. Raises UsageError, or SpecError with every problem of any
    variant."""
    cores = usable_cores()
    workers = request.workers
    if workers is None:  # 1, 2, 4, … up to the number of cores
        workers = tuple(1 << power for power in range(cores.bit_length()))
    for mode in request.modes or ():
        if mode == BASELINE:
            message = "this is the baseline and always included; leave it out"
            raise UsageError(f"--modes false: {message}")
        if mode not in MODES.names():
            raise UsageError(f"--modes {mode}: {not_among(mode, MODES.names())}")
    alone = {"meta.distributed": False, "meta.max_session": 1, "meta.max_run": 1}
    base = request.source.load(alone)
    named = set(MODES.names() if request.modes is None else request.modes)
    optimizers, replaced = dict[str, str](), list[str]()
    if any(mode_of(word).lock_free for word in named):
        for path, optim in optimizer_paths(base.agent.net, base.agent.critic_net):
            if (twin := GLOBAL_TWIN.get(optim.name)) is not None:
                optimizers[path] = twin
                change = f"{path}: {optim.name} replaced by {twin} in all variants"
                replaced.append(f"{change}, because modes without a lock need it")
    modes, left_out = request.modes, list[str]()
    if modes is None:
        modes, left_out = _possible_modes(base, workers, optimizers)
    where = request.source.where(base)
    if base.meta.cluster is not None:
        message = (
            "a comparison measures this machine; leave it out with -s meta.cluster=null"
        )
        raise SpecError(where, [Problem("meta.cluster", message, base.meta.cluster)])
    parallel = (_variant(mode, count, cores) for mode in modes for count in workers)
    variants = [Variant(BASELINE, 1), *parallel]
    specs = _specs(where, base, variants, optimizers)
    check_spaces(where, base)
    check_machine(where, base)
    seed = base.meta.random_seed if request.source.seed is None else request.source.seed
    first = draw_root_seed() if seed is None else seed
    seeds, notes = range(first, first + request.seeds), (*replaced, *left_out)
    if (load := os.getloadavg()[0]) >= BUSY:
        busy = f"about {load:.1f} of the {cores} cores when the comparison began"
        notes = (*notes, f"other processes used {busy}")
    machine, imports = (cores, processor()), request.source.imports
    return Plan(
        base.name, specs, tuple(seeds), request.threshold, *machine, imports, notes
    )


def read_plan(
    folder: Path, imports: tuple[str, ...] = (), to_resume: bool = True
) -> Plan:
    """The plan in the folder of a comparison. Its plug-ins must be imported. Raises
    SpecError. Raises UsageError without a plan of this format. `to_resume` raises it
    also if the comparison was begun on another machine, because speeds are not
    comparable, and warns of suspicious keys.
    """
    file, about = _plan_block(folder)
    check_format(folder, about.get("format"))
    specs = load_specs(file, warn=to_resume)
    for spec in specs.values() if to_resume else ():
        check_cluster_allowed(folder, spec, ())
    cores, named = int(about["usable_cores"]), str(about["machine"]["processor"])
    here = (usable_cores(), processor())
    if to_resume and here != (cores, named):
        raise UsageError(
            f"{folder} was begun on {cores} cores of {named}, this machine has "
            f"{here[0]} of {here[1]}: a comparison can only be resumed on the same "
            "machine; begin a new one"
        )
    found = {
        _variant(each["mode"], each["workers"], cores): specs[each["spec"]]
        for each in about["variants"]
    }
    seeds, notes = tuple(about["seeds"]), tuple(about["notes"])
    return Plan(
        about["name"], found, seeds, about["threshold"], cores, named, imports, notes
    )


def allowed_imports(folder: Path, given: Sequence[str], trust: bool) -> tuple[str, ...]:
    """The modules that a comparison was begun with, and `given`; with `trust` all that
    it names. Raises UsageError for a module that the user has not allowed;
    SpecError."""
    file, _ = _plan_block(folder)
    named = named_by([file], PLAN_BLOCK)
    allowed = (*given, *named) if trust else tuple(given)
    check_allowed(folder, named, allowed)
    return tuple(
        dict.fromkeys([*recorded_imports(file, read_file(file), PLAN_BLOCK), *allowed])
    )


def _plan_block(folder: Path) -> tuple[Path, dict[str, Any]]:
    if not folder.is_dir():
        raise MissingRunError(f"there is no folder {folder}")
    files = sorted(folder.glob(PLAN_FILE.format("*")))
    about = read_file(files[0]).get(PLAN_BLOCK) if len(files) == 1 else None
    if not isinstance(about, dict):
        lacks = f"it has no {PLAN_FILE.format('*')}"
        raise UsageError(f"{folder} is not the folder of a comparison: {lacks}")
    return files[0], about


def _specs(
    where: str, base: Spec, variants: Sequence[Variant], optimizers: Mapping[str, str]
) -> dict[Variant, Spec]:
    """A spec for each variant. Raises SpecError with the problems of all. Warns of
    suspicious keys of the other variants. Those of the baseline were reported at
    loading."""
    parsed = {variant: _parsed(base, variant, optimizers) for variant in variants}
    if problems := {
        str(problem): problem for each in parsed.values() for problem in each.problems
    }:
        raise SpecError(where, list(problems.values()))
    reported: set[str] = set()
    for variant, each in parsed.items():
        suspicious = [
            suspicion for suspicion in each.suspicious if suspicion not in reported
        ]
        if suspicious and variant.mode != BASELINE:
            logger.warning(
                "%s: suspicious setting: %s", variant.label, "; ".join(suspicious)
            )
        reported.update(suspicious)
    return {
        variant: each.spec for variant, each in parsed.items() if each.spec is not None
    }


def _parsed(base: Spec, variant: Variant, optimizers: Mapping[str, str]) -> Parsed:
    settings = [Setting(f"{path}.name", name) for path, name in optimizers.items()]
    name = f"{base.name}_{variant.mode}"
    if variant.mode != BASELINE:
        name = f"{name}_{variant.workers}"
        settings.append(Setting("meta.distributed", variant.mode))
        settings.append(Setting("meta.max_session", variant.workers))
        if base.logs_by_default:
            # the default of its share
            settings.append(Setting("meta.log_frequency", None))
    data, found = apply_settings(base.to_json(), settings, dict)
    parsed = parse(name, data).for_training()
    return parsed._replace(problems=[*found, *parsed.problems])


def _possible_modes(
    base: Spec, workers: Sequence[int], optimizers: Mapping[str, str]
) -> tuple[tuple[str, ...], list[str]]:
    """The parallel modes that suit the spec, and a note on why each other mode does
    not."""
    possible, notes = [], []
    for mode in MODES.names():
        variants = [Variant(mode, count) for count in workers]
        if problems := [
            p for each in variants for p in _parsed(base, each, optimizers).problems
        ]:
            notes.append(f"{mode} is left out: {problems[0]}")
        else:
            possible.append(mode)
    return tuple(possible), notes
