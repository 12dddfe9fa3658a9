"""Episodes as images, frame by frame, whether there is a screen or not."""

import ctypes
import os
import re
import sys
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.types import Array
from slm_lab.env.vector.raw import CONTINUES

FPS = 30.0
"""of an environment that says nothing"""

ATARI_FPS = 60.0
"""of the console, whose frames an action is taken for several of"""

IMAGES = "rgb_array"
"""the render mode of images"""

OF_OPENGL = re.compile(r"GL|\be?gl")
"""what an error message has in it that is about a library of OpenGL, or one of its functions"""


class Film(ABC):
    """What takes the frames of episodes that are played one after another."""

    @abstractmethod
    def add(self, frame: Array, fps: float) -> None:
        """The next frame of the episode (H, W, 3) uint8, of `fps` in a second."""

    @abstractmethod
    def end(self) -> None:
        """The episode is over. The next frame is the first of another one."""


class Filmed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows `film` every episode: what its first step begins with, and what each step ends in.

    An episode of which no step is taken is not shown. `fps` stands in for what the environment's
    metadata say. A step raises as `drawn` where the environment called `name` cannot be drawn.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        name: str,
        film: Film,
        fps: float | None = None,
    ) -> None:
        super().__init__(env)
        self._name = name
        self._film = film
        self._fps = float(fps or env.metadata.get("render_fps") or FPS)
        self._begun = False
        """Whether a frame of the episode has been shown."""

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new episode, or the one that goes on after what ended it for the learner only."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._begun and not info.get(CONTINUES, False):
            self._film.end()
            self._begun = False
        return obs, info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step and its frame."""
        if not self._begun:
            self._film.add(self._draw(), self._fps)
            self._begun = True
        result = self.env.step(action)
        self._film.add(self._draw(), self._fps)
        return result

    def _draw(self) -> Array:
        with drawn(self._name):
            frame: Any = self.env.render()
        if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,):
            return frame
        given = f"{frame.dtype} of shape {frame.shape}" if isinstance(frame, np.ndarray) else frame
        raise UsageError(
            f"{self._name} cannot be drawn: render() gave {given!r:.60} instead of an image "
            "(H, W, 3) of bytes"
        )


@contextmanager
def drawn(name: str) -> Iterator[None]:
    """To draw the environment called `name` in, and to ask what it draws.

    Raises UsageError for whatever goes wrong, as images are what a user has asked for: every
    simulator has its own exceptions for it, so all of them are meant.
    """
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        why = in_one_line(error)
        raise UsageError(f"{name} cannot be drawn: {why}{fix_of_mujoco(error)}") from error


def in_one_line(error: BaseException) -> str:
    """What a simulator says where it cannot draw.

    What it has half made ends here: later it would complain of it, in lines of its own.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = hook
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def fix_of_mujoco(error: BaseException) -> str:
    """What to do about MUJOCO_GL, by which MuJoCo draws; "" where that is not at fault."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    asked = [str(frame.f_globals.get("__name__")).split(".") for frame in frames]
    if not any("mujoco" in parts for parts in asked) or not OF_OPENGL.search(str(error)):
        return ""
    given = os.environ.get("MUJOCO_GL", "")
    if given == "egl":
        return "; MuJoCo draws with EGL here, which may be missing (libegl1 in Debian and Ubuntu)"
    if given:
        return f"; MUJOCO_GL={given} does not do here: set MUJOCO_GL=egl, or unset it"
    return "; set MUJOCO_GL=egl, which needs no screen"


@contextmanager
def headless() -> Iterator[None]:
    """To make, play and close environments in whose images are wanted: where there is no display,
    MuJoCo draws with EGL and SDL looks for no screen. What the user has set stays, and GLFW does
    not warn of what it does not find."""
    wanted = {} if why_no_display() is None else {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="glfw")
            yield
    finally:
        for name in ours:
            del os.environ[name]


def why_no_display() -> str | None:
    """What is missing; None where there seems to be one. Only Linux says so beforehand."""
    if sys.platform != "linux" or os.environ.get("WAYLAND_DISPLAY"):
        return None
    display = os.environ.get("DISPLAY")
    if not display:
        return "there is no display"
    return None if _x_server_answers() else f"no X server answers at DISPLAY={display}"


def _x_server_answers() -> bool:
    """Whether that of DISPLAY lets this process in; some simulators die of it if it does not."""
    try:
        library = ctypes.CDLL("libX11.so.6")
    except OSError:
        return True  # who knows
    library.XOpenDisplay.argtypes = (ctypes.c_char_p,)
    library.XOpenDisplay.restype = ctypes.c_void_p
    library.XCloseDisplay.argtypes = (ctypes.c_void_p,)
    connection = library.XOpenDisplay(None)
    if connection is not None:
        library.XCloseDisplay(connection)
    return connection is not None
