"""What Sessions are called, and how a run says what they do together."""

import pytest

from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.session_names import full_name, role, sessions_text


def meta(distributed, max_session, max_run=1, serial=False):
    return MetaSpec(
        distributed=distributed,
        max_session=max_session,
        max_run=max_run,
        actor_learner={"serial": serial},
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((False, 1), "1 Session"),
        ((False, 4), "4 Sessions"),
        (("synced", 2), '2 Sessions together ("synced")'),
        (
            ("synced", 2, 3),
            '2 Sessions together ("synced"), 3 runs one after the other',
        ),
        (("actor_learner", 1), '1 actor and a learner ("actor_learner")'),
        (("actor_learner", 2), '2 actors and a learner ("actor_learner")'),
        (
            ("actor_learner", 2, 3),
            '2 actors and a learner ("actor_learner"), 3 runs one after the other',
        ),
        (
            ("actor_learner", 2, 1, True),
            '2 actors and a learner in turn ("actor_learner", serial)',
        ),
    ],
)
def test_a_run_says_how_many_sessions_there_are_and_what_they_do(given, text):
    assert sessions_text(meta(*given)) == text


@pytest.mark.parametrize("distributed", [False, "shared", "synced", "all_reduce"])
def test_sessions_that_all_do_the_same_have_no_roles(distributed):
    assert {role(meta(distributed, 2, 1), session) for session in range(2)} == {None}
    assert full_name(meta(distributed, 2), 1) == "Session 1"


def test_the_first_of_each_training_is_the_learner_and_actors_are_counted_from_0():
    roles = [role(meta("actor_learner", 2, max_run=2), session) for session in range(6)]
    assert roles == ["learner", "actor 0", "actor 1"] * 2
    assert full_name(meta("actor_learner", 2, max_run=2), 5) == "Session 5 (actor 1)"


def test_an_alternating_actor_and_learner_have_no_role():
    assert role(meta("actor_learner", 2, serial=True), 0) is None
