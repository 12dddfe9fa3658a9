"""PyBullet's own lines do not come between those of the lab, and nobody else's are lost."""

import os
import subprocess
import sys

import pytest

from slm_lab.env.bullet_log import AT_IMPORT, STDERR, lines_dropped


def test_only_the_lines_meant_are_dropped_and_all_others_keep_their_order():
    code = """
import os
from slm_lab.env.bullet_log import AT_CONNECT, STDERR, STDOUT, lines_dropped
print("before")
with lines_dropped(STDOUT, AT_CONNECT):
    os.write(STDOUT, b"argv[0]=\\nmine\\nargv[0]=\\nmine: argv[0]=\\n")
    os.write(STDERR, b"argv[0]=\\n")
    print("argv[0]=x")
os.write(STDOUT, b"argv[0]=\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "before\nmine\nmine: argv[0]=\nargv[0]=x\nargv[0]=\n"
    assert done.stderr == "argv[0]=\n"


def test_what_was_printed_before_an_exception_comes_out(capfd):
    def fails():
        os.write(STDERR, b"pybullet build time: today\nnot found: a library\n")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), lines_dropped(STDERR, AT_IMPORT):
        fails()
    os.write(STDERR, b"after\n")
    assert capfd.readouterr().err == "not found: a library\nafter\n"


def test_a_descriptor_that_is_closed_is_left_alone():
    code = """
import os
from slm_lab.env.bullet_log import AT_IMPORT, STDERR, lines_dropped
os.close(STDERR)
with lines_dropped(STDERR, AT_IMPORT):
    print("goes on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "goes on\n")


PLAY = """
import numpy as np
from slm_lab.env.make import make_env
from slm_lab.spec.schema.env import EnvSpec
spec = EnvSpec(name="HopperBulletEnv-v0", num_envs=2, max_frame=9, max_t=2, {keys})
env = make_env(spec, 0)
print("made")
env.reset()
for _ in range(5):
    env.step(np.zeros((2, 3), np.float32))
env.close()
print("played")
"""


@pytest.mark.parametrize("keys", ["", "vectorization_mode='async'"])
def test_pybullet_is_silent(tmp_path, keys):
    pytest.importorskip("pybullet_envs_gymnasium")
    script = tmp_path / "play.py"  # workers begin by importing it
    script.write_text(
        f"if __name__ == '__main__':\n{PLAY.format(keys=keys)}".replace("\n", "\n    ")
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "made\nplayed\n"), done.stderr
    assert "pybullet" not in done.stderr
