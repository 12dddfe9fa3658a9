"""What simulators print at their import and construction goes to the text log, from C
too."""

import logging
import os
from contextlib import suppress

import gymnasium
import numpy as np
import pytest

from slm_lab.core.process import printing_to, text_log

BANNER = "simulator build time: now"


class Loud(gymnasium.Env):
    """Prints as a C library does when it is made, and as an author does in a step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        os.write(1, f"{BANNER} 1\n".encode())
        os.write(2, f"{BANNER} 2\n".encode())

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        os.write(1, b"a step\n")
        return np.zeros(1, np.float32), 1.0, True, False, {}


@pytest.fixture
def log(tmp_path):
    """The text log of this process, as of a Session."""
    handler = logging.FileHandler(tmp_path / "text.log", delay=True)
    logging.getLogger("slm_lab").addHandler(handler)
    yield tmp_path / "text.log"
    logging.getLogger("slm_lab").removeHandler(handler)
    handler.close()


@pytest.mark.parametrize(
    "mode", ["sync", pytest.param("async", marks=pytest.mark.medium)]
)
def test_what_an_environment_prints_when_it_is_made_is_in_the_log(
    build, registered, log, capfd, mode
):
    env = build(registered("Loud-v0", Loud), vectorization_mode=mode)
    env.reset()
    env.step(np.zeros(3, np.int64))
    assert BANNER not in "".join(capfd.readouterr())
    lines = log.read_text().splitlines()
    made = 3
    if mode == "async":
        made = 4  # the parent makes one, too
    assert sorted(lines) == [f"{BANNER} 1"] * made + [f"{BANNER} 2"] * made


def test_what_an_environment_prints_in_a_step_is_shown(build, registered, log, capfd):
    env = build(registered("Loud-v0", Loud))
    env.reset()
    env.step(np.zeros(3, np.int64))
    assert capfd.readouterr().out == "a step\n" * 3
    assert "a step" not in log.read_text()


def test_the_log_of_the_process_is_that_of_its_handler(log):
    assert text_log() == log


def test_what_was_printed_before_an_error_is_in_the_log(tmp_path, capfd):
    log = tmp_path / "text.log"
    with suppress(ZeroDivisionError), printing_to(log):
        os.write(2, b"no display\n")
        raise ZeroDivisionError
    os.write(1, b"after\n")
    assert log.read_text() == "no display\n"
    assert capfd.readouterr() == ("after\n", "")
