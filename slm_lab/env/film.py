"""Episodes as images, frame by frame, whether there is a screen or not."""

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.types import Array
from slm_lab.env.raw import GOES_ON

FPS = 30.0
"""of an environment that says nothing"""

ATARI_FPS = 60.0
"""of the console, whose frames an action is taken for several of"""

IMAGES = "rgb_array"
"""the render mode of images"""


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
    metadata say. A step raises LabError where the environment called `name` cannot be drawn.
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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new episode, or the one that goes on after what ended it for the learner only."""
        obs, info = self.env.reset(seed=seed, options=options)
        if self._begun and not info.get(GOES_ON, False):
            self._film.end()
            self._begun = False
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step and its frame."""
        if not self._begun:
            self._film.add(self._draw(), self._fps)
            self._begun = True
        result = self.env.step(action)
        self._film.add(self._draw(), self._fps)
        return result

    def _draw(self) -> Array:
        try:
            frame: Any = self.env.render()
        except Exception as error:  # every simulator has its own
            why = " ".join(str(error).split()) or type(error).__name__
            raise LabError(f"{self._name} cannot be drawn: {why}") from error
        if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.shape[2:] == (3,):
            return frame
        given = f"{frame.dtype} of shape {frame.shape}" if isinstance(frame, np.ndarray) else frame
        raise LabError(
            f"{self._name} cannot be drawn: render() gave {given!r:.60} instead of an image "
            "(H, W, 3) of bytes"
        )


@contextmanager
def headless() -> Iterator[None]:
    """To make, play and close environments in whose images are wanted: where there is no display,
    MuJoCo draws with EGL and SDL looks for no screen. What the user has set stays."""
    wanted = {} if has_display() else {"MUJOCO_GL": "egl", "SDL_VIDEODRIVER": "dummy"}
    ours = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def has_display() -> bool:
    """Whether there seems to be one; only Linux says so beforehand."""
    names = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform != "linux" or any(os.environ.get(name) for name in names)
