"""`meta.search_scheduler`: by name, by block, and by the names of Ray Tune's
classes."""

import pytest

from slm_lab.spec.parse import parse
from slm_lab.spec.schema.scheduler import (
    MODELS,
    AshaSpec,
    HyperBandSpec,
    MedianStoppingSpec,
    PbtSpec,
)
from tests.support import ppo
from tests.unit.spec.problems import assert_problem

PATH = "meta.search_scheduler"


def parsed(value):
    return parse("small", ppo(meta__search_scheduler=value))


def scheduler(value):
    found = parsed(value)
    assert not found.problems
    return found.spec.meta.search_scheduler


def test_arguments_alone_are_those_of_asha():
    assert scheduler({"grace_period": 100, "reduction_factor": 3}) == AshaSpec(
        grace_period=100.0, reduction_factor=3.0
    )
    assert scheduler({}) == AshaSpec()


@pytest.mark.parametrize("name", MODELS)
def test_a_name_alone_is_a_block_of_defaults(name):
    assert scheduler(name) == scheduler({"name": name}) == MODELS[name]()
    assert scheduler(name).name == name


@pytest.mark.parametrize(
    ("of_tune", "model"),
    [
        ("ASHAScheduler", AshaSpec),
        ("AsyncHyperBandScheduler", AshaSpec),
        ("HyperBandScheduler", HyperBandSpec),
        ("MedianStoppingRule", MedianStoppingSpec),
        ("PopulationBasedTraining", PbtSpec),
    ],
)
def test_the_classes_of_tune_are_known(of_tune, model):
    assert scheduler(of_tune) == scheduler({"name": of_tune}) == model()


@pytest.mark.parametrize("name", MODELS)
def test_a_block_comes_back_from_its_json(name):
    spec = parse("small", ppo(meta__search_scheduler={"name": name})).spec
    assert parse("small", spec.to_json()).spec == spec


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (
            "ahsa",
            "meta.search_scheduler.name = 'ahsa': unknown scheduler; did you mean "
            "asha?",
        ),
        ({"name": "pbtt"}, "did you mean pbt?"),
        ({"name": 3}, "meta.search_scheduler.name = 3: "),
        (
            {"name": ["asha"]},
            "meta.search_scheduler.name = ['asha']: unknown scheduler",
        ),
        ({"name": {}}, "meta.search_scheduler.name = {}: unknown scheduler"),
        (7, "must be a block {…} or one of asha, hyperband, median_stopping, pbt"),
        (["asha"], "must be a block {…} or one of"),
        ({"name": "asha", "grace_perid": 3}, "did you mean grace_period?"),
        ({"grace_period": 0}, "meta.search_scheduler.grace_period = 0: must be > 0"),
        (
            {"reduction_factor": 1},
            "meta.search_scheduler.reduction_factor = 1: must be > 1",
        ),
        ({"max_t": -5}, "meta.search_scheduler.max_t = -5: must be > 0"),
        ({"brackets": 0}, "meta.search_scheduler.brackets = 0: must be >= 1"),
        ({"brackets": 1.5}, "meta.search_scheduler.brackets = 1.5: "),
        (
            {"name": "hyperband", "brackets": 2},
            "meta.search_scheduler.brackets = 2: unknown key",
        ),
        ({"name": "median_stopping", "min_samples_required": 0}, "must be >= 1"),
        ({"name": "pbt", "quantile_fraction": 0.6}, "must be <= 0.5"),
        ({"name": "pbt", "quantile_fraction": 0}, "must be > 0"),
        ({"name": "pbt", "resample_probability": 1.5}, "must be <= 1"),
        ({"name": "pbt", "burn_in_period": -1}, "must be >= 0"),
        ({"name": "pbt", "perturbation_factors": []}, "must be a list of numbers > 0"),
        (
            {"name": "pbt", "perturbation_factors": [1.2, 0]},
            "must be a list of numbers > 0",
        ),
        (
            {"name": "pbt", "perturbation_factors": [1.2, True]},
            "must be a list of numbers > 0",
        ),
        (
            {"name": "pbt", "perturbation_factors": ["much"]},
            "must be a list of numbers > 0",
        ),
    ],
)
def test_an_invalid_scheduler_is_refused_with_its_path(value, problem):
    assert_problem(
        ppo(meta__search_scheduler=value), f"{PATH}…{problem.removeprefix(PATH)}"
    )


def test_factors_are_numbers_however_they_are_written():
    assert scheduler(
        {"name": "pbt", "perturbation_factors": [2, 0.5]}
    ).perturbation_factors == (
        2.0,
        0.5,
    )
