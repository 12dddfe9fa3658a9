"""Which results of earlier times belong to a row."""

import pytest

from slm_lab.records.training_record import write_record
from slm_lab.studies.benchmark.plan import BenchmarkPlan, PlannedRow, drop_seed
from slm_lab.studies.benchmark.published import scores_for
from slm_lab.studies.benchmark.results import row_results
from tests.support import parse, ppo
from tests.unit.studies.benchmark.records import record

SPEC = parse(ppo())
ROW = PlannedRow(
    name="small", method="PPO", source=None, spec=SPEC, seeds=(1,), bound=None
)


def spec_without(key):
    content = drop_seed(SPEC)
    del content["meta"][key]
    return content


def test_a_result_of_a_version_without_a_key_has_its_default():
    assert ROW.is_result(record(spec=spec_without("keep_checkpoints")))


@pytest.mark.parametrize("frames", [0, 99])
def test_a_result_with_another_value_is_one_of_another_spec(frames):
    content = drop_seed(SPEC)
    assert ROW.is_result(record(spec=content))
    content["env"]["max_frame"] = frames
    assert not ROW.is_result(record(spec=content))


def test_a_result_without_a_spec_is_one_of_another():
    assert not ROW.is_result(record())


def test_what_a_suite_promises_is_renewed_in_its_results(tmp_path):
    content = drop_seed(SPEC)
    old = record(spec=content, row="small", seed=1, bound=300.0)
    plan = BenchmarkPlan(
        "suite", [ROW._replace(seeds=(1, 2), bound=350.0)], episodes=0, data=tmp_path
    )
    write_record(plan.folder, old)
    plan.renew_facts()
    (renewed,) = plan.records()
    assert (renewed.bound, renewed.seeds_planned) == (350.0, 2)
    assert renewed.curve == old.curve
    (row,) = row_results([renewed])
    assert (row.planned, len(row.finished)) == (2, 1)
    assert [training.seed for training in plan.to_train()] == [2]


def test_an_environment_with_arguments_has_no_published_score():
    lander = parse(ppo(env__name="LunarLander-v3", env__continuous=True))
    environments = {ROW._replace(spec=spec).environment for spec in (SPEC, lander)}
    assert environments == {"CartPole-v1", 'LunarLander-v3 {"continuous": true}'}
    assert scores_for("PPO", "LunarLander-v3", 300_000)
    assert not scores_for("PPO", 'LunarLander-v3 {"continuous": true}', 300_000)
