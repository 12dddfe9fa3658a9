"""The last few observations as one."""

import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal, assert_equal

from slm_lab.env.convert.observation import FrameJoiner

WAYS = [("CartPole-v1", None), ("CartPole-v1", "sync"), ("Pendulum-v1", "sync")]
KEYS = {"max_t": 13, "num_envs": 3}


@pytest.mark.parametrize("op", ["stack", "concat"])
@pytest.mark.parametrize("normalize_obs", [False, True])
@pytest.mark.parametrize(("name", "mode"), WAYS)
def test_the_frames_are_the_last_of_the_episode_and_at_its_start_its_first(
    build, random_actions, name, mode, normalize_obs, op
):
    keys = {**KEYS, "vectorization_mode": mode, "normalize_obs": normalize_obs}
    plain = build(name, **keys)
    joined = build(name, **keys, frame_op=op, frame_op_len=3)
    size = plain.observation_space.shape[0]
    shape = (3, size) if op == "stack" else (3 * size,)
    assert joined.observation_space.shape == shape
    assert joined.layout.frames == 3
    frames = [[obs] * 3 for obs in plain.reset()]
    assert_array_equal(joined.reset(), as_seen(frames, shape))
    for action in random_actions(plain, 40):
        frame = plain.step(action)
        step = joined.step(action)
        frames = [
            [*old[1:], new] for old, new in zip(frames, frame.next_obs, strict=True)
        ]
        assert_array_equal(step.next_obs, as_seen(frames, shape))
        for row in np.flatnonzero(frame.terminated | frame.truncated):
            frames[row] = [frame.obs[row]] * 3
        assert_array_equal(step.obs, as_seen(frames, shape))
        assert (step.next_obs is step.obs) == (step.finished is None)
        assert_equal(step.finished, frame.finished)
        assert_array_equal(step.reward, frame.reward)


def as_seen(frames, shape):
    return np.array(frames).reshape(len(frames), *shape)


@pytest.mark.parametrize(
    ("frame", "op", "joined"),
    [
        ((1, 8, 9), "stack", (4, 8, 9)),
        ((1, 8, 9), "concat", (4, 8, 9)),
        ((3, 8, 9), "stack", (4, 3, 8, 9)),
        ((3, 8, 9), "concat", (12, 8, 9)),
    ],
)
def test_frames_of_images_are_channels_or_a_new_axis(frame, op, joined):
    joiner = FrameJoiner(op, 4, gymnasium.spaces.Box(0, 255, frame, np.uint8))
    assert joiner.space.shape == joined
    assert joiner.space.dtype == np.uint8
    first, second = np.random.default_rng(0).integers(0, 256, (2, 5, *frame), np.uint8)
    seen = joiner.follow(joiner.begin(first), second).reshape(5, 4, *frame)
    assert_array_equal(seen, np.stack([first, first, first, second], axis=1))
