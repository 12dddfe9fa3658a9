"""Images: channels first, in the size that is asked for."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.errors import SpecError
from slm_lab.env.convert.image import ImageConverter


def image_space(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


class Picture(gymnasium.Env):
    """Shows an image."""

    observation_space = image_space(6, 8, 3)
    action_space = spaces.Discrete(2)


def test_normalised_images_are_refused_by_name(build, registered):
    build(registered("Picture-v0", Picture))
    with pytest.raises(SpecError) as caught:
        build("Picture-v0", normalize_obs=True)
    (problem,) = caught.value.problems
    assert (problem.path, problem.value) == ("env.normalize_obs", True)
    assert "images, which agent.net.normalize scales" in problem.message


@pytest.mark.parametrize(
    ("shape", "seen", "moved"),
    [
        ((6, 8), (1, 6, 8), lambda images: images[:, None]),
        ((6, 8, 1), (1, 6, 8), lambda images: images.transpose(0, 3, 1, 2)),
        ((6, 8, 3), (3, 6, 8), lambda images: images.transpose(0, 3, 1, 2)),
        ((7, 7, 7), (7, 7, 7), lambda images: images.transpose(0, 3, 1, 2)),
        ((4, 6, 8), (4, 6, 8), lambda images: images),
        ((4, 4, 9), (9, 4, 4), lambda images: images.transpose(0, 3, 1, 2)),
        ((9, 4, 4), (9, 4, 4), lambda images: images),
        (
            (2, 6, 8, 3),
            (6, 6, 8),
            lambda i: i.transpose(0, 1, 4, 2, 3).reshape(-1, 6, 6, 8),
        ),
    ],
)
def test_channels_come_first_wherever_they_were(shape, seen, moved):
    converter = ImageConverter(image_space(*shape), None)
    assert converter.space == image_space(*seen)
    images = np.random.default_rng(0).integers(0, 256, (5, *shape), np.uint8)
    converted = converter.convert(images)
    np.testing.assert_array_equal(converted, moved(images), strict=True)
    assert converted.flags.c_contiguous


@pytest.mark.parametrize(
    "shape", [(4, 7, 11, 13), (4, 3, 40, 4), (4, 3, 3, 3), (4, 2, 9, 2)]
)
def test_a_stack_that_may_have_either_layout_is_refused_until_a_key_decides(
    build, registered, shape
):
    image = type("Picture", (Picture,), {"observation_space": image_space(*shape)})
    name = registered("Picture-v0", image)
    with pytest.raises(SpecError) as caught:
        build(name)
    (problem,) = caught.value.problems
    assert problem.path == "env.image_channels"
    assert '"first", or (L, H, W, C)' in problem.message
    length, first, middle, last = shape
    for channels, seen in (
        ("first", (length * first, middle, last)),
        ("last", (length * last, first, middle)),
    ):
        assert build(name, image_channels=channels).observation_space.shape == seen


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_key_decides_for_single_arrays_too(build, registered, dtype):
    space = spaces.Box(0, 255, (6, 8, 3), dtype)
    name = registered(
        "Picture-v0", type("Picture", (Picture,), {"observation_space": space})
    )
    for channels, seen in (
        (None, (3, 6, 8)),
        ("last", (3, 6, 8)),
        ("first", (6, 8, 3)),
    ):
        assert build(name, image_channels=channels).observation_space.shape == seen


def test_the_key_for_channels_is_refused_where_there_are_none(build):
    with pytest.raises(
        SpecError, match=r"env.image_channels = 'last': only arrays of three or fo"
    ):
        build("CartPole-v1", image_channels="last")


@given(
    st.integers(1, 4),
    st.integers(2, 5),
    st.sampled_from([(), (1,), (3,)]),
    st.integers(0, 99),
)
def test_a_smaller_pixel_is_the_mean_of_those_it_covers(down, across, colours, seed):
    shape = (5 * down, 3 * across, *colours)
    converter = ImageConverter(image_space(*shape), (3, 5))
    images = np.random.default_rng(seed).integers(0, 256, (2, *shape), np.uint8)
    planes = ImageConverter(image_space(*shape), None).convert(images)
    channels = planes.shape[1]
    mean = planes.reshape(2, channels, 5, down, 3, across).mean((3, 5))
    seen = converter.convert(images)
    assert converter.space.shape == seen.shape[1:] == (channels, 5, 3)
    # The two axes are rounded one after the other.
    assert np.abs(seen.astype(float) - mean).max() <= 1.0


def test_the_width_is_named_before_the_height():
    assert ImageConverter(image_space(20, 30, 3), (15, 10)).space.shape == (3, 10, 15)


def test_resizing_what_is_no_image_is_refused(build):
    with pytest.raises(
        SpecError, match=r"env.image_downsize = \[8, 8\]: only images .* \(4,\)"
    ):
        build("CartPole-v1", image_downsize=[8, 8])
