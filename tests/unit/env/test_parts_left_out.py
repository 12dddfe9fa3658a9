"""Observations without the parts that the actor does not see."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.env.adapter import PolicyAdapter
from slm_lab.spec.schema.env import EnvSpec


def box(size):
    return spaces.Box(-1.0, 1.0, (size,), np.float32)


class Arm(gymnasium.Env):
    """Its observations have what only the critic sees, at every depth."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Dict(
        {
            "robot": spaces.Dict({"pose": box(2), "friction": box(1)}),
            "pair": spaces.Tuple(
                (box(1), spaces.Dict({"seen": box(1), "not": box(1)}))
            ),
            "world": spaces.Dict({"wind": box(3)}),
        }
    )


class Pair(Arm):
    observation_space = spaces.Tuple((box(2), box(1)))


SEEN = ("robot.pose", "pair.1.seen")


def numbers(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture
def adapter_of(registered):
    """Makes the adapter of a policy that sees some parts of an environment."""

    def make(env, *seen):
        name = registered(f"{env.__name__}-v0", entry_point=env)
        return PolicyAdapter(EnvSpec(name=name, max_frame=1000), seen)

    return make


@pytest.mark.parametrize("world", [{}, {"world": None}, {"world": {}}])
@pytest.mark.parametrize("friction", [{}, {"friction": None}])
def test_parts_at_any_depth_may_be_missing(adapter_of, world, friction):
    robot = {"pose": numbers(2), **friction}
    obs = {"robot": robot, "pair": (None, {"seen": numbers(1)}), **world}
    batch = adapter_of(Arm, *SEEN).batch(obs)
    assert batch.is_single
    assert batch.parts.keys() == set(SEEN)


def test_a_batch_may_lack_them_too(adapter_of):
    robot = {"pose": numbers(4, 2)}
    obs = {"robot": robot, "pair": (None, {"seen": numbers(4, 1)})}
    batch = adapter_of(Arm, *SEEN).batch(obs)
    assert not batch.is_single
    assert {part.shape[0] for part in batch.parts.values()} == {4}


def test_of_a_tuple_none_takes_the_place_of_a_part(adapter_of):
    adapter = adapter_of(Pair, "0")
    assert adapter.batch((numbers(2), None)).parts.keys() == {"0"}
    assert adapter.batch((numbers(2), numbers(1))).parts.keys() == {"0", "1"}


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"robot": {}}, 'the observation "robot.pose" is missing'),
        ({"robot": None}, 'the observation "robot" is of the type NoneType'),
        ({"robot": {"pose": numbers(2), "x": 1}}, 'the observation "robot.x" is not'),
        ({"robot": {"pose": numbers(2)}, "pair": ()}, "has the length 0, its space 2"),
    ],
)
def test_what_the_actor_sees_must_be_there(adapter_of, obs, message):
    pair = (None, {"seen": numbers(1)})
    adapter = adapter_of(Arm, *SEEN)
    with pytest.raises(ValueError, match=message):
        adapter.batch({"pair": pair, **obs})
