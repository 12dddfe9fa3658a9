"""What the learner requests from actors on a cluster, and how it handles slow or lost
ones."""

import pytest
from ray.exceptions import RayTaskError

from slm_lab.core.errors import LabError
from slm_lab.parallel.hang_detector import HANG_SECONDS
from slm_lab.session.seeding import session_seeds
from slm_lab.session.status_board import Phase
from tests.unit.parallel.actor_learner.fake_ray import FRAMES, Lab, replace_ray


@pytest.fixture
def ray(monkeypatch):
    return replace_ray(monkeypatch)


@pytest.fixture
def lab(ray):
    def make(actors=2, max_frame=100 * FRAMES, frame=0, max_restart=1, **flow):
        return Lab(ray, actors, max_frame, frame, max_restart, **flow)

    return make


def test_an_actor_has_as_many_unrolls_in_flight_as_the_queue_has_room_for(lab):
    lab = lab(learn_queue=2, queue_size=1)
    lab.begin()
    assert lab.asked() == [2, 2]
    lab.actors[0].has_played()
    lab.actors[0].has_played()
    assert [lab.receive(), lab.receive()] == [(0, 0), (0, 1)]
    lab.poll()
    assert lab.asked() == [2, 2]
    lab.source.give_back(0)
    assert lab.asked() == [3, 2]


@pytest.mark.parametrize("frame", [0, 3 * FRAMES])
def test_unrolls_are_requested_up_to_the_budget_and_lost_ones_again(lab, frame):
    lab = lab(max_frame=frame + 2 * FRAMES + 1, frame=frame, queue_size=2)
    lab.begin()
    assert lab.asked() == [2, 1]
    lost = lab.actors[0]
    lost.is_lost()
    lab.poll()
    assert lost.is_killed
    assert lab.asked() == [3]
    lab.poll()
    lab.actors[1].has_begun()
    lab.poll()
    assert lab.asked() == [3, 0]


def test_the_unrolls_of_an_actor_are_received_in_order(lab):
    lab = lab(actors=1)
    lab.begin()
    lab.actors[0].has_played(number=1)
    assert lab.receive() is None
    lab.actors[0].has_played(number=0)
    assert [lab.receive(), lab.receive(), lab.receive()] == [(0, 0), (0, 1), None]


def test_actors_begin_with_the_published_weights_and_receive_newer_ones(lab):
    lab = lab()
    lab.poll()
    assert lab.ray.actors == []
    lab.publish(7)
    lab.begin()
    assert [actor.begin.calls[0].given[-1].version for actor in lab.actors] == [1, 1]
    lab.poll()
    assert [actor.take.calls for actor in lab.actors] == [[], []]
    lab.publish(8)
    lab.poll(after=0.0)
    assert [[c.given[0].version for c in a.take.calls] for a in lab.actors] == [
        [8],
        [8],
    ]


def test_actors_receive_the_frames_of_the_others(lab):
    lab = lab()
    lab.begin()
    lab.actors[1].has_played(frame=FRAMES)
    lab.actors[0].frame.calls[-1].come(FRAMES // 2)
    lab.poll()
    lab.receive()
    lab.source.give_back(1)
    assert lab.actors[1].play.calls[-1].given == (FRAMES // 2,)
    assert list(lab.status_board.clock_slots) == [0, FRAMES // 2, FRAMES]
    lab.actors[0].is_lost()
    lab.poll()
    lab.poll()
    seeds, frame, others = lab.actors[1].begin.calls[0].given[1:4]
    assert (frame, others) == (FRAMES // 2, FRAMES)
    # it plays other episodes
    assert seeds not in [session_seeds(0, 0, actor) for actor in (0, 1)]


def test_a_dead_actor_is_replaced_up_to_max_restart_and_the_others_continue(lab):
    lab = lab(max_restart=1)
    lab.begin()
    for _ in range(2):
        lab.actors[-1].is_lost()
        lab.poll()
        assert not lab.source.is_exhausted
        lab.poll()
    assert lab.phases() == [Phase.RUNNING, Phase.FAILED]
    (lost,) = lab.lost
    assert (lost.session, lost.restarts) == (1, 1)
    assert "its node or its process was lost" in lost.error
    assert lab.status_board.read(2).restarts == 1
    lab.actors[0].has_played()
    assert lab.receive() == (0, 0)


def test_unrolls_of_a_lost_actor_count_for_its_replacement(lab):
    lab = lab(actors=1, queue_size=2)
    lab.begin()
    assert lab.asked() == [3]
    lab.actors[0].has_played()
    lab.receive()
    lab.actors[0].is_lost()
    lab.poll()
    lab.poll()
    lab.actors[0].has_begun()
    lab.poll()
    assert lab.asked() == [2]
    lab.source.give_back(0)
    assert lab.asked() == [3]


def test_an_actor_that_fails_before_its_first_step_is_not_replaced(lab):
    lab = lab(max_restart=9)
    lab.publish()
    lab.poll()
    cause = LabError("Odd-v0 cannot be made")
    lab.actors[0].is_lost(RayTaskError("begin", "Traceback", cause))
    lab.poll()
    assert lab.phases()[0] is Phase.FAILED
    assert [(lost.session, lost.error) for lost in lab.lost] == [
        (0, "Odd-v0 cannot be made")
    ]


def test_an_actor_that_fails_later_is_replaced(lab):
    lab = lab(max_restart=9)
    lab.begin()
    lab.actors[0].has_played()
    lab.receive()
    cause = ZeroDivisionError("the pole broke")
    lab.actors[0].is_lost(RayTaskError("play", "Traceback", cause))
    lab.poll()
    assert lab.phases()[0] is Phase.WAITING
    assert lab.lost == []


@pytest.mark.parametrize(("begins", "what"), [(False, "start"), (True, "step")])
def test_an_actor_whose_call_never_ends_is_replaced_in_time(lab, begins, what):
    lab = lab(actors=1, max_restart=0)
    lab.begin() if begins else lab.publish()
    lab.poll()
    while not lab.lost:
        lab.poll(after=20.0)
        assert lab.ray.now < HANG_SECONDS + 60.0
    assert lab.ray.now > HANG_SECONDS
    assert f"Session 0 hangs: its {what} has not ended" in lab.lost[0].error
    assert lab.ray.actors[0].is_killed


def test_an_actor_that_steps_or_waits_for_the_learner_does_not_hang(lab):
    lab = lab(max_restart=0)
    lab.begin()
    slow, idle = lab.actors
    idle.has_played()
    idle.has_played()
    for frame in range(1, 60):
        slow.frame.calls[-1].come(frame)
        lab.poll(after=20.0)
    assert lab.ray.now > 3 * HANG_SECONDS
    assert lab.lost == []


def test_after_a_stop_no_actor_is_started(lab):
    lab = lab()
    lab.begin()
    lab.status_board.request_stop()
    lab.actors[0].is_lost()
    assert lab.source.receive(0.0) is None
    lab.poll()
    assert len(lab.ray.actors) == 2
    lab.source.end()
    assert lab.phases() == [Phase.STOPPED, Phase.STOPPED]
    assert lab.actors == []


def test_at_the_end_no_actor_is_left(lab):
    lab = lab()
    lab.begin()
    lab.source.end()
    assert lab.phases() == [Phase.DONE, Phase.DONE]
    lab.source.close()
    assert lab.actors == []
    assert not lab.ray.is_connected


def test_a_cluster_that_is_too_small_is_reported_at_once(ray, lab):
    ray.cpus = 1
    with pytest.raises(
        LabError, match=r"2 actors need 2 CPU of the Ray cluster, which has 1"
    ):
        lab()
    assert not ray.is_connected


def test_seconds_are_those_that_the_actors_report(lab):
    lab = lab()
    lab.begin()
    lab.actors[0].has_played()
    lab.receive()
    assert lab.source.seconds == (1.0, 2.0, 0.5)
