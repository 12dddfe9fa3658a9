"""Observations from a user: one or a batch, by their shapes; others are refused."""

import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from slm_lab.env.adapter import PolicyAdapter
from tests.unit.env.wrapped import Ends

PARTS = spaces.Dict(
    {
        "a": spaces.Box(-1, 1, (2, 3), np.float32),
        "b": spaces.Discrete(3, start=1),
        "c": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(-1, 1, (1,), np.float64))),
    }
)


class WithParts(Ends):
    observation_space = PARTS


class Indexed(Ends):
    observation_space = spaces.Discrete(4, start=2)


@pytest.fixture
def adapter(env_spec, registered):
    return PolicyAdapter(env_spec(registered("Parts-v0", WithParts)))


@pytest.fixture
def observations():
    PARTS.seed(0)
    return [PARTS.sample() for _ in range(4)]


def batched(observations):
    a, b = (np.stack([each[key] for each in observations]) for key in "ab")
    c = tuple(
        np.stack(part)
        for part in zip(*(each["c"] for each in observations), strict=True)
    )
    return {"a": a, "b": b, "c": c}


def test_parts_become_the_vector_that_gymnasium_makes(adapter, observations):
    expected = [spaces.flatten(PARTS, each) for each in observations]
    batch = adapter.batch(batched(observations))
    assert not batch.is_single
    assert_array_equal(batch.obs, np.float32(expected))
    for own, row in zip(observations, batch.obs, strict=True):
        one = adapter.batch(own)
        assert one.is_single
        assert_array_equal(one.obs, [row])
    assert not adapter.batch(batched(observations[:1])).is_single


def test_a_part_may_lack_an_axis_of_length_1_as_in_training(adapter, observations):
    bits, number = observations[0]["c"]
    one = adapter.batch({**observations[0], "c": (bits, float(number[0]))})
    assert_array_equal(one.obs, adapter.batch(observations[0]).obs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"a": np.zeros((3, 2))}, r'"a" has the shape \(3, 2\); one has \(2, 3\)'),
        (
            {"a": np.zeros(6)},
            r'"a" has the shape \(6,\); one has \(2, 3\), a batch \(B, 2, 3\)',
        ),
        ({"a": [[1], [1, 2]]}, '"a" is no array'),
        ({"a": "x"}, '"a" has the shape'),
        ({"b": 4}, r'"b" is 4, which is not in Discrete\(3, start=1\)'),
        ({"b": 1.0}, '"b" is 1.0, which is not in'),
        ({"z": 1}, '"z" is not in it; it has a, b, c'),
        ({"c": (1,)}, '"c" has the length 1, its space 2'),
        ({"c": None}, '"c" is of the type NoneType, its space a Tuple'),
    ],
)
def test_an_observation_with_another_part_is_refused(
    adapter, observations, change, message
):
    with pytest.raises(ValueError, match=f"no observation of Parts-v0, .*{message}"):
        adapter.batch({**observations[0], **change})


def test_the_tuple_of_reset_is_no_observation(adapter):
    with pytest.raises(
        ValueError, match=r"its space a Dict \(reset and step return more than it"
    ):
        adapter.batch(({}, {}))


@pytest.mark.parametrize("obs", [6, 1.5, "x", None, [], [2, 6]])
def test_an_index_outside_of_its_space_is_refused(env_spec, registered, obs):
    adapter = PolicyAdapter(env_spec(registered("Indexed-v0", Indexed)))
    assert adapter.batch(5).is_single
    assert not adapter.batch([2, 5]).is_single
    with pytest.raises(ValueError, match="no observation of Indexed-v0"):
        adapter.batch(obs)


class Image(Ends):
    observation_space = spaces.Box(0, 255, (4, 4, 3), np.uint8)


@pytest.fixture
def image_adapter(env_spec, registered):
    return PolicyAdapter(env_spec(registered("Image-v0", Image)))


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64])
def test_an_image_may_have_its_numbers_in_another_type(image_adapter, dtype):
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    obs = image_adapter.batch(image.astype(dtype)).obs
    assert obs.dtype == np.uint8
    assert_array_equal(obs, [image])


@pytest.mark.parametrize("value", [0.5, 256, -1, np.nan])
def test_an_image_of_other_numbers_is_refused(image_adapter, value):
    with pytest.raises(ValueError, match=r"with the value .*, which uint8 cannot hold"):
        image_adapter.batch(np.full((4, 4, 3), value))


class WithADot(Ends):
    pose = spaces.Box(-1, 1, (2,), np.float32)
    observation_space = spaces.Dict({"robot.pose": pose, "friction": pose})


def test_a_needed_part_with_a_dot_in_its_key_is_missed_by_name(env_spec, registered):
    spec = env_spec(registered("WithADot-v0", WithADot))
    adapter = PolicyAdapter(spec, ("robot.pose",))
    pose = np.ones(2, np.float32)
    assert_array_equal(adapter.batch({"robot.pose": pose}).obs, [[0, 0, 1, 1]])
    with pytest.raises(ValueError, match=r'"robot\.pose" is missing'):
        adapter.batch({"friction": pose})


class Masked(Ends):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        return obs, {**info, "mask": [1, 1, 1]}


@pytest.mark.parametrize(
    ("obs", "mask", "message"),
    [((4,), (), "many observations and one mask"), ((), (4,), "many masks and one")],
)
def test_a_batch_needs_a_mask_for_each(env_spec, registered, obs, mask, message):
    name = registered("Masked-v0", Masked)
    adapter = PolicyAdapter(env_spec(name, action_mask="info.mask"))
    zeros = np.zeros((*obs, 2), np.float32)
    with pytest.raises(ValueError, match=message):
        adapter.batch(zeros, np.ones((*mask, 3)))
    assert len(adapter.batch(np.zeros((4, 2), np.float32), np.ones((4, 3))).obs) == 4


def test_a_missing_mask_is_asked_for_at_its_place_in_the_info(env_spec, registered):
    name = registered("Masked-v0", Masked)
    adapter = PolicyAdapter(env_spec(name, action_mask="info.rules.mask"))
    with pytest.raises(ValueError, match=r"as mask=info\['rules'\]\['mask'\]$"):
        adapter.batch(np.zeros(2, np.float32))
