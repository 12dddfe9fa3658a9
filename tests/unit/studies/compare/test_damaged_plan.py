"""Plan files that are JSON, but not what the lab has written: one error says what to
do."""

import json
import re
from copy import deepcopy

import pytest

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.process import usable_cores
from slm_lab.records.comparison import AB, COMPARE, KINDS, TREAT
from slm_lab.records.origin import processor
from slm_lab.studies.ab.run import AbRun
from slm_lab.studies.ab.verdict import StoppingRule
from slm_lab.studies.compare.folder import allowed_imports, read_plan
from slm_lab.studies.compare.plan import Plan
from slm_lab.studies.compare.run import CompareRun
from slm_lab.studies.treat.plan import Treatment
from tests.support import parse, ppo
from tests.unit.records.runs import TERMS

NO_VALUES = (None, True, -1, 2.5, "x", [], [None], {}, {"a": {}})
"""Values of many kinds; at each key of a plan most of them are wrong."""
NEVER_READ = ("git_sha", "packages", "python", "command", "started", "random_seed")
"""Keys about the origin of a plan."""
OF_THE_FOLDER = ("kind", "format")
"""Keys whose errors speak of the folder; other commands and versions read it."""
OF_THE_MACHINE = ("usable_cores", "processor")
"""Keys whose errors may speak of another machine."""


@pytest.fixture(params=KINDS, ids=lambda kind: kind.word)
def plan(request):
    """A plan of two specs."""
    return Plan(
        kind=request.param,
        name="small",
        specs={label: parse(ppo(), f"small_{label.lower()}") for label in "AB"},
        seeds=tuple(range(10)),
        threshold=None,
        cores=usable_cores(),
        processor=processor(),
        imports=(),
        notes=("a note",),
        terms=TERMS[request.param.word],
    )


def open_once(folder, kind):
    """Opens the comparison as its command resumes it."""
    allowed_imports(folder, (), trust=False)
    if kind is TREAT:
        Treatment.of(read_plan(folder, TREAT, terms=Treatment))
        return
    run = {COMPARE: CompareRun, AB: AbRun}[kind].resume(folder)
    run._lock.release()


def refusal(folder, kind):
    """The message with which the comparison is refused; empty if it opens."""
    try:
        open_once(folder, kind)
    except LabError as error:
        return str(error)
    return ""


def damages(block, path=()):
    """Copies of a block in which a key lacks or has another value, with its path."""
    items = block.items() if isinstance(block, dict) else enumerate(block)
    for key, value in items:
        here = (*path, key)
        if key in NEVER_READ:
            continue
        if isinstance(block, dict):
            yield here, {name: part for name, part in block.items() if name != key}
        for other in NO_VALUES:
            changed = deepcopy(block)
            changed[key] = other
            yield here, changed
        if isinstance(value, dict | list):
            for inner, damaged in damages(value, here):
                changed = deepcopy(block)
                changed[key] = damaged
                yield inner, changed


@pytest.mark.medium
def test_a_plan_with_a_key_changed_opens_or_is_refused_in_one_error(plan, tmp_path):
    content = json.loads(json.dumps(plan.to_json()))
    file = plan.file(tmp_path)
    refused = 0
    for path, damaged in damages(content["_compare"]):
        file.write_text(json.dumps(content | {"_compare": damaged}))
        message = refusal(tmp_path, plan.kind)
        key = next(part for part in reversed(path) if isinstance(part, str))
        is_named = key in (*OF_THE_FOLDER, *OF_THE_MACHINE) or key in message
        assert is_named or not message, (path, message)
        refused += bool(message)
    assert refused > 80


WRONG = {
    "no seeds": ({"seeds": ...}, "seeds: is missing"),
    "an empty list of seeds": ({"seeds": []}, "seeds = []: must have at least 1"),
    "a seed that is a word": ({"seeds": [0, "x"]}, "seeds.1 = 'x': must be a whole"),
    "no machine": ({"machine": "fast"}, "machine = 'fast': must be a block"),
    "variants that are a block": ({"variants": {}}, "variants = {}: must be a list"),
    "a variant without a spec": (
        {"variants": [{"spec": "gone"}]},
        "variants.0.spec = 'gone': must be the name of a spec in the file",
    ),
    "another name": ({"name": "other"}, "name = 'other': must be the name in"),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_error_names_file_key_and_fix(plan, what, tmp_path):
    changes, problem = WRONG[what]
    content = plan.to_json()
    block = content["_compare"] | changes
    content["_compare"] = {key: block[key] for key in block if block[key] is not ...}
    file = plan.file(tmp_path)
    file.write_text(json.dumps(content))
    with pytest.raises(UsageError) as error:
        open_once(tmp_path, plan.kind)
    expected = (
        rf"{re.escape(str(file))} is damaged: _compare\.{re.escape(problem)}.*; "
        "put back the file, or begin a new comparison"
    )
    assert re.fullmatch(expected, str(error.value))


TERMS_WRONG = {
    "a confidence of 2": (AB, StoppingRule, {"confidence": 2.0}, "confidence = 2.0"),
    "no smallest": (AB, StoppingRule, {"smallest": ...}, "smallest: is missing"),
    "no remedies": (TREAT, Treatment, {"remedies": ...}, "remedies: is missing"),
    "a remedy that is text": (
        TREAT,
        Treatment,
        {"remedies": ["lr"]},
        "remedies.0 = 'lr'",
    ),
}


@pytest.mark.parametrize("what", TERMS_WRONG)
def test_what_only_a_kind_has_is_checked_too(what, plan, tmp_path):
    kind, terms, changes, problem = TERMS_WRONG[what]
    changed = TERMS[kind.word] | changes
    known = {key: value for key, value in changed.items() if value is not ...}
    plan = plan._replace(kind=kind, terms=known)
    plan.file(tmp_path).write_text(json.dumps(plan.to_json()))
    with pytest.raises(UsageError, match=rf"_compare\.{kind.terms_key}\.{problem}"):
        read_plan(tmp_path, kind, terms=terms)


def test_a_test_of_two_specs_has_an_a_and_a_b(plan, tmp_path):
    a, _ = plan.specs.values()
    plan = plan._replace(kind=AB, specs={"A": a}, terms=TERMS["ab"])
    plan.file(tmp_path).write_text(json.dumps(plan.to_json()))
    with pytest.raises(UsageError, match=r"variants = \['A'\]: must be labelled A and"):
        AbRun.resume(tmp_path)
