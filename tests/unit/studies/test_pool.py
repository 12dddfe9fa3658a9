"""How many trials fit at a time, and which devices each of them sees."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.errors import UsageError
from slm_lab.spec.schema.meta import SearchResourcesSpec
from slm_lab.studies import pool as process
from slm_lab.studies.pool import (
    Request,
    Resources,
    local_resources,
    request_of,
)
from tests.support import parse, ppo


def fill(room, wanted):
    """Resources for as many as fit."""
    places = []
    while room.has(wanted):
        places.append(room.take(wanted))
        assert len(places) < 1000
    return places


@pytest.mark.parametrize(
    ("gpus", "need", "count"),
    [
        (1, 1, 1),
        (2, 0.5, 4),
        (1, 1 / 3, 3),
        (2, 0.1, 20),
        (4, 2, 2),
        (3, 2, 1),
        (2, 0.75, 2),
    ],
)
def test_as_many_trials_fit_as_there_are_gpus_or_cores(gpus, need, count):
    assert len(fill(Resources(gpus, 0), Request(need, 0))) == int(gpus / need + 1e-6)
    places = fill(Resources(1000, gpus), Request(1, need))
    assert len(places) == count
    assert all(len(place.gpus) == max(need, 1) // 1 for place in places)
    assert {gpu for place in places for gpu in place.gpus} <= set(range(gpus))


def test_shares_fill_one_gpu_so_that_others_stay_whole():
    room = Resources(8, 2)
    first, second = room.take(Request(1, 0.5)), room.take(Request(1, 0.5))
    assert first.gpus == second.gpus
    (whole,) = room.take(Request(1, 1)).gpus
    assert whole not in first.gpus


NEEDS = st.builds(
    Request,
    st.sampled_from([0.1, 1 / 3, 0.5, 1, 2]),
    st.sampled_from([0, 0.1, 1 / 3, 0.5, 1, 2]),
)


@given(st.lists(st.tuples(NEEDS, st.integers(0, 5)), max_size=40))
def test_released_resources_can_be_taken_again(steps):
    room, places = Resources(4, 3), []
    for wanted, which in steps:
        if room.has(wanted):
            places.append(room.take(wanted))
        elif places:
            room.give_back(places.pop(which % len(places)))
        taken = [
            sum(min(p.request.gpu, 1) for p in places if gpu in p.gpus)
            for gpu in range(3)
        ]
        assert max(taken) <= 1 + 1e-6
        assert sum(place.request.cpu for place in places) <= 4 + 1e-6
    for place in places:
        room.give_back(place)
    assert room.has(Request(4, 3))
    assert len(fill(room, Request(1, 0.5))) == 4


@pytest.mark.parametrize(
    ("wanted", "gpus", "fix"),
    [
        (
            Request(9, 0),
            0,
            "cpu = 9: a trial occupies more cores than there are; set it to at most 2",
        ),
        (
            Request(1, 0.25),
            0,
            "gpu = 0.25: a trial occupies more GPUs .*; set it to 0, there is none",
        ),
        (
            Request(1, 2),
            1,
            "gpu = 2: a trial occupies more GPUs .*; set it to at most 1",
        ),
    ],
)
def test_a_request_that_never_fits_is_reported_with_the_largest_that_does(
    wanted, gpus, fix
):
    with pytest.raises(UsageError, match=rf"^meta\.search_resources\.{fix}$"):
        Resources(2, gpus).check(wanted)


def test_a_request_that_fits_once_others_end_is_not_refused():
    room = Resources(2, 1)
    room.take(Request(2, 1))
    assert not room.has(Request(2, 1))
    room.check(Request(2, 1))


def wanted(cpus=8, cpu=1.0, gpu=0.0, **changes):
    return request_of(
        parse(ppo(**changes)), SearchResourcesSpec(cpu=cpu, gpu=gpu), cpus
    )


@pytest.mark.parametrize(
    ("changes", "cpu"),
    [
        ({}, 1),
        ({"meta__max_session": 3}, 3),
        ({"meta__max_session": 3, "meta__threads": 2}, 6),
        ({"meta__max_session": 20}, 8),
        (
            {"meta__distributed": "shared", "meta__max_session": 2, "meta__max_run": 3},
            2,
        ),
        ({"meta__distributed": "actor_learner", "meta__max_session": 2}, 3),
    ],
)
def test_by_default_a_trial_occupies_a_core_for_each_of_its_processes(changes, cpu):
    assert wanted(**changes) == Request(cpu, 0)


def test_given_resources_are_taken():
    assert wanted(cpu=0.5, gpu=0.25, meta__max_session=4) == Request(0.5, 0.25)


def test_this_machine_has_the_cores_that_the_process_may_run_on():
    room = local_resources(with_gpus=False)
    assert room.cpus == len(os.sched_getaffinity(0))
    with pytest.raises(UsageError, match="gpu"):
        room.check(Request(1, 1))


@pytest.mark.parametrize(
    ("visible", "gpus", "named"),
    [
        (None, (0, 2), ["0", "2"]),
        ("", (1,), ["1"]),
        ("4,5,7", (0, 2), ["4", "7"]),
        ("GPU-a,MIG-b", (1,), ["MIG-b"]),
        ("3", (), []),
    ],
)
def test_a_trial_sees_its_gpus_by_the_names_that_this_process_has_for_them(
    visible, gpus, named, monkeypatch
):
    monkeypatch.delenv(process.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(process.VISIBLE, visible)
    assert process._visible(gpus) == named
