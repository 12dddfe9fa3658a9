"""The ring of past returns, saved in segments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from slm_lab.agent.memory.imitation import ReturnRing
from slm_lab.agent.memory.memory import MemoryLayout

LAYOUT = MemoryLayout(1, 1, (2,), np.dtype(np.float32), (), np.dtype(np.int64))


@given(
    size=st.integers(1, 20),
    blocks=st.lists(
        st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=8
    ),
)
def test_a_ring_restored_from_segments_holds_the_same(size, blocks):
    """Blocks of steps; after some of them what is new is saved."""
    rng = np.random.default_rng(0)
    ring, twin, segments, end = (
        *(ReturnRing(size, 0.9, LAYOUT) for _ in range(2)),
        [],
        0,
    )
    for count, saved in [*blocks, (1, True)]:
        obs = rng.normal(size=(count, 2)).astype(np.float32)
        ring.add(
            obs, rng.integers(0, 9, count), rng.normal(size=count).astype(np.float32)
        )
        if saved:
            segments.append(ring.content(max(end, ring.first), ring.count))
            end = ring.count
    twin.load_state_dict(ring.state_dict())
    for segment in segments:
        twin.load_content(segment)
    places = ring.indices(np.arange(ring.num_stored))
    assert_array_equal(twin.newest, ring.newest)
    assert_array_equal(twin.indices(np.arange(twin.num_stored)), places)
    for name, array in ring.arrays.items():
        assert_array_equal(twin.arrays[name][places], array[places])
