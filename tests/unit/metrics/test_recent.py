import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.metrics.recent import FEWEST, MOST, RecentEpisodes

EPISODES = st.lists(
    st.tuples(st.integers(0, 40), st.floats(-1e3, 1e3)), max_size=250
)  # frames since the episode before, and its return


def played(episodes, max_frame):
    """The window after some episodes, when each ended, and their returns."""
    recent = RecentEpisodes(max_frame)
    ended = np.cumsum([gap for gap, _ in episodes], dtype=np.int64)
    for frame, (_, value) in zip(ended, episodes, strict=True):
        recent.add(int(frame), np.array([value]))
    return recent, ended, np.array([value for _, value in episodes])


@given(EPISODES, st.integers(1, 4_000), st.integers(0, 100))
def test_the_final_return_is_of_the_last_twentieth_or_of_twenty_episodes(
    episodes, max_frame, later
):
    recent, ended, returns = played(episodes, max_frame)
    now = later
    if episodes:
        now = int(ended[-1]) + later
    inside = int((ended > now - 0.05 * max_frame).sum())
    expected = min(max(inside, FEWEST), len(episodes))
    value, count = recent.final(now)
    assert count == expected
    if expected:
        assert value == pytest.approx(returns[-expected:].mean(), abs=1e-9)
    else:
        assert value is None


@given(EPISODES, st.integers(1, 4_000))
def test_decisions_use_the_same_mean_over_at_most_a_hundred_episodes(
    episodes, max_frame
):
    recent, ended, returns = played(episodes, max_frame)
    now = 0
    if episodes:
        now = int(ended[-1])
    decides = len(episodes) >= FEWEST or (now >= max_frame and episodes)
    value = recent.recent(now)
    if not decides:
        assert value is None
        return
    final, count = recent.final(now)
    assert value == pytest.approx(returns[-min(count, MOST) :].mean(), abs=1e-9)
    if count <= MOST:
        assert value == final


def test_nothing_is_decided_before_twenty_episodes_or_the_end_of_the_budget():
    recent = RecentEpisodes(1_000)
    for frame in range(10, 200, 10):  # nineteen
        recent.add(frame, np.array([1.0]))
        assert recent.recent(frame) is None
    assert recent.recent(1_000) == 1.0
    recent.add(200, np.array([1.0]))
    assert recent.recent(200) == 1.0


@pytest.mark.parametrize("workers", [2, 3, 8, 16, 50])
def test_workers_have_twenty_to_a_hundred_episodes_together(workers):
    """With W workers, each alone would reach back W times as far."""
    alone = RecentEpisodes(1_000)
    each = RecentEpisodes(1_000, workers)
    for frame in range(1, 1_001):
        each.add(frame, np.array([float(frame)]))
    few = RecentEpisodes(1_000, workers)
    for frame in range(100, 1_001, 60):  # no window of 50 frames has more than one
        few.add(frame, np.array([1.0]))
        alone.add(frame, np.array([1.0]))
    part = -(-FEWEST // workers)
    assert part * workers >= FEWEST > (part - 1) * workers
    assert few.final(1_000).episodes == min(part, 16)
    assert alone.final(1_000).episodes == 16
    most = min(-(-MOST // workers), 50)
    assert each.recent(1_000) == pytest.approx(np.arange(1_001 - most, 1_001).mean())


def test_early_returns_do_not_count_once_others_have_ended():
    """A moving average over rows would be 250 here."""
    recent = RecentEpisodes(10_000)
    for frame in range(100, 5_000, 100):
        recent.add(frame, np.array([0.0]))
    for frame in range(5_000, 10_001, 10):
        recent.add(frame, np.array([500.0]))
    assert recent.final(10_000) == (500.0, 50)
    assert recent.recent(10_000) == 500.0


def test_no_more_is_kept_than_the_window_and_a_hundred_episodes():
    recent = RecentEpisodes(10_000)
    for frame in range(1, 10_001):
        recent.add(frame, np.array([1.0]))
    assert len(recent.state_dict()["returns"]) == 500
    short = RecentEpisodes(100)
    for frame in range(1, 10_001):
        short.add(frame, np.array([1.0]))
    assert len(short.state_dict()["returns"]) == MOST
