"""Which simulators open their own windows, and how signals are handled meanwhile."""

import importlib.util
import signal
import warnings

import pytest

from slm_lab.core.errors import UsageError
from slm_lab.core.process import STOP_SIGNALS
from slm_lab.env.lookup import find_registered
from slm_lab.env.window import _has_its_own_window, window_of
from slm_lab.spec.schema.env import EnvSpec


@pytest.mark.parametrize(
    ("name", "library", "own"),
    [
        ("Hopper-v5", "mujoco", True),
        ("HopperBulletEnv-v0", "pybullet_envs_gymnasium", True),
        ("CartPole-v1", "pygame", False),
        ("LunarLander-v3", "Box2D", False),
        ("Blackjack-v1", "pygame", False),
        ("ALE/Pong-v5", "ale_py", False),
    ],
)
def test_mujoco_and_bullet_open_windows_without_sdl(name, library, own):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"needs {library}")
    assert _has_its_own_window(find_registered(name)) is own


@pytest.fixture
def cartpole(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    return EnvSpec(name="CartPole-v1", num_envs=1, max_frame=1)


def test_the_stop_signals_are_left_to_the_system_only_while_a_window_opens(cartpole):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with window_of(cartpole):
        assert {signal.getsignal(number) for number in STOP_SIGNALS} == {signal.SIG_DFL}
    with pytest.raises(UsageError), window_of(cartpole):
        raise RuntimeError("no context")
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_glfw_warning_before_it_ends_the_process_is_an_error(cartpole):
    with pytest.raises(UsageError, match="no platform; leave"), window_of(cartpole):
        warnings.warn("(65550) no platform", stacklevel=1)
    with window_of(cartpole), pytest.warns(match="65548"):
        warnings.warn("(65548) no such feature", stacklevel=1)
