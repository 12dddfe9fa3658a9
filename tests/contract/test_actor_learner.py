"""Every algorithm learns from separate actors without extra code."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.parallel.actor_learner.source import PipelineStats
from slm_lab.spec.schema.algorithm import ReplayLearningSpec
from tests.contract.runs import assert_same_run, stop_at
from tests.contract.table import ALGORITHM_ROWS, training_cases
from tests.support import parse, run_session

WITHOUT_ACTORS = {
    ("ActorCritic", "episodes"),
    ("SARSA", "boltzmann_episodes"),
    *(
        (name, variant)
        for name in ("Reinforce", "SIL", "PPOSIL", "Random")
        for variant in ALGORITHM_ROWS[name]
    ),
}
"""They learn from whole episodes, from the past, or not at all."""

EVERY = pytest.mark.parametrize(
    "case", [case for case in training_cases() if case.values[0] not in WITHOUT_ACTORS]
)
ONE_EACH = pytest.mark.parametrize(
    "case",
    [
        (name, next(iter(variants)))
        for name, variants in ALGORITHM_ROWS.items()
        if (name, next(iter(variants))) not in WITHOUT_ACTORS
    ]
    + [("DQN", "normalized_stacked")],  # n-step sums go on from unroll to unroll
)


WHOLE_ROLLOUTS = {"log_frequency": 128, "max_frame": 384}
"""Of every row: a Session writes and ends between two steps, a learner between two
unrolls."""


def on_whole_rollouts(case, **meta):
    """The spec of a row, with rows in the CSV and an end between two rollouts."""
    data, changed = ALGORITHM_ROWS[case[0]][case[1]].data, WHOLE_ROLLOUTS
    meta = {**data["meta"], **meta, "log_frequency": changed["log_frequency"]}
    return parse(
        {
            **data,
            "env": {**data["env"], "max_frame": changed["max_frame"]},
            "meta": meta,
        }
    )


def played_in_turn(case, num_actors=1, **flow):
    """The same, with its actors and the learner in one process.

    A replay learner receives step by step, so it learns after the same steps as without
    actors.
    """
    spec = on_whole_rollouts(case)
    if isinstance(spec.agent.algorithm, ReplayLearningSpec):
        flow = {"unroll_length": 1, **flow}
    flow = {"serial": True, **flow}
    return on_whole_rollouts(
        case, distributed="actor_learner", max_session=num_actors, actor_learner=flow
    )


@pytest.mark.parametrize("case", sorted(WITHOUT_ACTORS))
def test_an_algorithm_that_cannot_learn_from_unrolls_is_refused_by_name(case):
    with pytest.raises(SpecError, match="actor_learner"):
        played_in_turn(case)


@EVERY
def test_one_actor_alternating_with_its_learner_equals_a_single_process(case, tmp_path):
    alone = run_session(on_whole_rollouts(case), tmp_path / "alone")
    assert alone.agent.learner.opt_step > 0
    with_actor = run_session(
        played_in_turn(case), tmp_path / "with_actor", serially=True
    )
    assert_same_run(with_actor, alone, without=PipelineStats.columns)


@ONE_EACH
@pytest.mark.usefixtures("probes_with_exact_state")
def test_resumed_alternating_actors_equal_uninterrupted_ones(case, tmp_path):
    flow = {"publish_frequency": 2, "unroll_length": 8}
    spec = played_in_turn(case, 2, **flow)
    whole = run_session(spec, tmp_path / "whole", serially=True)
    stopped = run_session(spec, tmp_path / "cut", on_row=stop_at(200), serially=True)
    assert 200 <= stopped.clock.frame < 350
    resumed = run_session(spec, tmp_path / "cut", resume=True, serially=True)
    assert whole.agent.learner.opt_step > stopped.agent.learner.opt_step > 0
    assert_same_run(resumed, whole, without=PipelineStats.columns)
