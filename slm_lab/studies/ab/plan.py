"""The plan of a test of A against B: the two specs, and when the test ends."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from slm_lab.charts.statistics import CONFIDENCE
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.core.recorded import differences
from slm_lab.records.comparison import AB
from slm_lab.records.origin import processor
from slm_lab.records.run_source import RunSource
from slm_lab.spec.load import warnings_held
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.ab.verdict import StoppingRule, Verdict
from slm_lab.studies.compare.plan import Plan, consecutive_seeds
from slm_lab.studies.one_training import one_training

LABELS = ("A", "B")
"""The labels of the two specs."""
DEFAULT_SEEDS = 20
"""The most seeds of each spec, unless the user says otherwise."""
MUST_AGREE = ("env.name", "env.max_frame")
"""Keys without which two final returns are not comparable."""
NAMES_AND_SEED = ("name", "agent.name", "meta.random_seed")
"""Keys that change nothing about what a spec is."""
MOST_DIFFERENCES = 6
"""The most keys of B that a line names."""


class AbRequest(NamedTuple):
    """The options of the user's command; None: a default."""

    a: RunSource
    """A; `run` is the folder of a test to resume, `data_dir` the folder for a new
    one."""
    b: RunSource
    seeds: int | None = None
    """The most seeds of each."""
    smallest: float | None = None
    """A difference in the final return that does not matter yet."""
    confidence: float | None = None
    jobs: int | None = None
    """The most cores to use; None: all."""


@warnings_held()
def make_plan(request: AbRequest) -> Plan:
    """The plan of a new test. Raises UsageError, or SpecError with every problem of a
    spec, before anything runs."""
    rule = _rule(request)
    allowed = request.seeds or DEFAULT_SEEDS
    check_enough(allowed, rule)
    sources = [replace(source, seed=None) for source in (request.a, request.b)]
    _reject_cluster(sources)
    specs = [one_training(source)[1] for source in sources]
    _check_comparable(*specs)
    names = list(dict.fromkeys(spec.name for spec in specs))
    return Plan(
        kind=AB,
        name="_vs_".join(names),
        specs={
            label: _named(spec, f"{spec.name}_{label.lower()}")
            for label, spec in zip(LABELS, specs, strict=True)
        },
        seeds=consecutive_seeds(request.a.seed, specs[0], allowed),
        threshold=None,
        cores=usable_cores(),
        processor=processor(),
        imports=tuple(dict.fromkeys([*request.a.imports, *request.b.imports])),
        notes=(),
        terms=rule._asdict(),
    )


def rule_of(plan: Plan) -> StoppingRule:
    """When the test of a plan ends; its `seeds` are the most that it may use."""
    return StoppingRule(**plan.terms)


def _named(spec: Spec, name: str) -> Spec:
    """The spec under another name: both must fit into one file."""
    renamed = parse(name, spec.to_json()).for_training().spec
    assert renamed is not None
    return renamed


def _rule(request: AbRequest) -> StoppingRule:
    """The rule by which the test ends. Raises UsageError."""
    confidence = request.confidence
    if confidence is None:
        confidence = CONFIDENCE
    if not 0.5 <= confidence < 1:
        raise UsageError(
            f"--confidence {confidence:g}: must be at least 0.5 and below 1; 0.95 is "
            "usual"
        )
    smallest = request.smallest
    if smallest is not None and not 0 < smallest < math.inf:
        raise UsageError(
            f"--smallest {smallest:g}: must be a difference in the final return above 0"
        )
    return StoppingRule(confidence, smallest)


def check_enough(allowed: int, rule: StoppingRule) -> None:
    """Raises UsageError if so many seeds of each can answer nothing."""
    needed = Verdict([], rule, pairs_left=allowed).further
    if allowed < needed:
        raise UsageError(
            f"--seeds {allowed}: with a confidence of {rule.confidence:g} nothing is "
            f"known before {needed} seeds of each; allow at least {needed}"
        )


def _reject_cluster(sources: Sequence[RunSource]) -> None:
    """Raises SpecError for a spec that trains on a cluster."""
    for source in sources:
        spec = source.load(warn=False)
        if spec.meta.cluster is not None:
            message = "a test trains on this machine; add --both meta.cluster=null"
            raise SpecError.of(source.where(spec), "meta.cluster", message)


def _check_comparable(a: Spec, b: Spec) -> None:
    """Raises SpecError unless the final returns of two specs can be compared, and
    differ in more than the seed."""
    differing = differing_keys(a, b)
    problems = [
        Problem(key, f"must be that of A, {differing[key][0]!r}", differing[key][1])
        for key in MUST_AGREE
        if key in differing
    ]
    if problems:
        raise SpecError("B", problems)
    if not differing:
        raise UsageError(
            "A and B are the same spec: name a second one, or change a key of B with -s"
        )


def differing_keys(a: Spec, b: Spec) -> dict[str, tuple[object, object]]:
    """The values of A and of B by the keys in which they differ, but for names and the
    seed."""
    return {
        key: (before, after)
        for key, before, after in differences(a.to_json(), b.to_json())
        if key not in NAMES_AND_SEED
    }


def difference_text(a: Spec, b: Spec) -> str:
    """What makes B of A, in a line; of very different specs only how many keys."""
    differing = differing_keys(a, b)
    if len(differing) > MOST_DIFFERENCES:
        algorithms = (a.agent.algorithm.name, b.agent.algorithm.name)
        count = f"B differs from A in {len(differing)} keys"
        return f"A is {algorithms[0]}, B is {algorithms[1]}; {count}"
    texts = [
        f"{key} {json.dumps(after)} (A: {json.dumps(before)})"
        for key, (before, after) in differing.items()
    ]
    return f"B has {', '.join(texts)}"
