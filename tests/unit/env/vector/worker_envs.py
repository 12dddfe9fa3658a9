"""Environments of worker processes: some note what happens to them, some never
return."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
from gymnasium import spaces

TELL = (
    "from signal import *\nprint(pthread_sigmask(SIG_BLOCK, []), getsignal(SIGTERM) "
    "is SIG_DFL)"
)


class Noting(gymnasium.Env):
    """Writes a file when it is closed. Observes the number of steps."""

    observation_space = spaces.Box(0.0, np.inf, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, folder):
        self.folder = folder
        self.count = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count, np.float32), 0.0, False, False, {}

    def started_program(self):
        """The signal settings that a program of the environment finds."""
        # Without `site`, by which `make coverage` would add its own signal handler.
        words = [sys.executable, "-S", "-c", TELL]
        return subprocess.run(
            words, capture_output=True, text=True, check=True
        ).stdout.strip()

    def close(self):
        (self.folder / str(os.getpid())).touch()


class Disconnected(Noting):
    """Raises `error` in every step, as a game on another machine does."""

    def __init__(self, error, folder):
        super().__init__(folder)
        self.error = error

    def step(self, action):
        raise self.error("the game server is gone")


class Killed(Noting):
    """Its process dies while it is made, unless that is `parent`."""

    def __init__(self, parent, folder):
        super().__init__(folder)
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


class Hanging(Noting):
    """Never ends a step."""

    def __init__(self):
        self.count = 0

    def step(self, action):
        threading.Event().wait()

    def close(self):
        pass


class Stuck(Hanging):
    """Is never made where it should be: in a worker."""

    def __init__(self, parent):
        super().__init__()
        if os.getpid() != parent:
            threading.Event().wait()


class MadeLate:
    """Makes environments; a worker unpickles it only after its forking parent has
    died."""

    def __init__(self, parent):
        self.parent = parent

    def __call__(self):
        return Stuck(self.parent)

    def __setstate__(self, state):
        self.__dict__ = state
        server = os.getppid()
        # at once: another one writes there, too
        os.write(1, f"{os.getpid()}\n".encode())
        while os.getppid() == server:
            time.sleep(0.005)  # the pause of a poll


class SimulatorError(Exception):
    """Its text is not its arguments, so it cannot be unpickled."""

    def __init__(self, code, what):
        super().__init__(f"{code}: {what}")


class LockedError(Exception):
    """Cannot be pickled."""

    def __init__(self, what):
        super().__init__(what)
        self.lock = threading.Lock()


class Quit(BaseException):
    """No `except Exception` catches it."""


class Raising(gymnasium.Env):
    """Raises what `error` makes, in the `place` of that name: "step", "reset" (the
    second), "close" or "constructor" (of a worker)."""

    observation_space = spaces.Box(0.0, np.inf, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, place, error, parent=0):
        self.place = place
        self.error = error
        self.resets = 0
        if place == "constructor" and os.getpid() != parent:
            raise error()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        if self.place == "reset" and self.resets == 2:
            raise self.error()
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if self.place == "step":
            raise self.error()
        return np.zeros(1, np.float32), 0.0, True, False, {}

    def close(self):
        if self.place == "close":
            raise self.error()


class Drawing(Raising):
    """Observes a draw from a global generator, at each reset."""

    observation_space = spaces.Box(0.0, 1.0, (3,), np.float64)

    def __init__(self):
        super().__init__("nowhere", None)

    def reset(self, *, seed=None, options=None):
        import torch

        numbers = random.random(), np.random.uniform(), float(torch.rand(()))  # noqa: NPY002
        return np.array(numbers), {}


class Starting(Raising):
    """Starts a program in a worker, which it never ends, and writes its id to
    `folder`."""

    def __init__(self, parent, folder):
        super().__init__("nowhere", None)
        if os.getpid() == parent:
            return
        self.program = subprocess.Popen(
            [sys.executable, "-c", "import signal; signal.pause()"]
        )
        (folder / str(self.program.pid)).touch()
