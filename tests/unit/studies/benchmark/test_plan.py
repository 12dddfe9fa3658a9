"""Which results of earlier times belong to a row."""

import pytest

from slm_lab.studies.benchmark.plan import PlannedRow, without_seed
from tests.support import parse, ppo
from tests.unit.studies.benchmark.records import record

SPEC = parse(ppo())
ROW = PlannedRow(
    name="small", method="PPO", source=None, spec=SPEC, seeds=(1,), bound=None
)


def spec_without(key):
    content = without_seed(SPEC)
    del content["meta"][key]
    return content


def test_a_result_of_a_version_without_a_key_has_its_default():
    assert ROW.is_result(record(spec=spec_without("keep_checkpoints")))


@pytest.mark.parametrize("frames", [0, 99])
def test_a_result_with_another_value_is_one_of_another_spec(frames):
    content = without_seed(SPEC)
    assert ROW.is_result(record(spec=content))
    content["env"]["max_frame"] = frames
    assert not ROW.is_result(record(spec=content))


def test_a_result_without_a_spec_is_one_of_another():
    assert not ROW.is_result(record())
