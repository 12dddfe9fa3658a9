"""The ring of past returns, saved in segments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.agent.memory.imitation import ReturnRing
from tests.support import memory_layout

LAYOUT = memory_layout((2,))


@given(
    size=st.integers(1, 20),
    blocks=st.lists(
        st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=8
    ),
)
def test_a_ring_restored_from_segments_holds_the_same(size, blocks):
    """Blocks of steps; after some of them what is new is saved."""
    rng = np.random.default_rng(0)
    ring = ReturnRing(size, 0.9, LAYOUT)
    twin = ReturnRing(size, 0.9, LAYOUT)
    segments = []
    end = 0
    for count, saved in [*blocks, (1, True)]:
        obs = rng.normal(size=(count, 2)).astype(np.float32)
        returns = rng.normal(size=count).astype(np.float32)
        ring.add(obs, rng.integers(0, 9, count), returns)
        if saved:
            segments.append(ring.content(max(end, ring.first), ring.count))
            end = ring.count
    twin.load_state_dict(ring.state_dict())
    for segment in segments:
        twin.load_content(segment)
    places = ring.indices(np.arange(ring.num_stored))
    np.testing.assert_array_equal(twin.newest, ring.newest)
    np.testing.assert_array_equal(twin.indices(np.arange(twin.num_stored)), places)
    for name, array in ring.arrays.items():
        np.testing.assert_array_equal(twin.arrays[name][places], array[places])
