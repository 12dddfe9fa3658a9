"""`meta.keep_checkpoints`: the frames at which a checkpoint is kept for forks."""

import pytest

from slm_lab.core.errors import SpecError
from tests.support import parse, ppo


@pytest.mark.parametrize(
    ("value", "frames"),
    [
        (0, ()),
        (1, (1000,)),
        (4, (250, 500, 750, 1000)),
        (3, (334, 667, 1000)),
        (2.0, (500, 1000)),
        ([700, 300, 700], (300, 700)),
        ([2000], (2000,)),
        ([], ()),
    ],
)
def test_a_number_divides_the_budget_and_a_list_names_frames(value, frames):
    spec = parse(ppo(env__max_frame=1000, meta__keep_checkpoints=value))
    assert spec.kept_frames == frames


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-1, "must be a number of checkpoints >= 0, or a list of frames"),
        ("4", "must be a number of checkpoints >= 0, or a list of frames"),
        (True, "must be a number of checkpoints >= 0, or a list of frames"),
        ([0], "must be a number of checkpoints >= 0, or a list of frames"),
        ([1.5], "must be a number of checkpoints >= 0, or a list of frames"),
        (5000, "must be <= 1,000: each is a whole checkpoint on the disk"),
    ],
)
def test_other_values_are_refused(value, message):
    with pytest.raises(SpecError) as error:
        parse(ppo(meta__keep_checkpoints=value))
    (problem,) = error.value.problems
    assert (problem.path, problem.message) == ("meta.keep_checkpoints", message)


def test_a_cluster_keeps_none():
    with pytest.raises(SpecError, match="nodes of a cluster send back only"):
        parse(ppo(meta__keep_checkpoints=2, meta__cluster="auto"))
