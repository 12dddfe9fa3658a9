"""REDQ's choice of critics, against numbers worked out by hand."""

import pytest
import torch

from tests.support import soft
from tests.unit.agent.algorithm.batches import learner_of

OBS = torch.linspace(-1, 1, 12).view(4, 3)
ACTION = torch.linspace(-0.5, 0.5, 4).view(4, 1)


def critics_of(**algorithm):
    keys = {f"agent__algorithm__{key}": value for key, value in algorithm.items()}
    spec = soft("REDQ", env__name="Pendulum-v1", **keys)
    return learner_of(spec).critic


def values_of(nets):
    both = torch.cat([OBS, ACTION], -1)
    return torch.stack([net(both)[0].squeeze(-1) for net in nets])


def test_the_target_is_the_smallest_of_the_critics_that_are_drawn():
    critics = critics_of(num_critics=4)
    with torch.no_grad():
        values = values_of(critics.targets)
        target = critics.target(OBS, ACTION, torch.tensor([3, 1]))
    torch.testing.assert_close(target, torch.min(values[3], values[1]))


def test_the_actor_climbs_the_mean_of_all_critics():
    critics = critics_of(num_critics=4)
    with torch.no_grad():
        value = critics.actor_value(OBS, ACTION)
        torch.testing.assert_close(value, values_of(critics.nets).mean(0))


def test_drawn_critics_differ_and_each_is_drawn_equally_often():
    critics = critics_of(num_critics=5)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([critics.draw_subset(generator) for _ in range(5_000)])
    assert (drawn[:, 0] != drawn[:, 1]).all()
    shares = drawn.flatten().bincount(minlength=5) / 5_000
    torch.testing.assert_close(shares, torch.full((5,), 0.4), atol=0.03, rtol=0)


def test_nothing_is_drawn_where_all_critics_count():
    critics = critics_of(num_critics=3, num_target_critics=3)
    assert critics.draw_subset(torch.Generator()) is None


def test_more_critics_in_the_target_than_there_are_are_refused():
    with pytest.raises(Exception, match=r"must be <= num_critics \(2\)"):
        critics_of(num_critics=2, num_target_critics=3)
