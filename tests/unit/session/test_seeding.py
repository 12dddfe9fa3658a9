from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.session.seeding import draw_root_seed, process_seeds, session_seeds

roots = st.integers(0, 2**32 - 1)
PLACES = [(trial, session) for trial in range(6) for session in range(6)]


def words(*place):
    """The seeds of the lab's own generators."""
    return astuple(session_seeds(*place))[:-1]


@given(roots, st.integers(0, 50), st.integers(0, 50))
def test_the_same_root_gives_the_same_seeds(root, trial, session):
    assert session_seeds(root, trial, session) == session_seeds(root, trial, session)


def test_every_session_trial_part_and_root_has_a_seed_of_its_own():
    seeds = [
        seed for root in range(20) for place in PLACES for seed in words(root, *place)
    ]
    assert len(seeds) == 20 * 36 * 7
    assert len(set(seeds)) == len(seeds)


def test_a_replacement_that_starts_later_has_new_seeds():
    seeds = [
        seed
        for place in PLACES
        for frame in (0, 1, 2, 3, 6, 4096)
        for seed in words(3, *place, frame)
    ]
    assert len(set(seeds)) == len(seeds) == 36 * 6 * 7


@given(roots, st.integers(0, 100), st.integers(0, 100))
def test_a_seed_fits_where_libraries_take_32_bits(root, trial, session):
    for seed in words(root, trial, session):
        assert isinstance(seed, int)
        assert 0 <= seed < 2**32


def test_drawn_root_seeds_differ_and_can_be_typed_again():
    drawn = {draw_root_seed() for _ in range(20)}
    assert len(drawn) == 20
    assert all(0 <= seed < 2**32 for seed in drawn)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (
            (0, 0, 0),
            (
                3678467582,
                1745761672,
                4037452230,
                167640152,
                2403480109,
                646613169,
                1374931911,
            ),
        ),
        (
            (7, 3, 2, 4096),
            (
                3915864330,
                2456422110,
                16246446,
                607822181,
                2315098740,
                771711814,
                488182481,
            ),
        ),
    ],
)
def test_the_seeds_of_recorded_runs_stay_as_they_are(place, expected):
    assert words(*place) == expected


def test_global_generators_have_seeds_of_their_own_in_every_process_and_run():
    seeds = [
        seed
        for root in range(20)
        for place in PLACES
        for frame in (0, 1, 2, 4096, 2**33)
        for seed in astuple(process_seeds(root, *place, frame))
    ]
    assert len(set(seeds)) == len(seeds) == 20 * 36 * 5 * 3
    assert max(seeds).bit_length() == 128, (
        "with 32 bits some of many seeds would be equal"
    )
