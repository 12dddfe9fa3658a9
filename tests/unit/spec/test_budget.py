"""Schedules and other frames that follow the budget `env.max_frame`."""

import copy
import json
import logging
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from slm_lab.spec.budget import decays, resolved, stretched
from slm_lab.spec.json_schema import file_schema
from slm_lab.spec.limits import nodes
from slm_lab.spec.load import check_file, load_spec, load_specs, parse_spec
from slm_lab.spec.parse import parse, parse_template
from slm_lab.spec.read import shipped_files, shipped_name
from slm_lab.studies.search.space import spec_at
from tests.support import ppo, q_learning
from tests.unit.spec.spec_data import changed, fillings

TABLE = json.loads(Path(__file__).with_name("shipped_frames.json").read_text())
"""The frames that the shipped specs were measured with: {file: name: {dotted path:
frames}}."""
KEYS = ("start_step", "end_step", "frame", "training_start_step", "grace_period")
BOTH = {"env.max_frame", "meta.log_frequency"}
WARM_UP = ("agent.algorithm.training_start_step", "env.max_frame")

EPSILON = "agent.algorithm.explore_var_spec"
RATE = "agent.net.lr_scheduler_spec"
FALLING = {"name": "linear_decay", "start_val": 1.0, "end_val": 0.1}
TO_ZERO = {"name": "LinearToZero"}


def dqn(budget=10_000, epsilon=FALLING, rate=TO_ZERO):
    changes = {
        "env__max_frame": budget,
        "agent__algorithm__explore_var_spec": epsilon,
        "agent__net__lr_scheduler_spec": rate,
    }
    return copy.deepcopy(q_learning("DQN", **changes))


def ends(raw):
    """The ends of all schedules of a raw spec, by their paths."""
    data = parse_spec("s", raw).to_json()
    return {decay.end_path: decay.end for decay in decays(data)}


def problem(raw):
    """The only problem of a spec."""
    (found,) = parse("s", raw).problems
    return found


@pytest.mark.parametrize("file", shipped_files(), ids=lambda file: file.stem)
def test_with_its_own_budget_every_shipped_spec_has_the_frames_it_was_measured_with(
    file,
):
    for name, spec in load_specs(file, fillings(file)).items():
        frames = {
            path: value
            for path, value in nodes(spec.to_json())
            if (path in BOTH or path.rpartition(".")[2] in KEYS) and value
        }
        assert frames == TABLE[f"{shipped_name(file)}: {name}"], name


def test_the_table_of_frames_has_no_file_that_is_gone():
    shipped = {shipped_name(file) for file in shipped_files()}
    assert {key.partition(": ")[0] for key in TABLE} == shipped


@pytest.mark.parametrize("file", shipped_files(), ids=lambda file: file.stem)
@pytest.mark.parametrize("part", [10, 100])
def test_a_shorter_budget_alone_shortens_all_of_a_shipped_spec_without_a_word(
    file, part
):
    for name, whole in load_specs(file, fillings(file)).items():
        budget = whole.env.max_frame // part
        sets = [*fillings(file), f"env.max_frame={budget}"]
        (short,) = [
            one for one in check_file(file, sets) if one.where.endswith(f": {name}")
        ]
        # A hundredth may end before anything is learned, and then it is refused
        # rightly.
        known = WARM_UP
        if part != 100:
            known = ()
        words = [str(each) for each in short.problems or short.suspicious]
        assert not [each for each in words if not each.startswith(known)]
        if short.spec is not None:
            old = whole.to_json()
            new = short.spec.to_json()
            ratio = {
                path: frame
                for decay in decays(new)
                for path, frame in decay.frames.items()
            }
            expected = stretched(old, whole.env.max_frame, budget)
            assert ratio == pytest.approx(expected, abs=1)


def test_a_schedule_without_an_end_ends_with_the_budget():
    for end in ({}, {"end_step": None}):
        rate = {**TO_ZERO, **({"frame": None} if end else {})}
        raw = dqn(30_000, {**FALLING, **end}, rate)
        assert ends(raw) == {f"{EPSILON}.end_step": 30_000, f"{RATE}.frame": 30_000}


@pytest.mark.parametrize(
    ("share", "frames"),
    [
        ("16%", 1600),
        ("12.5%", 1250),
        ("100%", 10_000),
        ("33.3333%", 3333),
        ("0.001%", 1),
    ],
)
def test_a_share_is_a_spec_with_the_frames_that_it_stands_for(share, frames):
    def spec(given):
        epsilon = {**FALLING, "start_step": given, "end_step": given}
        raw = dqn(
            10_000, epsilon, {"name": "LinearToMin", "frame": given, "min_factor": 0.5}
        )
        raw["meta"]["search_scheduler"] = {
            "name": "asha",
            "grace_period": given,
            "max_t": given,
        }
        return parse_spec("s", raw)

    assert spec(share) == spec(frames)
    assert "%" not in json.dumps(spec(share).to_json())
    assert parse_spec("s", spec(share).to_json()) == spec(share)


@pytest.mark.parametrize(
    "key",
    [
        f"{EPSILON}.start_step",
        f"{EPSILON}.end_step",
        f"{RATE}.frame",
        "agent.algorithm.training_start_step",
        "meta.search_scheduler.grace_period",
    ],
)
@pytest.mark.parametrize(
    "bad", ["0%", "120%", "-5%", "16", "%", "1e1%", "16 %", "half"]
)
def test_a_bad_share_is_one_clear_line(key, bad):
    raw = dqn()
    raw["meta"]["search_scheduler"] = {"name": "asha"}
    *parents, last = key.split(".")
    block = raw
    for parent in parents:
        block = block[parent]
    block[last] = bad
    assert str(problem(raw)) == (
        f"{key} = '{bad}': must be frames, or a share of env.max_frame > 0% and <= "
        '100%, as "16%"'
    )


def test_a_change_that_begins_after_its_end_is_refused_where_it_begins():
    found = problem(dqn(30_000, {**FALLING, "start_step": 40_000}))
    assert str(found) == f"{EPSILON}.start_step = 40000: must be <= end_step (30000)"


def test_shares_are_no_problem_of_a_spec_whose_budget_is_one():
    for budget in (None, "many", -1, True):
        epsilon = {**FALLING, "start_step": "10%", "end_step": 100}
        raw = dqn(budget, epsilon, {**TO_ZERO, "frame": "80%"})
        paths = {problem.path for problem in parse("s", raw).problems}
        assert paths <= {"env.max_frame"}, budget
    template = parse_template("s", dqn("${budget}", {**FALLING, "start_step": "10%"}))
    assert template.problems == []


def test_the_schedule_of_a_plug_in_follows_the_budget():
    noise = {"mine": [{"noise": {**FALLING, "end_step": "20%"}}, FALLING]}
    found = resolved({"env": {"max_frame": 500}, "agent": {"algorithm": noise}})
    first, second = found["agent"]["algorithm"]["mine"]
    assert (first["noise"]["end_step"], second["end_step"]) == (100, 500)


def test_constant_values_and_schedulers_of_torch_have_no_end():
    constant = {"name": "linear_decay", "start_val": 0.1, "end_val": 0.1}
    cosine = {"name": "CosineAnnealingLR", "T_max": 1000}
    assert ends(dqn(10_000, constant, cosine)) == {}
    assert (
        ends(
            dqn(
                10_000,
                {"start_val": 0.1},
                {**TO_ZERO, "name": "LinearToMin", "min_factor": 1},
            )
        )
        == {}
    )


def test_a_trial_with_another_budget_keeps_the_shares():
    base = parse_spec(
        "s", dqn(10_000, {**FALLING, "end_step": "16%"}, {**TO_ZERO, "frame": 80_000})
    )
    trial = spec_at(base, {"env.max_frame": 50_000})
    assert ends(trial.to_json()) == {
        f"{EPSILON}.end_step": 8_000,
        f"{RATE}.frame": 80_000,
    }
    own = spec_at(base, {"env.max_frame": 50_000, f"{EPSILON}.end_step": "50%"})
    assert ends(own.to_json())[f"{EPSILON}.end_step"] == 25_000
    assert spec_at(
        base, {f"{EPSILON}.end_step": "50%"}
    ).agent.algorithm.explore_var_spec == (
        parse_spec(
            "s", dqn(10_000, {**FALLING, "end_step": 5_000})
        ).agent.algorithm.explore_var_spec
    )


def test_a_search_over_shares_is_checked_as_any_other():
    raw = dqn()
    raw["search"] = {f"{EPSILON}.end_step__choice": ["10%", "50%"]}
    assert parse("s", raw).problems == []
    raw["search"] = {f"{EPSILON}.end_step__choice": ["10%", "150%"]}
    assert "must be frames, or a share" in problem(raw).message


def test_the_json_schema_knows_shares():
    validator = Draft202012Validator(file_schema())
    good = dqn(10_000, {**FALLING, "end_step": "16%"}, {**TO_ZERO, "frame": "80%"})
    assert validator.is_valid({"s": good})
    assert validator.is_valid({"s": dqn()})
    assert not validator.is_valid({"s": dqn(10_000, {**FALLING, "end_step": "16"})})


def test_frames_of_the_file_that_a_shorter_budget_cuts_off_are_suspicious(
    tmp_path, caplog
):
    file = tmp_path / "s.json"
    file.write_text(json.dumps({"s": dqn(10_000, {**FALLING, "end_step": 9_000})}))
    assert check_file(file)[0].suspicious == []
    (checked,) = check_file(file, ["env.max_frame=5000"])
    (line,) = [each for each in checked.suspicious if each.startswith(EPSILON)]
    assert line.startswith(
        f"{EPSILON}.end_step = 9000: comes after the end of the run; leave"
    )
    typed = ["env.max_frame=5000", f"{EPSILON}.end_step=9000"]
    for sets in (
        typed,
        ["env.max_frame=5000", f"{EPSILON}.end_step=50%"],
        ["env.max_frame=9000"],
    ):
        assert not [
            each
            for each in check_file(file, sets)[0].suspicious
            if "comes after" in each
        ]


def test_a_shorter_budget_alone_has_two_hundred_rows_and_a_line_says_so(
    tmp_path, caplog
):
    file = tmp_path / "s.json"
    raw = changed(ppo(), env__max_frame=200_000, meta__log_frequency=500)
    file.write_text(json.dumps({"s": raw}))
    with caplog.at_level(logging.INFO):
        short = load_spec(file, sets=["env.max_frame=8000"])
    assert short.meta.log_frequency == 40
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage() == (
        "s.json: meta.log_frequency = 40: the file's 500 leaves too few rows of 8,000 "
        "frames"
    )
    for sets in (
        [],
        ["env.max_frame=100000"],
        ["env.max_frame=8000", "meta.log_frequency=500"],
    ):
        assert load_spec(file, sets=sets, warn=False).meta.log_frequency == 500
