"""What a spec says of actors and their learner, and what the run gets from it."""

import pytest

from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema.meta import ActorLearnerSpec, CorrectionSpec, MetaSpec
from tests.support import (
    actor_critic,
    ppo,
    pqn,
    q_learning,
    reinforce,
    sarsa,
    soft,
    vmpo,
)
from tests.unit.spec.problems import assert_problem

BATCHES = {"agent__memory": {"name": "OnPolicyBatchReplay"}}


def together(make=ppo, *, actors=2, max_run=1, **settings):
    """The raw spec that `make` makes, for actors and a learner."""
    raw = make()
    how = {"distributed": "actor_learner", "max_session": actors, "max_run": max_run}
    raw["meta"] = {**raw["meta"], **how, "actor_learner": settings}
    return raw


def dqn():
    return q_learning("DQN")


def sac():
    return soft("SoftActorCritic")


def spec_of(make=ppo, **settings):
    return parse_spec("s", together(make, **settings))


def meta(distributed, max_session=1, max_run=1, **settings):
    return MetaSpec(
        distributed=distributed,
        max_session=max_session,
        max_run=max_run,
        actor_learner=ActorLearnerSpec(**settings),
    )


def test_the_defaults_learn_from_fresh_rollouts_one_by_one():
    settings = spec_of().meta.actor_learner
    assert settings == ActorLearnerSpec(
        unroll_length=None,
        learn_queue=1,
        queue_size=1,
        correction=CorrectionSpec(name="none", rho_bar=1.0, c_bar=1.0),
        publish_frequency=1,
        inference="local",
        train_ratio="spec",
        serial=False,
    )


@pytest.mark.parametrize(
    ("given", "means"),
    [
        ("none", ("none", 1.0, 1.0)),
        ("vtrace", ("vtrace", 1.0, 1.0)),
        ({"name": "vtrace"}, ("vtrace", 1.0, 1.0)),
        ({"name": "vtrace", "rho_bar": 2}, ("vtrace", 2.0, 1.0)),
        ({"name": "vtrace", "rho_bar": 0.5, "c_bar": 1.5}, ("vtrace", 0.5, 1.5)),
    ],
)
def test_a_correction_is_one_typed_block_however_it_is_written(given, means):
    correction = spec_of(correction=given).meta.actor_learner.correction
    assert isinstance(correction, CorrectionSpec)
    assert (correction.name, correction.rho_bar, correction.c_bar) == means


@pytest.mark.parametrize(
    ("given", "means"),
    [("spec", "spec"), (None, None), (1, 1.0), (0.5, 0.5), (1000, 1000.0)],
)
def test_a_ratio_is_a_word_a_number_or_nothing(given, means):
    ratio = spec_of(sac, train_ratio=given).meta.actor_learner.train_ratio
    assert ratio == means
    assert type(ratio) is type(means)


ONE_OF = 'must be one of "none", "vtrace"; did you mean "vtrace"?'
NO_BLOCK = 'must be "none", "vtrace" or a block {…}'
NO_RATIO = 'must be "spec", a number > 0 and <= 1000, or null'
KEYS_OF_COUNTS = ("unroll_length", "learn_queue", "queue_size", "publish_frequency")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        *(({key: 0}, f"{key} = 0: must be >= 1") for key in KEYS_OF_COUNTS),
        *(
            ({"train_ratio": value}, f"train_ratio = {shown}: {NO_RATIO}")
            for value, shown in [
                (0, "0"),
                (-1.5, "-1.5"),
                (1e9, "1000000000.0"),
                (True, "true"),
                ("fast", "'fast'"),
            ]
        ),
        *(
            ({"correction": value}, f"correction = {shown}: {NO_BLOCK}")
            for value, shown in [(None, "null"), (1, "1")]
        ),
        ({"serial": 1}, "serial = 1: must be true or false"),
        (
            {"inference": "actor"},
            'inference = \'actor\': must be one of "local", "learner"',
        ),
        ({"inference": "lerner"}, "inference = 'lerner': … did you mean \"learner\"?"),
        (
            {"unrol_length": 3},
            "unrol_length = 3: unknown key; did you mean unroll_length?",
        ),
        ({"correction": "vtrase"}, f"correction = 'vtrase': {ONE_OF}"),
        ({"correction": {"name": "trace"}}, f"correction.name = 'trace': {ONE_OF}"),
        (
            {"correction": {"rho_bar": 2.0}},
            "correction.name: is missing: the correction, none or",
        ),
        (
            {"correction": {"name": "vtrace", "rho_bra": 2.0}},
            "correction.rho_bra = 2.0: unknown key; did you mean rho_bar?",
        ),
        (
            {"correction": {"name": "vtrace", "rho_bar": 0}},
            "correction.rho_bar = 0: must be > 0",
        ),
        (
            {"correction": {"name": "vtrace", "c_bar": -1.0}},
            "correction.c_bar = -1.0: must be > 0",
        ),
    ],
)
def test_an_invalid_setting_is_refused_with_its_path(settings, problem):
    assert_problem(together(**settings), f"meta.actor_learner.{problem}")


@pytest.mark.parametrize(
    ("make", "steps"),
    [
        (ppo, 16),
        (actor_critic, 8),
        (sarsa, 8),
        (pqn, 16),
        (vmpo, 16),
        (lambda: reinforce(**BATCHES), 2),
        (dqn, 8),
        (sac, 8),
    ],
)
def test_the_default_length_of_an_unroll_is_that_of_a_rollout(make, steps):
    assert spec_of(make).unroll_length == steps
    assert spec_of(make, unroll_length=9).unroll_length == 9


@pytest.mark.parametrize("make", [dqn, sac])
@pytest.mark.parametrize("ratio", [0.5, 4.0])
def test_a_ratio_of_the_mode_is_the_exact_one_of_the_algorithm_that_learns(make, ratio):
    """The result is a valid spec, with any other keys of the algorithm."""
    spec = spec_of(make, train_ratio=ratio)
    learned = spec.as_learned()
    exact = {"update_to_data": ratio, "training_iter": 1, "training_batch_iter": 1}
    before = spec.agent.algorithm
    assert before.training_batch_iter == 2
    assert learned.agent.algorithm == before.model_copy(update=exact)
    assert learned.model_copy(update={"agent": spec.agent}) == spec
    assert parse_spec("s", learned.to_json()) == learned


@pytest.mark.parametrize("make", [dqn, sac])
def test_a_learner_without_a_ratio_ignores_the_frequency_keys(make):
    spec = spec_of(make, train_ratio=None)
    keys = {"training_frequency": 7, "update_to_data": 0.5, "training_batch_iter": 3}
    algorithm = spec.agent.algorithm.model_copy(update=keys)
    changed = spec.agent.model_copy(update={"algorithm": algorithm})
    assert spec.model_copy(update={"agent": changed}).as_learned() == spec.as_learned()


@pytest.mark.parametrize(
    "spec",
    [
        spec_of(dqn),
        spec_of(dqn, train_ratio="spec"),
        spec_of(ppo, train_ratio=2.0),
        parse_spec("s", q_learning("DQN", meta__actor_learner={"train_ratio": 2.0})),
    ],
)
def test_the_learner_has_the_same_spec_unless_a_ratio_replaces_keys(spec):
    assert spec.as_learned() is spec


@pytest.mark.parametrize("actors", [1, 4])
@pytest.mark.parametrize("max_run", [1, 3])
def test_the_learner_is_the_first_of_its_training_and_one_session_more_than_its_actors(
    actors, max_run
):
    own = meta("actor_learner", actors, max_run)
    assert own.sessions_per_training == 1 + actors
    assert own.num_sessions == (1 + actors) * max_run
    assert [len(training) for training in own.trainings] == [1 + actors] * max_run
    assert [s for training in own.trainings for s in training] == list(
        range(own.num_sessions)
    )
    learners = [training[0] for training in own.trainings]
    assert own.writers == learners
    for session in range(own.num_sessions):
        assert own.is_first_of_training(session) == (session in learners)
        assert own.is_actor(session) == (session not in learners)


@pytest.mark.parametrize("max_run", [1, 3])
def test_actors_that_take_turns_with_their_learner_are_one_session_with_it(max_run):
    own = meta("actor_learner", 4, max_run, serial=True)
    assert own.trainings == [range(run, run + 1) for run in range(max_run)]
    assert own.num_sessions == max_run
    assert own.writers == list(range(max_run))
    assert all(own.is_first_of_training(s) and not own.is_actor(s) for s in own.writers)


@pytest.mark.parametrize(
    ("settings", "frames"),
    [
        ({}, 16 * 4),
        ({"learn_queue": 3}, 3 * 16 * 4),
        ({"unroll_length": 5, "learn_queue": 3}, 3 * 5 * 4),
    ],
)
def test_a_training_event_learns_from_all_the_unrolls_that_it_waits_for(
    settings, frames
):
    spec = spec_of(**settings)
    assert spec.agent.algorithm.frames_of_event(spec.env.num_envs, spec.meta) == frames
    alone = spec.meta.model_copy(update={"distributed": False})
    assert spec.agent.algorithm.frames_of_event(spec.env.num_envs, alone) == 16 * 4
