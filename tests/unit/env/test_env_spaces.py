import inspect

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from slm_lab.core.errors import LabError, SpecError
from slm_lab.env.convert.action import ActionConverter, action_converter
from slm_lab.env.convert.observation import ObservationConverter


@given(st.integers(-5, 5), st.integers(1, 6), st.data())
def test_a_discrete_observation_becomes_one_hot(start, count, data):
    space = spaces.Discrete(count, start=start)
    raw = np.array(
        data.draw(st.lists(st.integers(start, start + count - 1), min_size=1))
    )
    converter = ObservationConverter(space, "X")
    seen = converter.convert(raw)
    assert_array_equal(seen, np.eye(count, dtype=np.float32)[raw - start], strict=True)
    assert all(row in converter.space for row in seen)


def test_a_multi_discrete_observation_becomes_one_hots_side_by_side():
    converter = ObservationConverter(spaces.MultiDiscrete([2, 3]), "X")
    seen = converter.convert(np.array([[1, 0], [0, 2]]))
    assert_array_equal(seen, [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("space", "valid", "outside"),
    [
        (spaces.Discrete(3, start=1), [1, 3], [0, 4, 9, -1]),
        (spaces.Discrete(2), [0, 1], [-1, 2]),
        (
            spaces.MultiDiscrete([2, 3]),
            [[1, 0], [0, 2]],
            [[2, 0], [0, 3], [-1, 0], [0, -1]],
        ),
        (
            spaces.MultiDiscrete([2, 3], start=[1, 5]),
            [[1, 5], [2, 7]],
            [[0, 5], [3, 5], [1, 8]],
        ),
    ],
    ids=str,
)
def test_a_value_outside_a_discrete_space_is_refused_with_its_number(
    space, valid, outside
):
    converter = ObservationConverter(space, "X")
    for raw in outside:
        with pytest.raises(LabError) as caught:
            converter.convert(np.array([*valid, raw]))
        fault = f"the observation of copy {len(valid)} is {raw}, which {space} has not"
        assert str(caught.value).startswith(
            f"X breaks its own observation space: {fault}; fix "
        )
    assert (
        converter.convert(np.array(valid)).sum(1) == max(1, np.size(valid[0]))
    ).all()


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), np.float32),
        (spaces.Box(0, 9, (2, 2), np.int64), np.float32),
        (spaces.Box(0, 255, (8,), np.uint8), np.uint8),
        (spaces.MultiBinary(4), np.float32),
    ],
)
def test_observations_are_float32_but_bytes_stay_bytes(space, dtype):
    converter = ObservationConverter(space, "X")
    raw = np.stack([space.sample() for _ in range(5)])
    seen = converter.convert(raw)
    assert seen.dtype == converter.space.dtype == dtype
    assert_array_equal(seen, raw.astype(dtype).reshape(seen.shape))


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(-1, 1, (2, 3)), (6,)),
        (spaces.Box(0, 9, (), np.int64), (1,)),
        (spaces.MultiBinary((2, 2)), (4,)),
        (spaces.Box(-1, 1, (3,)), (3,)),
        (spaces.Box(0, 1, (1, 8, 8)), (1, 8, 8)),
        (spaces.Box(0, 255, (8, 8), np.uint8), (1, 8, 8)),
    ],
)
def test_a_matrix_or_a_number_is_a_vector_for_the_agent_and_an_image_is_not(
    space, shape
):
    converter = ObservationConverter(space, "X")
    raw = np.stack([space.sample() for _ in range(5)])
    seen = converter.convert(raw)
    assert converter.space.shape == seen.shape[1:] == shape
    assert_array_equal(seen.ravel(), raw.ravel())
    assert all(row in converter.space for row in seen)


BOX = spaces.Box(
    np.array([-2.0, 0.0, -np.inf, 1.0], np.float32),
    np.array([2.0, 10.0, np.inf, np.inf], np.float32),
)


def test_an_agent_sees_bounded_actions_between_minus_one_and_one():
    converter = ActionConverter(BOX, "X")
    assert_array_equal(converter.space.low, [-1, -1, -np.inf, 1])
    assert_array_equal(converter.space.high, [1, 1, np.inf, np.inf])


@given(st.lists(st.floats(-100, 100, width=32), min_size=4, max_size=4))
def test_every_action_is_scaled_into_the_bounds(action):
    raw = ActionConverter(BOX, "X").convert(np.array([action], np.float32))[0]
    assert raw.dtype == np.float32
    assert raw in BOX
    first, second, third, fourth = action
    assert_allclose(raw[0], 2 * np.clip(first, -1, 1), rtol=1e-6, atol=1e-6)
    assert_allclose(raw[1], 5 + 5 * np.clip(second, -1, 1), rtol=1e-6, atol=1e-6)
    assert raw[2] == third
    assert raw[3] == max(1, fourth)


def test_discrete_actions_count_from_zero_for_the_agent():
    converter = ActionConverter(spaces.Discrete(3, start=-1), "X")
    assert converter.space == spaces.Discrete(3)
    assert_array_equal(converter.convert(np.array([0, 2])), [-1, 1])
    action = np.array([0, 1])
    assert ActionConverter(spaces.Discrete(2), "X").convert(action) is action


def test_a_joint_number_counts_all_combinations_the_last_component_first():
    space = spaces.MultiDiscrete([2, 3, 4], start=[1, 0, -2])
    converter = action_converter(space, "X", mask_sizes=[24])
    assert converter.space == spaces.Discrete(24)
    converted = converter.convert(np.arange(24))
    assert converted.tolist() == [
        [1 + a, b, c - 2] for a in range(2) for b in range(3) for c in range(4)
    ]
    apart = action_converter(space, "X", mask_sizes=[2, 3, 4])
    assert apart.space == spaces.MultiDiscrete([2, 3, 4])


SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=3)
INTEGERS = st.sampled_from([np.int64, np.int32, np.uint8])
TYPED = {"dtype": INTEGERS}
if "dtype" not in inspect.signature(spaces.Discrete).parameters:
    TYPED = {}  # before Gymnasium 1.3


@st.composite
def multi_discrete(draw):
    shape = draw(SHAPES)
    dtype = draw(INTEGERS)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    start = rng.integers(0 if dtype is np.uint8 else -4, 5, shape)
    return spaces.MultiDiscrete(rng.integers(1, 6, shape), dtype, start=start)


MULTI_ACTIONS = st.one_of(multi_discrete(), st.builds(spaces.MultiBinary, SHAPES))


@given(MULTI_ACTIONS, st.integers(0, 99), st.sampled_from([np.int64, np.int8]))
def test_multi_actions_reach_the_environment_in_its_own_shape_and_type(
    space, seed, dtype
):
    converter = ActionConverter(space, "X")
    space.seed(seed)
    wanted = np.stack([space.sample() for _ in range(3)])
    counted_from_zero = (
        wanted.reshape(3, -1) - getattr(space, "start", np.zeros(())).ravel()
    )
    actions = counted_from_zero.astype(dtype)
    assert actions.shape[1:] == converter.space.shape
    assert all(
        action.astype(converter.space.dtype) in converter.space for action in actions
    )
    assert_array_equal(converter.convert(actions), wanted, strict=True)


@given(
    st.one_of(
        MULTI_ACTIONS,
        st.builds(spaces.Discrete, st.integers(1, 5), start=st.integers(0, 4), **TYPED),
        st.builds(
            lambda shape, kind: spaces.Box(-2, 5, shape, kind),
            SHAPES,
            st.sampled_from([np.float32, np.float64]),
        ),
    ),
    st.integers(0, 99),
)
def test_whatever_is_drawn_from_the_space_of_the_agent_is_an_action(space, seed):
    converter = ActionConverter(space, "X")
    batch = batch_space(converter.space, 4)
    batch.seed(seed)
    for action in converter.convert(batch.sample()):
        assert action.dtype == space.dtype
        assert action in space


PARTS = spaces.Dict(a=spaces.Discrete(2))


@pytest.mark.parametrize(
    ("convert", "space", "kind"),
    [
        (ObservationConverter, spaces.Text(3), "Text"),
        (ActionConverter, spaces.Text(3), "Text"),
        (ActionConverter, PARTS, "Dict"),
        (ActionConverter, spaces.Tuple([PARTS]), "Tuple"),
        (ActionConverter, spaces.Box(0, 3, (2,), np.int64), "Box of int64"),
    ],
)
def test_other_spaces_are_refused_by_name(convert, space, kind):
    with pytest.raises(
        SpecError, match=rf"env.name = 'Odd-v0': .*a {kind} space.*; wrap"
    ):
        convert(space, "Odd-v0")
