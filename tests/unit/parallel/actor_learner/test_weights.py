"""Published weights: a reader always has the whole of one publication."""

import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.actor_learner import weights as publication_module
from slm_lab.parallel.actor_learner.weights import WeightStore

STATISTICS = 7
TAKES = 50
"""Different publications that are taken while more are made."""


class Normed(nn.Module):
    """A network with running statistics, so large that a copy takes long."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, 100)
        self.norm = nn.BatchNorm1d(100)


def networks(width=1000):
    return {
        "actor": FlatParameters(Normed(width)),
        "critic": FlatParameters(nn.Linear(width, 3)),
    }


def fill(flats, number):
    with torch.no_grad():
        for flat in flats.values():
            flat.vector.fill_(number)
            flat.statistics.fill_(number)


def publish(weights, flats, number):
    """Publishes weights that all equal this number; the version is twice the number."""
    fill(flats, number)
    weights.publish(flats, np.full(STATISTICS, float(number)), 2 * number)


def take(weights, flats):
    """The number of a publication; fails if the read weights mix several."""
    statistics = np.zeros(STATISTICS)
    version = weights.take(flats, statistics)
    vectors = [v for flat in flats.values() for v in (flat.vector, flat.statistics)]
    ends = {float(end) for v in vectors if len(v) for end in v.aminmax()}
    (number,) = {*ends, *statistics.tolist(), version / 2}
    return number


def publish_until(weights, is_over):
    """At full speed."""
    flats = networks()
    number = weights.count
    while not is_over():
        number += 1
        publish(weights, flats, number)


def assert_only_whole_ones_are_taken(weights):
    """Each is of one publication, and none is older than the one before."""
    flats = networks()
    taken = []
    while len(set(taken)) < TAKES:
        taken.append(take(weights, flats))
        assert taken[-2:] == sorted(taken[-2:])


def test_readers_never_see_mixed_weights_while_a_thread_publishes():
    weights = WeightStore.of(networks(), STATISTICS)
    publish(weights, networks(), 1)
    over = threading.Event()
    writer = threading.Thread(target=publish_until, args=(weights, over.is_set))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    writer.start()
    try:
        assert_only_whole_ones_are_taken(weights)
    finally:
        over.set()
        writer.join()
        sys.setswitchinterval(before)


class Overtaken:
    """Statistics (S,) that a reader reads late, after new ones are published.

    It has already copied the rest of the old weights.
    """

    def __init__(self, publish_some):
        self.array = np.zeros(STATISTICS)
        self.publish_some = publish_some

    def __setitem__(self, key, values):
        self.publish_some()
        self.array[key] = values


def take_while(weights, publish_some):
    flats = networks(4)
    statistics = Overtaken(publish_some)
    version = weights.take(flats, statistics)
    (number,) = {float(v[0]) for flat in flats.values() for v in (flat.vector,)}
    assert statistics.array.tolist() == [number] * STATISTICS
    assert version == 2 * number
    return number


@pytest.mark.parametrize(("meanwhile", "taken"), [(0, 3), (1, 3), (2, 5), (3, 6)])
def test_an_overtaken_reader_reads_again_and_others_keep_their_weights(
    meanwhile, taken
):
    """The buffer that is read is the one that the publication after the next one
    writes."""
    weights = WeightStore.of(networks(4), STATISTICS)
    source = networks(4)
    for number in (1, 2, 3):
        publish(weights, source, number)
    later = list(range(4, 4 + meanwhile))

    def publish_them():
        while later:
            publish(weights, source, later.pop(0))

    assert take_while(weights, publish_them) == taken


def test_a_reader_that_is_overtaken_repeatedly_gives_up(monkeypatch):
    monkeypatch.setattr(publication_module, "MAX_TRIES", 5)
    weights = WeightStore.of(networks(4), STATISTICS)
    source = networks(4)
    publish(weights, source, 1)
    tries = []

    def publish_two():
        tries.append(weights.count)
        for _ in range(2):
            publish(weights, source, weights.count + 1)

    with pytest.raises(PeerLostError, match="changed 5 times while they were read"):
        take_while(weights, publish_two)
    assert len(tries) == 5


def test_the_version_is_that_of_the_weights_and_networks_have_their_own_parts():
    source = networks(4)
    flats = networks(4)
    weights = WeightStore.of(source, STATISTICS)
    statistics = np.arange(float(STATISTICS))
    for version in (10, 20):
        for flat in source.values():
            torch.nn.init.normal_(flat.vector)
            torch.nn.init.normal_(flat.statistics)
        weights.publish(source, statistics * version, version)
    found = np.zeros(STATISTICS)
    assert weights.take(flats, found) == 20
    assert found.tolist() == (20 * statistics).tolist()
    for name, flat in source.items():
        assert torch.equal(flats[name].vector, flat.vector)
        assert torch.equal(flats[name].statistics, flat.statistics)
    assert weights.count == 2


def test_before_the_first_publication_there_are_no_weights():
    assert WeightStore.of(networks(4), STATISTICS).count == 0
