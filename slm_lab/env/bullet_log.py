"""What PyBullet prints of itself, in C, with nothing to turn it off."""

import importlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

FAMILY = "pybullet_envs_gymnasium."
"""where the environments of the extra `bullet` have their code"""

STDOUT, STDERR = 1, 2

AT_IMPORT = re.compile(rb"^pybullet build time: .*\n", re.MULTILINE)
AT_CONNECT = re.compile(rb"^argv\[0\]=\n", re.MULTILINE)


def import_quietly(entry: GymnasiumSpec) -> None:
    """Imports the code of `entry`, if it is of the family, without the line that says when
    PyBullet was built."""
    target = entry.entry_point
    if isinstance(target, str) and target.startswith(FAMILY) and "pybullet" not in sys.modules:
        with lines_dropped(STDERR, AT_IMPORT):
            importlib.import_module(target.partition(":")[0])


@final
class ConnectsQuietly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of the family, whose first `reset` connects to the simulator."""

    _connected = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As ever, the first time without the lines that connecting prints."""
        if self._connected:
            return self.env.reset(seed=seed, options=options)
        self._connected = True
        with lines_dropped(STDOUT, AT_CONNECT):
            return self.env.reset(seed=seed, options=options)


def connecting_quietly(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """`env`, in a wrapper if it is of the family."""
    of_family = type(env.unwrapped).__module__.startswith(FAMILY)
    return ConnectsQuietly(env) if of_family else env


@contextmanager
def lines_dropped(descriptor: int, lines: re.Pattern[bytes]) -> Iterator[None]:
    """Keeps `lines` from a file descriptor of the process. What else is written to it meanwhile,
    by whomever, comes out at the end."""
    try:
        real, written = os.dup(descriptor), tempfile.TemporaryFile()  # noqa: SIM115
    except OSError:  # it is closed, or the disk is full: better a line too many than no run
        yield
        return
    with written:
        _flush()
        os.dup2(written.fileno(), descriptor)
        try:
            yield
        finally:
            _flush()
            os.dup2(real, descriptor)
            os.close(real)
            written.seek(0)
            _write(descriptor, lines.sub(b"", written.read()))


def _flush() -> None:
    """Has what Python holds back written to where it belongs."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # of a program without a terminal
            stream.flush()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
