"""The plan that compares modes of parallel training: one process, and each mode with
each number of workers.

The variants differ only in `meta.distributed`, `meta.max_session` and values derived
from these."""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slm_lab.charts.speeds import BASELINE, Way
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.records.comparison import COMPARE
from slm_lab.records.origin import processor
from slm_lab.records.run_source import RunSource
from slm_lab.spec.checks.nets import GLOBAL_TWIN
from slm_lab.spec.load import warnings_held
from slm_lab.spec.modes import MODES, mode_of
from slm_lab.spec.override import Setting
from slm_lab.spec.parse import Parsed
from slm_lab.spec.schema.agent import optimizer_paths
from slm_lab.spec.schema.messages import choice_message
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.compare.plan import Plan, Variant, consecutive_seeds
from slm_lab.studies.requirements import check_machine, check_spaces

logger = logging.getLogger(__name__)

ALONE = {"meta.distributed": False, "meta.max_session": 1, "meta.max_run": 1}
"""What makes the baseline of any spec."""
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


@warnings_held()
def make_plan(request: CompareRequest) -> Plan:
    """The plan for a request. Raises UsageError, or SpecError with every problem of any
    variant, before anything runs."""
    source = request.source
    cores = usable_cores()
    if request.threshold is not None and not math.isfinite(request.threshold):
        raise UsageError(f"--threshold {request.threshold}: must be a finite return")
    modes = _modes(request)
    worker_counts = _worker_counts(request, cores)
    base = source.load(ALONE)
    where = source.where(base)
    twins = _global_twins(base, modes)
    ways = [Way(BASELINE, 1)]
    ways += [Way.on(cores, mode, count) for mode in modes for count in worker_counts]
    parsed = {way: _variant(base, way, twins).parse(base) for way in ways}
    notes = _twin_notes(twins)
    if request.modes is None:
        notes += _leave_out_unfit(parsed)
    _reject_cluster(where, base)
    specs = _specs(where, parsed)
    check_spaces(where, base)
    check_machine(where, base)
    return Plan(
        kind=COMPARE,
        name=base.name,
        specs=specs,
        seeds=consecutive_seeds(source.seed, base, request.seeds),
        threshold=request.threshold,
        cores=cores,
        processor=processor(),
        imports=source.imports,
        notes=(*notes, *_load_notes(cores)),
        terms={},
    )


def _modes(request: CompareRequest) -> Sequence[str]:
    """The modes to compare; by default all. Raises UsageError."""
    if request.modes == ():
        raise UsageError("--modes: names no mode; leave it out for all of them")
    for mode in request.modes or ():
        if mode == BASELINE:
            message = "this is the baseline and always included; leave it out"
            raise UsageError(f"--modes false: {message}")
        if mode not in MODES.names():
            raise UsageError(f"--modes {mode}: {choice_message(mode, MODES.names())}")
    if request.modes is None:
        return MODES.names()
    return request.modes


def _worker_counts(request: CompareRequest, cores: int) -> Sequence[int]:
    """The numbers of workers; by default 1, 2, 4, … up to the cores. Raises
    UsageError."""
    for count in request.workers or ():
        if count < 1:
            raise UsageError(f"--workers {count}: must be whole numbers >= 1")
    if request.workers == ():
        raise UsageError(
            "--workers: names no number; leave it out for 1, 2, 4, … up to the cores"
        )
    if request.workers is None:
        return [1 << power for power in range(cores.bit_length())]
    return request.workers


class _Twin(NamedTuple):
    """An optimizer, and its twin that needs no lock."""

    path: str
    """The key of the optimizer in the spec."""
    name: str
    twin: str


def _global_twins(base: Spec, modes: Sequence[str]) -> list[_Twin]:
    """The optimizers to be replaced in all variants, because a mode needs it."""
    if not any(mode_of(mode).lock_free for mode in modes):
        return []
    optimizers = [
        whole.stepping(path)
        for path, whole in optimizer_paths(base.agent.net, base.agent.critic_net)
    ]
    by_path = {path: optimizer.name for path, optimizer in optimizers}
    return [
        _Twin(path, name, GLOBAL_TWIN[name])
        for path, name in by_path.items()
        if name in GLOBAL_TWIN
    ]


def _twin_notes(twins: Sequence[_Twin]) -> list[str]:
    return [
        f"{twin.path}: {twin.name} replaced by {twin.twin} in all variants, because "
        "modes without a lock need it"
        for twin in twins
    ]


def _variant(base: Spec, way: Way, twins: Sequence[_Twin]) -> Variant:
    """The changes that make the spec train in this way."""
    changes = [Setting(f"{twin.path}.name", twin.twin) for twin in twins]
    name = f"{base.name}_{way.mode}"
    if way.mode != BASELINE:
        name = f"{name}_{way.workers}"
        changes.append(Setting("meta.distributed", way.mode))
        changes.append(Setting("meta.max_session", way.workers))
        if base.logs_by_default:
            # the default of its share
            changes.append(Setting("meta.log_frequency", None))
    return Variant(way.label, name, tuple(changes))


def _leave_out_unfit(parsed: dict[Way, Parsed]) -> list[str]:
    """Removes each mode that the spec does not allow; returns a note about each."""
    reasons: dict[str, Problem] = {}
    for way, content in parsed.items():
        if way.mode != BASELINE and content.problems:
            reasons.setdefault(way.mode, content.problems[0])
    for way in list(parsed):
        if way.mode in reasons:
            del parsed[way]
    return [f"{mode} is left out: {reason}" for mode, reason in reasons.items()]


def _reject_cluster(where: str, base: Spec) -> None:
    """Raises SpecError for a spec that trains on a cluster."""
    if base.meta.cluster is None:
        return
    message = (
        "a comparison measures this machine; leave it out with -s meta.cluster=null"
    )
    raise SpecError.of(where, "meta.cluster", message, base.meta.cluster)


def _specs(where: str, parsed: Mapping[Way, Parsed]) -> dict[str, Spec]:
    """The specs of the variants by label. Raises SpecError with the problems of all.
    Warns once of each suspicious key, except in the baseline, whose keys were reported
    at loading."""
    problems = {
        str(problem): problem
        for content in parsed.values()
        for problem in content.problems
    }
    if problems:
        raise SpecError(where, list(problems.values()))
    specs = {}
    reported: set[str] = set()
    for way, content in parsed.items():
        suspicious = [text for text in content.suspicious if text not in reported]
        if suspicious and way.mode != BASELINE:
            texts = "; ".join(suspicious)
            logger.warning("%s: suspicious setting: %s", way.label, texts)
        reported.update(suspicious)
        assert content.spec is not None
        specs[way.label] = content.spec
    return specs


def _load_notes(cores: int) -> list[str]:
    """A note if the machine was busy."""
    load = os.getloadavg()[0]
    if load < BUSY:
        return []
    return [
        f"processes used about {load:.1f} of the {cores} cores in the minute before "
        "the comparison"
    ]
