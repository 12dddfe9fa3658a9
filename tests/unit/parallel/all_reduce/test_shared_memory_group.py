"""All ranks receive the same contents, and none waits forever."""

import multiprocessing
import pickle
import time

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from slm_lab.agent.optim.process_group import ProcessGroup, SoloGroup
from slm_lab.core.errors import PeerLostError
from slm_lab.parallel.all_reduce import process_groups as shared_peers
from slm_lab.parallel.all_reduce.process_groups import (
    GroupBuffers,
    SharedMemoryGroup,
)
from tests.support import randn, seeded
from tests.unit.parallel.all_reduce.ranks import in_ranks, outcomes_of

SMALL_SLOT = 16
"""Bytes per slot, so that long contents take many pieces."""


LENGTHS = st.sampled_from(
    [
        0,
        1,
        SMALL_SLOT - 1,
        SMALL_SLOT,
        SMALL_SLOT + 1,
        3 * SMALL_SLOT,
        3 * SMALL_SLOT + 5,
    ]
)


@given(
    meetings=st.integers(1, 4).flatmap(
        lambda size: st.lists(st.tuples(*[LENGTHS] * size), min_size=1, max_size=6)
    ),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_all_gather_bytes_returns_contents_of_any_length_by_rank(meetings, seed):
    rng = np.random.default_rng(seed)
    given_by = [[rng.bytes(length) for length in lengths] for lengths in meetings]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shared_peers, "SLOT_BYTES", SMALL_SLOT)
        received = in_ranks(
            len(meetings[0]),
            lambda group: [
                group.all_gather_bytes(each[group.rank]) for each in given_by
            ],
        )
    assert all(each == given_by for each in received)


@given(
    size=st.integers(1, 4),
    lengths=st.lists(st.sampled_from([0, 1, 3, 4, 5, 11]), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_all_reduce_sums_in_rank_order_with_equal_bits_everywhere(size, lengths, seed):
    """Of numbers so different that another order gives another sum; vectors are up to
    three slots long."""
    generator = seeded(seed % 2**31)
    vectors = [
        torch.randn(size, n, generator=generator).mul_(9).exp_() for n in lengths
    ]

    def summed(group):
        own = [vector[group.rank].clone() for vector in vectors]
        for vector in own:
            group.all_reduce_(vector)
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


def test_a_vector_longer_than_a_slot_is_summed_whole():
    count = shared_peers.SLOT_BYTES // 4 * 2 + 3
    vectors = randn(2, count)

    def summed(group):
        own = vectors[group.rank].clone()
        group.all_reduce_(own)
        return own

    first, second = in_ranks(2, summed)
    assert torch.equal(first, vectors[0] + vectors[1])
    assert torch.equal(first, second)


@pytest.mark.parametrize("late", [0, 1])
def test_a_late_reader_reads_the_contents_of_its_own_exchange(late):
    """The others write, and reach the next exchange, before it reads."""
    turns = 4

    def act(group):
        wait_for_all = group._wait_for_all

        def wait_then_delay():
            wait_for_all()
            others = np.delete(group._arrivals, group.rank)
            while others.min() < min(group._exchanges + 1, 2 * turns):
                time.sleep(0)
                others = np.delete(group._arrivals, group.rank)

        if group.rank == late:
            group._wait_for_all = wait_then_delay
        received = []
        for turn in range(turns):
            vector = torch.full((2,), float(turn + 10 * group.rank))
            group.all_reduce_(vector)
            received.append(
                (vector.tolist(), group.all_gather_bytes(bytes([turn, group.rank])))
            )
        return received

    expected = [
        ([2.0 * turn + 10] * 2, [bytes([turn, r]) for r in range(2)])
        for turn in range(4)
    ]
    assert in_ranks(2, act) == [expected] * 2


@pytest.mark.parametrize("sizes", [(3, 5), (0, 4), (4, 0, 1), (0, 0), (2,)])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_all_gather_samples_concatenates_in_rank_order(sizes, shape):
    generator = seeded(0)
    samples = [torch.randn(size, *shape, generator=generator) for size in sizes]
    for received in in_ranks(
        len(sizes), lambda group: group.all_gather_samples(samples[group.rank])
    ):
        assert torch.equal(received, torch.cat(samples))


def test_arrays_of_any_number_type_and_shape_arrive_by_rank():
    own = (
        [],
        [np.arange(6, dtype=np.int32).reshape(2, 3).T, np.array(True)],
        [np.zeros((0, 2), np.float16)],
    )
    for received in in_ranks(3, lambda group: group.all_gather_arrays(own[group.rank])):
        for arrays, sent in zip(received, own, strict=True):
            assert len(arrays) == len(sent)
            for array, expected in zip(arrays, sent, strict=True):
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
                assert_array_equal(array, expected)
                assert array.flags.writeable  # torch.from_numpy shares its memory


class Trap:
    """Unpickled, it would run code."""

    def __reduce__(self):
        return pytest.fail, ("foreign code ran",)


def test_objects_are_neither_sent_nor_unpickled():
    class Exposed(ProcessGroup):
        """Its only peer is a foreign process that has connected to its port."""

        rank = 0
        size = 1

        def __init__(self, received):
            self.received = received

        def all_gather_bytes(self, content):
            return [self.received]

        def all_reduce_(self, vector):
            raise NotImplementedError

    trap = np.array([Trap()], object)
    objects = b'[["|O", [1]]]\n' + bytes(8)
    for received in (objects, pickle.dumps(Trap()), pickle.dumps(trap)):
        with pytest.raises(
            ValueError, match=r"OBJECT array|Expecting value|decode byte"
        ):
            Exposed(received).all_gather_arrays([np.zeros(1)])
    with pytest.raises(ValueError, match="Python objects"):
        SoloGroup().all_gather_arrays([trap])


@pytest.mark.parametrize(
    "says", [(True, True), (True, False), (False, True), (False, False)]
)
def test_all_true_is_true_only_where_every_rank_is_true(says):
    received = in_ranks(2, lambda group: group.all_true(says[group.rank]))
    assert received == [all(says)] * 2


@pytest.mark.parametrize("missing", [[1], [0, 2]])
def test_a_missing_peer_is_reported_within_the_timeout(missing):
    seconds = 0.2

    def act(group):
        group.all_gather_bytes(b"first")
        if group.rank in missing:
            return None
        began = time.perf_counter()
        try:
            group.all_reduce_(torch.ones(3))
        except PeerLostError as error:
            return str(error), time.perf_counter() - began
        raise AssertionError("no peer was missing")

    for rank, outcome in enumerate(outcomes_of(3, act, seconds)):
        if rank not in missing:
            message, waited = outcome
            others = "ranks 0, 2"
            if missing == [1]:
                others = "rank 1"
            assert (
                message == f"{others} did not arrive within 0.2 s (rank {rank} waited)"
            )
            assert seconds <= waited < seconds + 5


@pytest.mark.medium
def test_processes_exchange_like_threads_and_wait_for_a_late_one():
    """In memory sent to a spawned process, which starts long after the first rank."""
    place = GroupBuffers.of(2)
    other = multiprocessing.get_context("spawn").Process(
        target=exchange_vectors, args=(place, 1)
    )
    other.start()
    try:
        received = exchange_vectors(place, 0)
    finally:
        other.join(10)
        other.kill()
    assert other.exitcode == 0
    assert received == {turn: [3.0, 3.0] for turn in range(100)}


def exchange_vectors(place, rank):
    """Raises AssertionError if it receives what was not sent."""
    group = SharedMemoryGroup(place, rank, 20.0)
    sums = {}
    for turn in range(100):
        vector = torch.full((2,), float(rank + 1))
        group.all_reduce_(vector)
        sums[turn] = vector.tolist()
        contents = [bytes([r, turn]) * (turn * (1 + r)) for r in range(2)]
        assert group.all_gather_bytes(contents[rank]) == contents
    return sums


def test_a_group_rebuilt_on_the_same_buffers_continues_after_the_last_exchange():
    place = GroupBuffers.of(1)
    SharedMemoryGroup(place, 0, 1.0).all_gather_bytes(b"once")
    again = SharedMemoryGroup(place, 0, 1.0)
    assert again.all_gather_bytes(b"twice") == [b"twice"]
    assert place.arrivals.tolist() == [2]
