"""Which folder a treatment is resumed in, and when none is begun."""

import json

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.records.comparison import TREAT
from slm_lab.studies.compare.folder import CompareFolder
from slm_lab.studies.compare.plan import Plan
from slm_lab.studies.treat.run import TreatRun
from tests.support import parse, ppo
from tests.unit.records.runs import TERMS


@pytest.fixture
def plan():
    return Plan(
        kind=TREAT,
        name="ill",
        specs={"env.max_t=null": parse(ppo(), "ill_0")},
        seeds=(0,),
        threshold=None,
        cores=1,
        processor="a CPU",
        imports=(),
        notes=(),
        terms=TERMS["treat"],
    )


def begun(plan, data):
    """The folder in which the treatment begins or is resumed."""
    run = TreatRun.open(plan, data, jobs=1)
    run._lock.release()
    return run.folder


def rewrite(plan, folder, **changes):
    """Changes keys of the plan's block in a folder."""
    file = plan.file(folder)
    content = json.loads(file.read_text())
    content["_compare"] |= changes
    file.write_text(json.dumps(content))


def test_the_same_plan_is_resumed_and_another_one_begun(plan, tmp_path):
    data = tmp_path / "data"
    folder = CompareFolder.create(data, plan).path
    assert begun(plan, data) == folder
    longer = plan._replace(terms=plan.terms | {"frames": 5000})
    assert begun(longer, data) != folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "duel"}, r"of the kind 'duel'.*update slm-lab$"),
        ({"seeds": "many"}, r"_compare\.seeds = 'many': must be a list; put back"),
        ({"treatment": {}}, r"_compare\.treatment\.run: is missing; put back"),
    ],
)
def test_none_is_begun_beside_a_plan_that_cannot_be_read(
    plan, changes, message, tmp_path
):
    folder = CompareFolder.create(tmp_path, plan).path
    rewrite(plan, folder, **changes)
    with pytest.raises(UsageError, match=message) as error:
        TreatRun.open(plan, tmp_path, jobs=1)
    assert str(folder) in str(error.value)
    assert "\n" not in str(error.value)
    assert [*tmp_path.iterdir()] == [folder]


def test_one_is_begun_beside_a_plan_of_an_older_format(plan, tmp_path):
    folder = CompareFolder.create(tmp_path, plan).path
    rewrite(plan, folder, format=1)
    assert begun(plan, tmp_path) != folder
