"""The lab's algorithms keep the contract."""

import pytest
from typing_extensions import override

from slm_lab.testing import AlgorithmContract
from tests.contract.table import ALGORITHM_ROWS, FIRST, cases, flat

ONE_EACH = {
    "test_it_learns_without_looking_ahead",
    "test_evaluations_change_nothing",
    "test_two_ranks_end_with_equal_weights_and_can_be_repeated",
    "test_resumed_workers_equal_uninterrupted_ones",
}
"""Tests of which other rows of an algorithm show nothing new."""
RESUMED = "test_a_resumed_run_equals_the_uninterrupted_one"
LOADED = "test_saved_and_loaded_it_acts_and_learns_as_before"
FORKED = "test_a_fork_repeats_the_run_that_it_leaves"
ALONE = "test_one_worker_of_a_mode_equals_a_single_process"
WHOLE_RUNS = {RESUMED, FORKED, ALONE}
LATER = {
    LOADED,
    FORKED,
    ALONE,
    "test_episodes_that_are_broken_off_leave_something_to_learn_from",
    "test_a_loaded_agent_acts_as_an_evaluation_does",
}
"""Costly tests, which the quick suite runs on the first row of an algorithm."""
EXPORT = "test_an_exported_policy_acts_as_the_agent"
EXPORTED = {
    "PPO-continuous",
    "PPO-multi_discrete",
    "PPO-dict_obs",
    "PPO-recurrent_shared_lstm",
    "DQN-normalized_stacked",
    "DoubleDQN-images",
    "CrossQ-continuous",
    "SoftActorCritic-continuous",
}
"""One of each kind of observation, action and net."""


def mark_of(test, name, row):
    """How long a test may wait until it is run."""
    first = name in FIRST
    if test in ONE_EACH:
        return None if first else "slow"
    if test in WHOLE_RUNS and row.trains_alike:
        return "slow"
    if test == LOADED and not first and not row.trains_alike:
        # The resumed run of the row compares the same states, and more.
        return "slow"
    if test in LATER:
        return None if first else "medium"
    if test == EXPORT:
        return "medium" if name in EXPORTED else "slow"
    return None


class TestAlgorithms(AlgorithmContract):
    cases = flat(ALGORITHM_ROWS)

    @override
    def cases_of(self, test):
        parameters = []
        for name, row in self.cases.items():
            mark = mark_of(test, name, row)
            marks = [getattr(pytest.mark, mark)] if mark else []
            parameters.append(pytest.param(row, id=name, marks=marks))
        return parameters


WITHOUT_ACTORS = {
    "ActorCritic-episodes",
    "SARSA-boltzmann_episodes",
    *(
        f"{name}-{variant}"
        for name in ("Reinforce", "SIL", "PPOSIL", "Random")
        for variant in ALGORITHM_ROWS[name]
    ),
}
"""They learn from whole episodes, from the past, or not at all."""


@pytest.mark.parametrize("row", cases())
def test_algorithms_that_cannot_learn_from_unrolls_are_refused_and_no_others(
    row, request
):
    name = request.node.callspec.id
    refused = {"actor_learner"} if name in WITHOUT_ACTORS else set()
    found = {
        mode
        for mode in ("shared", "synced", "all_reduce", "actor_learner")
        if row.refusal(mode) is not None
    }
    assert found == refused
