import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.session.experience import Clock


def clocks(count, max_frame=1000):
    slots = np.zeros(count, np.int64)
    return slots, [Clock(slots, index, max_frame) for index in range(count)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 64)), max_size=50))
def test_each_clock_writes_its_own_slot_and_the_total_is_the_sum_of_all(ticks):
    slots, all_clocks = clocks(4)
    expected = [0, 0, 0, 0]
    for index, frames in ticks:
        all_clocks[index].tick(frames)
        expected[index] += frames
    assert slots.tolist() == expected
    assert [clock.frame for clock in all_clocks] == expected
    assert {clock.total_frame for clock in all_clocks} == {sum(expected)}


def test_a_clock_alone_counts_what_it_ticks():
    slots, (clock,) = clocks(1)
    for _ in range(5):
        clock.tick(8)
    assert clock.frame == clock.total_frame == slots[0] == 40


@pytest.mark.parametrize("others", [0, 1, 3])
def test_the_budget_is_exhausted_when_the_total_reaches_it_and_not_before(others):
    _, all_clocks = clocks(1 + others, max_frame=100)
    for clock in all_clocks[1:]:
        clock.tick(10)
    mine = all_clocks[0]
    mine.tick(99 - 10 * others)
    assert not any(clock.exhausted for clock in all_clocks)
    mine.tick(1)
    assert all(clock.exhausted for clock in all_clocks)
    mine.tick(7)
    assert all(clock.exhausted for clock in all_clocks)


def test_a_resumed_session_sets_its_frame_and_ticks_on_from_there():
    slots, (mine, other) = clocks(2)
    other.tick(5)
    mine.set(300)
    mine.tick(4)
    assert slots.tolist() == [304, 5]
    assert mine.total_frame == 309


def test_a_clock_takes_up_what_its_slot_already_holds():
    clock = Clock(np.array([3, 40], np.int64), 1, 100)
    clock.tick(1)
    assert (clock.frame, clock.total_frame) == (41, 44)


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.uint64])
def test_slots_of_another_type_are_refused(dtype):
    with pytest.raises(TypeError, match="int64"):
        Clock(np.zeros(1, dtype), 0, 1)
