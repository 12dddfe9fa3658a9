"""Options for scripts and nights: the level of logs, and a command at the end."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

from slm_lab.core.process import LOG_LEVEL

TIMEOUT = 60.0
"""Seconds after which the user's command is killed, with all that it started."""


def set_log_level(level: str | None) -> None:
    """Sets the level of the lab's logs, in this process and in those that it starts."""
    if level is not None:
        os.environ[LOG_LEVEL] = level.upper()
        logging.getLogger("slm_lab").setLevel(level.upper())


def notify_of(command: str | None, folder: Path | None, code: int) -> None:
    """Runs the user's command. What goes wrong with it is printed, and changes nothing."""
    if command is None:
        return
    about = {"SLM_LAB_RUN": str(folder or ""), "SLM_LAB_EXIT_CODE": str(code)}
    env, errors = {**os.environ, **about}, sys.__stderr__  # the standard output may be a document
    child = subprocess.Popen(command, shell=True, env=env, stdout=errors, start_new_session=True)
    try:
        ended = child.wait(TIMEOUT)
        why = f"ended with {ended}" if ended else ""
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        os.killpg(child.pid, signal.SIGKILL)  # what it has started, too
        child.wait()
        is_late = isinstance(error, subprocess.TimeoutExpired)
        why = f"did not end in {TIMEOUT:g} s, and was killed" if is_late else "was killed by Ctrl-C"
    if why:
        print(f"--notify: {command!r} {why}", file=sys.stderr)
