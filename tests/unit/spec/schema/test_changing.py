"""Numbers of a spec that may be schedules."""

import pytest

from slm_lab.agent.from_spec.schedule import ScheduledNumbers
from slm_lab.core.errors import SpecError
from slm_lab.spec.budget import stretched
from slm_lab.spec.load import parse_spec
from slm_lab.spec.scale import scaled
from tests.contract.parts_table import decay
from tests.support import parse, ppo, q_learning, soft

GAMMA = decay(0.9, 0.99)


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ({"gamma": decay(0.9, 1.5)}, "gamma.end_val", "must be <= 1"),
        ({"gamma": decay(-1, 1)}, "gamma.start_val", "must be >= 0"),
        ({"gamma": {**GAMMA, "end_val": None}}, "gamma.end_val", "linear_decay needs"),
        ({"gamma": {**GAMMA, "name": "cosine"}}, "gamma.name", '"linear_decay"'),
        ({"gamma": {"name": "no_decay"}}, "gamma.start_val", "is missing"),
        ({"gamma": {"start_val": "0.9"}}, "gamma.start_val", "must be a number"),
        ({"gamma": {**GAMMA, "start": 3}}, "gamma.start", "did you mean start_val?"),
        ({"training_epoch": decay(4, 1)}, "training_epoch", "gamma, lam, val_loss"),
        ({"clip_eps_spec": -0.1}, "clip_eps_spec.start_val", "must be >= 0"),
    ],
)
def test_a_wrong_schedule_is_refused_at_its_key(keys, path, words):
    data = ppo()
    data["agent"]["algorithm"] |= keys
    with pytest.raises(SpecError) as error:
        parse_spec("small", data)
    problems = [str(problem) for problem in error.value.problems]
    assert len(problems) == 1
    assert problems[0].startswith(f"agent.algorithm.{path}")
    assert words in problems[0]


def test_a_schedule_of_the_learning_rate_is_led_to_its_own_key():
    data = ppo()
    data["agent"]["net"]["optim_spec"]["lr"] = decay(1e-3, 1e-4)
    with pytest.raises(SpecError) as error:
        parse_spec("small", data)
    (problem,) = error.value.problems
    assert problem.path == "agent.net.optim_spec.lr"
    assert problem.message == (
        "must be a number; the net's lr_scheduler_spec changes it over the run"
    )


def test_all_problems_beside_a_schedule_are_reported():
    data = ppo(agent__algorithm__lam=decay(0.9, 2.0))
    data["agent"]["algorithm"] |= {"gamma": {"start_val": 2}, "trainig_epoch": 3}
    with pytest.raises(SpecError) as error:
        parse_spec("small", data)
    assert [problem.path for problem in error.value.problems] == [
        "agent.algorithm.lam.end_val",
        "agent.algorithm.gamma.start_val",
        "agent.algorithm.trainig_epoch",
    ]


def test_the_number_is_that_of_the_start_and_the_file_keeps_the_schedule():
    spec = parse(q_learning("DQN", agent__algorithm__gamma=GAMMA))
    assert spec.agent.algorithm.gamma == 0.9
    assert spec.to_json()["agent"]["algorithm"]["gamma"] == GAMMA
    assert parse_spec("small", spec.to_json()) == spec
    assert parse(q_learning("DQN", agent__algorithm__gamma=0.9)) != spec


def test_a_plain_number_is_a_constant_schedule_where_a_schedule_is_usual():
    spec = parse(q_learning("DQN", agent__algorithm__explore_var_spec=0.1))
    assert spec.agent.algorithm.explore_var_spec.start_val == 0.1


def test_a_schedule_ends_with_the_budget_or_at_a_share_of_it():
    gamma = {"name": "linear_decay", "start_val": 0.9, "end_val": 0.99}
    lam = {**gamma, "end_step": "25%"}
    spec = parse(
        ppo(
            agent__algorithm__gamma=gamma, agent__algorithm__lam=lam, env__max_frame=800
        )
    )
    schedules = spec.agent.algorithm.schedules
    assert schedules["gamma"].end_step == 800
    assert schedules["lam"].end_step == 200
    longer = stretched(spec.to_json(), 800, 1600)
    assert longer["agent.algorithm.gamma.end_step"] == 1600
    assert longer["agent.algorithm.lam.end_step"] == 400


def test_the_numbers_follow_the_clock():
    spec = parse(ppo(agent__algorithm__gamma=GAMMA, agent__algorithm__lam=0.9))
    numbers = ScheduledNumbers(spec.agent.algorithm)
    assert numbers.at(0) == {"gamma": 0.9}
    assert numbers.at(300) == pytest.approx({"gamma": 0.945})
    assert numbers.at(10_000) == {"gamma": 0.99}


def test_ranks_average_targets_more_at_both_ends():
    spec = parse(
        soft(
            "SoftActorCritic",
            agent__net__update_type="polyak",
            agent__net__polyak_coef=decay(0.5, 0.1),
            meta__distributed="all_reduce",
            meta__max_session=2,
        )
    )
    schedule = scaled(spec).agent.net.schedules["polyak_coef"]
    assert schedule.start_val == pytest.approx(1 - 0.5**2)
    assert schedule.end_val == pytest.approx(1 - 0.9**2)


def test_the_critic_may_have_a_schedule_of_its_own():
    spec = parse(
        soft(
            "SoftActorCritic",
            agent__net__update_type="polyak",
            agent__net__critic_polyak_coef=decay(0.5, 0.1),
        )
    )
    assert spec.agent.net.for_role("critic").schedules["polyak_coef"].end_val == 0.1
    assert not spec.agent.net.for_role("actor").schedules


@pytest.mark.parametrize("name", ["SIL", "PPOSIL"])
def test_returns_of_the_past_are_kept_with_one_discount(name):
    data = ppo(agent__algorithm__name=name, agent__algorithm__gamma=GAMMA)
    with pytest.raises(SpecError, match=r"agent\.algorithm\.gamma.*must be a number"):
        parse_spec("small", data)
