import time

from slm_lab.session.pace import Pace
from slm_lab.session.parts import Stopwatch


def work(seconds):
    """Keeps this process busy."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_work_is_counted_on_both_clocks():
    stopwatch = Stopwatch(Pace())
    work(0.02)
    elapsed = stopwatch.read()
    assert elapsed.wall_t >= 0.02 * 0.99
    assert 0.02 <= elapsed.cpu_t <= elapsed.wall_t + 0.01


def test_work_set_aside_is_on_neither_clock():
    stopwatch = Stopwatch(Pace())
    before = stopwatch.read()
    with stopwatch.paused():
        work(0.2)
    elapsed = stopwatch.read()
    assert elapsed.cpu_t - before.cpu_t < 0.1
    assert elapsed.wall_t - before.wall_t < 0.1


def test_time_before_the_start_does_not_count():
    stopwatch = Stopwatch(Pace())
    work(0.2)
    stopwatch.start()
    assert stopwatch.read().cpu_t < 0.1


def test_a_resumed_session_continues_its_clocks():
    stopwatch = Stopwatch(Pace())
    other = Stopwatch(Pace())
    stopwatch.resume_after(100.0, 90.0)
    other.load_state_dict(stopwatch.state_dict())
    elapsed = other.read()
    assert 100.0 < elapsed.wall_t < 101.0
    assert 90.0 < elapsed.cpu_t < 91.0
