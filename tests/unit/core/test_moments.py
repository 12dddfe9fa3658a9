"""Running statistics of several processes are merged as if one had seen all samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.core.moments import merged, merged_by_all

SIZE = 3
PLACE = [slice(0, 1 + 2 * SIZE)]


def moments(rows):
    """[count, mean, M2] of rows (B, SIZE), computed at once."""
    if not len(rows):
        return np.zeros(1 + 2 * SIZE)
    mean = rows.mean(0)
    return np.concatenate([[len(rows)], mean, ((rows - mean) ** 2).sum(0)])


@given(
    counts=st.tuples(*[st.integers(0, 30)] * 3),
    seed=st.integers(0, 2**32 - 1),
    shift=st.sampled_from([0.0, 100.0]),
)
def test_merging_two_workers_additions_gives_the_moments_of_all(counts, seed, shift):
    rng = np.random.default_rng(seed)
    common, mine, others = (
        rng.normal(size=(n, SIZE)) + shift * i for i, n in enumerate(counts)
    )
    before = moments(common)
    total = moments(np.concatenate([common, others]))
    after = moments(np.concatenate([common, mine]))
    result = merged(total, before, after, [slice(0, 1 + 2 * SIZE)])
    expected = moments(np.concatenate([common, others, mine]))
    assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@given(seen=st.integers(1, 400), mine=st.integers(0, 30), others=st.integers(0, 30))
def test_with_a_window_new_samples_merge_onto_decayed_moments(seen, mine, others):
    """Each decays the existing moments to 100 samples before it adds its own."""
    rng = np.random.default_rng(seen)
    before = moments(rng.normal(size=(seen, SIZE)))
    new, newer = (rng.normal(size=(n, SIZE)) + 3 for n in (mine, others))

    def added(stats, rows):
        if not len(rows):
            return stats
        kept = stats.copy()
        kept[[0, *range(1 + SIZE, 1 + 2 * SIZE)]] *= min(1.0, 100 / stats[0])
        return merged(kept, np.zeros(1 + 2 * SIZE), moments(rows), PLACE)

    total = added(before, newer)
    after = added(before, new)
    result = merged(total, before, after, PLACE, window=100)
    assert_allclose(result, added(total, new), rtol=1e-9)
    assert result[0] <= max(seen, 100 + mine + others)


def test_other_statistics_are_averaged_by_share():
    result = merged(
        total=np.array([1.0, 5.0]),
        before=np.array([1.0, 4.0]),
        after=np.array([1.5, 4.0]),
        moments=[],
        share=0.25,
    )
    assert_array_equal(result, [1.125, 4.75])


@given(st.integers(2, 16), st.integers(1, 5), st.integers(0, 1000))
def test_a_variance_that_many_workers_average_stays_a_variance(
    num_workers, steps, seed
):
    """Batch normalisation whose first batches are much calmer than the value it begins
    with."""
    rng = np.random.default_rng(seed)
    total = np.ones(1)
    pulled = [total.copy() for _ in range(num_workers)]
    for _ in range(6 * num_workers):
        who = rng.integers(num_workers)
        own = pulled[who]
        for _ in range(steps):
            own = 0.9 * own + 0.1 * rng.uniform(0, 0.02, 1)
        total = pulled[who] = merged(
            total=total,
            before=pulled[who],
            after=own,
            moments=[],
            share=1 / num_workers,
        )
        assert 0 < total[0] <= 1


@pytest.mark.parametrize("moments_at", [[], [slice(0, 3)]])
def test_merging_without_other_additions_is_exact(moments_at):
    before = np.array([3.0, 0.1, 0.7])
    after = np.array([4.0, 0.1 + 1e-17, 1 / 3])
    result = merged(before.copy(), before, after, moments_at)
    assert_array_equal(result, after)
    assert result is not after


PLACES = [slice(1, 2 + 2 * SIZE)]
"""Of moments in vectors that begin with an average and end with another."""


def statistics(rows, averages):
    return np.concatenate([averages[:1], moments(rows), averages[1:]])


@given(
    counts=st.lists(st.integers(0, 30), min_size=4, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    shift=st.sampled_from([0.0, 100.0]),
)
def test_combined_moments_equal_those_of_all_rows_and_averages_are_averaged(
    counts, seed, shift
):
    """Rows of three processes that began with common ones, each somewhere else."""
    rng = np.random.default_rng(seed)
    common, *own = (
        rng.normal(size=(n, SIZE)) + shift * i for i, n in enumerate(counts)
    )
    averages = rng.normal(size=(4, 2))
    before = statistics(common, averages[0])
    afters = np.stack(
        [
            statistics(np.concatenate([common, rows]), average)
            for rows, average in zip(own, averages[1:], strict=True)
        ]
    )
    result = merged_by_all(before, afters, PLACES)
    expected = statistics(np.concatenate([common, *own]), averages[1:].mean(0))
    assert_allclose(result, expected, rtol=1e-6, atol=1e-6)
