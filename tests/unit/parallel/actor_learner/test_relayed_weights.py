"""Weights relayed from one store to another are read there unchanged."""

import pickle

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.parallel.actor_learner.weights import WeightStore


@pytest.fixture
def networks():
    """A function that makes two networks, one of them with running statistics."""

    def make(seed):
        torch.manual_seed(seed)
        two = {
            "actor": nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)),
            "critic": nn.Linear(3, 1),
        }
        return {name: FlatParameters(net) for name, net in two.items()}

    return make


def at_barrier(weights):
    """As an object store gives them: read-only."""
    weights = pickle.loads(pickle.dumps(weights))
    for array in (weights.vector, weights.statistics):
        array.flags.writeable = False
    return weights


def test_a_relayed_reader_takes_the_newest_weights_as_published(networks):
    learner = networks(0)
    actor = networks(1)
    here, there = (WeightStore.of(learner, 2) for _ in range(2))
    for version in (3, 5, 8):
        learner["actor"].vector.add_(version)
        learner["actor"].statistics.mul_(version)
        here.publish(learner, np.array([version, 0.5]), version)
        there.relay(at_barrier(here.newest()))
        statistics = np.zeros(2)
        assert there.take(actor, statistics) == version
        assert list(statistics) == [version, 0.5]
        for name, flat in learner.items():
            assert torch.equal(flat.vector, actor[name].vector)
            assert torch.equal(flat.statistics, actor[name].statistics)
    assert there.count == here.count == 3


def test_relayed_weights_do_not_change_when_more_are_published(networks):
    learner = networks(0)
    here = WeightStore.of(learner, 0)
    here.publish(learner, np.zeros(0), 1)
    weights = here.newest()
    before = weights.vector.copy()
    for version in (2, 3):
        learner["critic"].vector.add_(1.0)
        here.publish(learner, np.zeros(0), version)
    np.testing.assert_array_equal(weights.vector, before)
