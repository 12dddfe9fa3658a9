"""Records episodes as images, with or without a display."""

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
from slm_lab.env.interface import Env
from slm_lab.env.vector.raw import CONTINUES

FPS = 30.0
"""The default for environments without this metadata."""

ATARI_FPS = 60.0
"""Frames of the console, of which an action takes several."""

IMAGE_MODE = "rgb_array"

OF_OPENGL = re.compile(r"GL|\be?gl")
"""Matches error messages about OpenGL libraries or functions."""


class Film(ABC):
    """Receives the frames of successive episodes."""

    @abstractmethod
    def add(self, frame: Array, fps: float) -> None:
        """Adds the next frame of the episode, (H, W, 3) uint8; `fps` is frames per
        second."""

    @abstractmethod
    def end(self) -> None:
        """Ends the episode. The next frame is the first one of another."""


class Filmed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Sends every episode to `film`: a frame before its first step, and one after each
    step. Episodes without a step are omitted. `fps` overrides the environment's
    metadata. A step raises as `drawn` if the environment `name` cannot be drawn."""

    def __init__(
        self, env: Env, name: str, film: Film, fps: float | None = None
    ) -> None:
        super().__init__(env)
        self._name = name
        self._film = film
        self._fps = float(fps or env.metadata.get("render_fps") or FPS)
        self._begun = False
        """Whether the film has a frame of the episode."""

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts a new episode, or continues one that ended only for the learner."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._begun and not info.get(CONTINUES, False):
            self._film.end()
            self._begun = False
        return obs, info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if not self._begun:
            self._film.add(self._draw(), self._fps)
            self._begun = True
        result = self.env.step(action)
        self._film.add(self._draw(), self._fps)
        return result

    def _draw(self) -> Array:
        with drawn(self._name):
            frame: Any = self.env.render()
        if (
            isinstance(frame, np.ndarray)
            and frame.dtype == np.uint8
            and frame.shape[2:] == (3,)
        ):
            return frame
        description = frame
        if isinstance(frame, np.ndarray):
            description = f"{frame.dtype} of shape {frame.shape}"
        raise UsageError(
            f"{self._name} cannot be drawn: render() gave {description!r:.60} instead "
            "of an image (H, W, 3) of bytes"
        )


@contextmanager
def drawn(name: str) -> Iterator[None]:
    """The context for drawing the environment `name`. Raises UsageError for any
    exception: the user requested images, and each simulator has its own exceptions for
    failed drawing."""
    try:
        yield
    except LabError:
        raise
    except Exception as error:
        why = exception_message(error)
        raise UsageError(
            f"{name} cannot be drawn: {why}{fix_of_mujoco(error)}"
        ) from error


def exception_message(error: BaseException) -> str:
    """The message of an exception in one line. Also frees what a simulator has partly
    created; later it would print errors about it."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            traceback.clear_frames(error.__traceback__)
    finally:
        sys.unraisablehook = hook
    return " ".join(str(error).split()).removesuffix(".") or type(error).__name__


def fix_of_mujoco(error: BaseException) -> str:
    """The advice about MUJOCO_GL for an error of MuJoCo's drawing; "" for other
    errors."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__")).split(".") for frame in frames]
    if not any("mujoco" in parts for parts in modules) or not OF_OPENGL.search(
        str(error)
    ):
        return ""
    backend = os.environ.get("MUJOCO_GL", "")
    if backend == "egl":
        return (
            "; MuJoCo draws with EGL here, which may be missing (libegl1 in Debian "
            "and Ubuntu)"
        )
    if backend:
        return (
            f"; MUJOCO_GL={backend} does not work here: set MUJOCO_GL=egl, or unset it"
        )
    return "; set MUJOCO_GL=egl, which needs no screen"


@contextmanager
def headless() -> Iterator[None]:
    """The context for environments that draw images, from their construction to
    `close`. Without a display, MuJoCo draws with EGL, and SDL uses no screen. The
    user's settings have priority. GLFW's warnings are ignored."""
    wanted = (
        {}
        if missing_display_reason() is None
        else {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
    )
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="glfw")
            yield
    finally:
        for name in ours:
            del os.environ[name]


def missing_display_reason() -> str | None:
    """Why there is no display; None if there seems to be one. Only Linux reports it in
    advance."""
    if sys.platform != "linux" or os.environ.get("WAYLAND_DISPLAY"):
        return None
    display = os.environ.get("DISPLAY")
    if not display:
        return "there is no display"
    if _x_server_answers():
        return None
    return f"no X server answers at DISPLAY={display}"


def _x_server_answers() -> bool:
    """Whether the X server of DISPLAY accepts this process; if not, some simulators
    would crash."""
    try:
        library = ctypes.CDLL("libX11.so.6")
    except OSError:
        return True  # unknown
    library.XOpenDisplay.argtypes = (ctypes.c_char_p,)
    library.XOpenDisplay.restype = ctypes.c_void_p
    library.XCloseDisplay.argtypes = (ctypes.c_void_p,)
    connection = library.XOpenDisplay(None)
    if connection is not None:
        library.XCloseDisplay(connection)
    return connection is not None
