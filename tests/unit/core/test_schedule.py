"""Schedules: ends, directions, shapes."""

from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from slm_lab.core.errors import SpecError
from slm_lab.core.schedule import Schedule
from tests.support import parse, ppo

DECAYS = ["linear_decay", "rate_decay", "periodic_decay"]
values = st.floats(0, 10)


def changing(shape, start, end):
    return Schedule(start, end, start_step=100, end_step=1100, shape=shape)


@given(name=st.sampled_from(DECAYS), start=values, end=values)
def test_a_schedule_starts_and_ends_where_it_says(name, start, end):
    schedule = changing(name, start, end)
    assert schedule.at(0) == schedule.at(100) == start
    assert schedule.at(1100) == schedule.at(10**9) == end


@given(
    name=st.sampled_from(DECAYS), start=values, end=values, frame=st.integers(0, 2000)
)
def test_a_schedule_never_leaves_its_ends(name, start, end, frame):
    low = min(start, end)
    high = max(start, end)
    assert low - 1e-9 <= changing(name, start, end).at(frame) <= high + 1e-9


@given(name=st.sampled_from(["linear_decay", "rate_decay"]), start=values, end=values)
def test_a_decay_moves_one_way(name, start, end):
    schedule = changing(name, start, end)
    path = [schedule.at(frame) for frame in range(0, 1300, 50)]
    if start < end:
        path = [-value for value in path]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(path))


def test_rate_decay_compounds_by_a_tenth_in_twenty_steps():
    schedule = changing("rate_decay", 1.0, 0.0)
    assert schedule.at(100 + 50) == pytest.approx(0.9)
    assert schedule.at(100 + 500) == pytest.approx(0.9**10)


def test_no_decay_is_constant():
    schedule = changing("no_decay", 0.2, 0.0)
    assert schedule.at(0) == schedule.at(10**9) == 0.2


def test_an_unknown_schedule_is_refused():
    with pytest.raises(SpecError, match="cosine"):
        parse(ppo(agent__algorithm__clip_eps_spec__name="cosine"))
