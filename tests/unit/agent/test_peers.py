"""Ranks that meet hear the same of each other, and none waits for ever."""

import multiprocessing
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slm_lab.agent.optim import shared_peers
from slm_lab.agent.optim.peers import NoPeers
from slm_lab.agent.optim.shared_peers import MeetingPlace, SharedMemoryPeers
from slm_lab.core.errors import PeerLostError
from tests.unit.agent.ranks import in_ranks, outcomes_of

SMALL_SLOT = 16
"""Bytes, so that much is given in many pieces."""


LENGTHS = st.sampled_from(
    [0, 1, SMALL_SLOT - 1, SMALL_SLOT, SMALL_SLOT + 1, 3 * SMALL_SLOT, 3 * SMALL_SLOT + 5]
)


@given(
    meetings=st.integers(1, 4).flatmap(
        lambda size: st.lists(st.tuples(*[LENGTHS] * size), min_size=1, max_size=6)
    ),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_all_hear_what_each_has_given_by_rank_however_long_it_is(meetings, seed):
    rng = np.random.default_rng(seed)
    given_by = [[rng.bytes(length) for length in lengths] for lengths in meetings]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_peers, "SLOT_BYTES", SMALL_SLOT)
        heard = in_ranks(
            len(meetings[0]), lambda peers: [peers.all_of(each[peers.rank]) for each in given_by]
        )
    assert all(each == given_by for each in heard)


def test_what_is_longer_than_a_slot_arrives_whole():
    rng = np.random.default_rng(0)
    long = [rng.bytes(shared_peers.SLOT_BYTES * 2 + 7), b"short", rng.bytes(1 << 20)]
    assert in_ranks(3, lambda peers: peers.all_of(long[peers.rank])) == [long] * 3


@given(
    size=st.integers(1, 4),
    lengths=st.lists(st.sampled_from([0, 1, 3, 4, 5, 11]), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_a_sum_is_that_in_the_order_of_the_ranks_and_the_same_bits_for_all(size, lengths, seed):
    """Of numbers so different that another order gives another sum; vectors are up to three slots
    long."""
    generator = torch.Generator().manual_seed(seed % 2**31)
    vectors = [torch.randn(size, n, generator=generator).mul_(9).exp_() for n in lengths]

    def summed(peers):
        own = [vector[peers.rank].clone() for vector in vectors]
        for vector in own:
            peers.sum_(vector)
        return own

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_peers, "SLOT_BYTES", SMALL_SLOT)
        results = in_ranks(size, summed)
    for i, vector in enumerate(vectors):
        expected = torch.zeros(vector.shape[1])
        for each in vector:
            expected = expected + each
        for result in results:
            assert torch.equal(result[i], expected)


def test_a_sum_of_more_than_a_slot_holds_is_whole():
    count = shared_peers.SLOT_BYTES // 4 * 2 + 3
    vectors = torch.randn(2, count, generator=torch.Generator().manual_seed(0))

    def summed(peers):
        own = vectors[peers.rank].clone()
        peers.sum_(own)
        return own

    first, second = in_ranks(2, summed)
    assert torch.equal(first, vectors[0] + vectors[1])
    assert torch.equal(first, second)


def test_sums_and_contents_may_take_turns():
    """They use the same slots: what one meeting leaves there must not be heard at the next."""

    def turns(peers):
        heard = []
        for turn in range(200):
            vector = torch.full((5,), float(peers.rank + turn))
            peers.sum_(vector)
            heard.append((vector.tolist(), peers.all_of(bytes([peers.rank, turn]) * (turn % 3))))
        return heard

    expected = [
        ([3.0 + 3 * turn] * 5, [bytes([rank, turn]) * (turn % 3) for rank in range(3)])
        for turn in range(200)
    ]
    assert in_ranks(3, turns) == [expected] * 3


@pytest.mark.parametrize("late", [0, 1])
def test_who_reads_late_reads_what_was_given_at_that_meeting(late):
    """The others have written, and come to the next one, before it has looked."""
    turns = 4

    def act(peers):
        meet = peers._meet

        def meet_and_dawdle():
            meet()
            others = np.delete(peers._arrivals, peers.rank)
            while others.min() < min(peers._meetings + 1, 2 * turns):
                time.sleep(0)
                others = np.delete(peers._arrivals, peers.rank)

        if peers.rank == late:
            peers._meet = meet_and_dawdle
        heard = []
        for turn in range(turns):
            vector = torch.full((2,), float(turn + 10 * peers.rank))
            peers.sum_(vector)
            heard.append((vector.tolist(), peers.all_of(bytes([turn, peers.rank]))))
        return heard

    expected = [([2.0 * turn + 10] * 2, [bytes([turn, r]) for r in range(2)]) for turn in range(4)]
    assert in_ranks(2, act) == [expected] * 2


def test_numbers_come_by_rank():
    numbers = np.random.default_rng(0).normal(size=(3, 4))
    for heard in in_ranks(3, lambda peers: peers.exchanged(numbers[peers.rank])):
        np.testing.assert_array_equal(heard, numbers)
    one_column = numbers.T[:3]  # not contiguous
    for heard in in_ranks(3, lambda peers: peers.exchanged(one_column[peers.rank])):
        np.testing.assert_array_equal(heard, one_column)
    for heard in in_ranks(2, lambda peers: peers.exchanged(np.zeros(0))):
        assert heard.shape == (2, 0)


@pytest.mark.parametrize("sizes", [(3, 5), (0, 4), (4, 0, 1), (0, 0), (2,)])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_samples_of_all_follow_each_other_in_the_order_of_the_ranks(sizes, shape):
    generator = torch.Generator().manual_seed(0)
    samples = [torch.randn(size, *shape, generator=generator) for size in sizes]
    for heard in in_ranks(len(sizes), lambda peers: peers.gathered(samples[peers.rank])):
        assert torch.equal(heard, torch.cat(samples))


def test_samples_may_lie_in_memory_in_any_order_and_carry_a_gradient():
    samples = torch.arange(12.0).view(2, 6).t().requires_grad_()
    parts = [samples[:4], samples[4:]]
    for heard in in_ranks(2, lambda peers: peers.gathered(parts[peers.rank])):
        assert torch.equal(heard, samples.detach())
        assert not heard.requires_grad


@pytest.mark.parametrize("says", [(True, True), (True, False), (False, True), (False, False)])
def test_all_have_it_where_nobody_has_not(says):
    heard = in_ranks(2, lambda peers: peers.all_have(says[peers.rank]))
    assert heard == [all(says)] * 2


def test_one_rank_alone_hears_itself_to_the_last_bit():
    def act(peers):
        vector = torch.tensor([0.1, torch.nan, -0.0])
        peers.sum_(vector)
        numbers = peers.exchanged(np.array([1 / 3]))
        return vector, peers.all_of(b"own"), numbers, peers.all_have(False)

    ((vector, contents, numbers, all_have),) = in_ranks(1, act)
    assert vector.numpy().tobytes() == torch.tensor([0.1, torch.nan, -0.0]).numpy().tobytes()
    assert (contents, numbers.tolist(), all_have) == ([b"own"], [[1 / 3]], False)


def test_nobody_else_changes_nothing():
    peers, samples = NoPeers(), torch.randn(3, generator=torch.Generator().manual_seed(0))
    before = samples.clone()
    peers.sum_(samples)
    assert torch.equal(samples, before)
    assert peers.gathered(samples) is samples
    assert peers.all_of(b"own") == [b"own"]
    np.testing.assert_array_equal(peers.exchanged(np.array([1 / 3, np.inf])), [[1 / 3, np.inf]])
    assert (peers.all_have(True), peers.all_have(False)) == (True, False)
    assert (peers.rank, peers.size) == (0, 1)


@pytest.mark.parametrize("missing", [[1], [0, 2]])
def test_who_does_not_come_is_named_within_the_bound(missing):
    seconds = 0.2

    def act(peers):
        peers.all_of(b"first")
        if peers.rank in missing:
            return None
        began = time.perf_counter()
        try:
            peers.sum_(torch.ones(3))
        except PeerLostError as error:
            return str(error), time.perf_counter() - began
        raise AssertionError("nobody was missed")

    for rank, outcome in enumerate(outcomes_of(3, act, seconds)):
        if rank not in missing:
            message, waited = outcome
            others = "rank 1" if missing == [1] else "ranks 0, 2"
            assert message == f"rank {rank} waited 0.2 s for {others}, in vain"
            assert seconds <= waited < seconds + 5


def test_processes_meet_as_threads_do_and_wait_for_one_that_comes_late():
    """In memory that was sent to a spawned process, which begins long after one keeps its core."""
    place = MeetingPlace.of(2)
    other = multiprocessing.get_context("spawn").Process(target=converse, args=(place, 1))
    other.start()
    try:
        heard = converse(place, 0)
    finally:
        other.join(10)
        other.kill()
    assert other.exitcode == 0
    assert heard == {turn: [3.0, 3.0] for turn in range(100)}


def converse(place, rank):
    """Raises AssertionError where it hears what was not given."""
    peers, sums = SharedMemoryPeers(place, rank, 20.0), {}
    for turn in range(100):
        vector = torch.full((2,), float(rank + 1))
        peers.sum_(vector)
        sums[turn] = vector.tolist()
        contents = [bytes([r, turn]) * (turn * (1 + r)) for r in range(2)]
        assert peers.all_of(contents[rank]) == contents
    return sums


def test_one_who_begins_again_at_the_same_place_goes_on_from_its_last_meeting():
    place = MeetingPlace.of(1)
    SharedMemoryPeers(place, 0, 1.0).all_of(b"once")
    again = SharedMemoryPeers(place, 0, 1.0)
    assert again.all_of(b"twice") == [b"twice"]
    assert place.arrivals.tolist() == [2]
