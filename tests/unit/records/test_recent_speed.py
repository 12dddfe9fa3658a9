"""The speed that a live table shows."""

import pytest

from slm_lab.records.progress import RecentSpeed


def speeds(frames):
    """The speeds shown for these frames, read ten times a second."""
    speed = RecentSpeed()
    return [speed.update(frame, tenth / 10) for tenth, frame in enumerate(frames)]


def rollout(tenth, seconds):
    """Frames of rollouts of 1000 frames in two seconds, one every so many seconds."""
    rollouts, within = divmod(tenth, 10 * seconds)
    return 1000 * rollouts + 50 * min(within, 20)


@pytest.mark.parametrize(
    ("frames", "first", "least", "most"),
    [
        # A rollout in one second, then nine of learning: the seconds without frames
        # count.
        ([1000 * ((tenth + 90) // 100) for tenth in range(1001)], 1000, 85, 115),
        # Bursts that are far apart.
        ([4000 * (tenth // 200) for tenth in range(3000)], 400, 200, 200),
        # Rollouts of two seconds and six of learning: never near none, or 500.
        ([rollout(tenth, 8) for tenth in range(2000)], 240, 90, 160),
        # The first pause of all does not hide what came before it.
        ([rollout(tenth, 30) for tenth in range(220)], 1, 1000 / 22, 501),
        # It follows a change within a few seconds.
        ([min(t, 200) * 100 + max(t - 200, 0) for t in range(300)], 299, 9.9, 10.1),
    ],
)
def test_the_speed_is_steady_and_follows_a_change(frames, first, least, most):
    shown = speeds(frames)[first:]
    assert least <= min(shown) <= max(shown) <= most


@pytest.mark.parametrize(
    ("frames", "shown"),
    [([0, 0, 5], [None, None, 25]), ([1_000_000, 1_000_010], [None, 100])],
)
def test_there_is_no_speed_before_there_are_new_frames(frames, shown):
    assert speeds(frames) == shown
