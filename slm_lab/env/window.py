"""`enjoy@RUN --render`: opens an environment's window, or reports in one message why it
cannot."""

import inspect
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.envs.registration import load_env_creator

from slm_lab.core.errors import UsageError
from slm_lab.core.process import signals_handled
from slm_lab.env.check import display_fault
from slm_lab.env.extras import known_warnings_ignored
from slm_lab.env.lookup import find_env
from slm_lab.env.simulators.film import drawn, exception_message, missing_display_reason
from slm_lab.spec.schema.env import EnvSpec

INVISIBLE = {"dummy", "offscreen"}
"""Video drivers of SDL that show nothing. SDL falls back on them without a display."""

OWN_WINDOWS = frozenset({"mujoco", "glfw", "pybullet", "pyglet"})
"""Libraries that open windows without SDL. Without a display they may end the process
or hang."""

GLFW_ENDS_HERE = r"\(655(37|42|43|50)\)"
"""GLFW's warnings before it ends the process: no library, OpenGL, such version or
platform."""


@contextmanager
def window_of(spec: EnvSpec) -> Iterator[None]:
    """A context in which to make and reset the environment with the render mode
    "human". Raises UsageError if its window cannot open, for any exception of the
    simulator. Inside, Ctrl-C and SIGTERM end the process at once."""
    chosen = os.environ.get("SDL_VIDEODRIVER")
    with drawn(spec.name):
        reason = _hopeless_reason(spec, chosen)
    if reason is not None:
        raise _no_window(spec.name, reason)
    try:
        # The system ends the process at once; Python's handling waits for the
        # simulator.
        with signals_handled(signal.SIG_DFL), warnings.catch_warnings():
            warnings.filterwarnings("error", GLFW_ENDS_HERE)
            yield
    except Exception as error:
        raise _no_window(
            spec.name, exception_message(error.__cause__ or error)
        ) from error
    if _video_driver() in INVISIBLE - {chosen}:
        raise _no_window(spec.name, "there is no display")


def _hopeless_reason(spec: EnvSpec, chosen: str | None) -> str | None:
    """Why the window cannot open, found without the simulator; None if it may open.
    Without a display it never can, unless the user has `chosen` a video driver of
    SDL."""
    no_display = missing_display_reason()
    if no_display is not None and chosen is None:
        return no_display
    not_shown = display_fault(spec)
    if no_display is None or not_shown is not None:
        return not_shown
    if _has_its_own_window(find_env(spec)):
        return no_display
    return None


def _no_window(name: str, reason: str) -> UsageError:
    return UsageError(
        f"--render: cannot open a window for {name}: {reason}; leave --render out to "
        "play without one, or use --video instead"
    )


def _has_its_own_window(entry: GymnasiumSpec) -> bool:
    """Whether one of OWN_WINDOWS draws the environment, judged by the imports of its
    modules."""
    target = entry.entry_point
    with known_warnings_ignored():
        creator = load_env_creator(target) if isinstance(target, str) else target
    # Without `object`, whose module is builtins, because MuJoCo adds names there.
    made_of = inspect.getmro(creator)[:-1] if inspect.isclass(creator) else (creator,)
    modules = {inspect.getmodule(part) for part in made_of} - {None}
    used = [value for module in modules for value in vars(module).values()]
    names = (
        value.__name__
        if inspect.ismodule(value)
        else getattr(value, "__module__", None)
        for value in used
    )
    return any(not OWN_WINDOWS.isdisjoint(str(name).split(".")) for name in names)


def _video_driver() -> str:
    """The video driver of SDL; "" if no simulator of this process uses SDL."""
    if "pygame" not in sys.modules:
        return ""
    import pygame

    if pygame.display.get_init():
        return pygame.display.get_driver()
    return ""
