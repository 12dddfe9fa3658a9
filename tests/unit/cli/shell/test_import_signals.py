"""Signals during the imports of a command."""

import signal

import pytest

from tests.faults.lab import LAB, call, command
from tests.unit.cli.trained import fingerprint


@pytest.mark.medium
@pytest.mark.parametrize(
    ("number", "mode"),
    [(signal.SIGINT, "train"), (signal.SIGTERM, "train@latest"), (signal.SIGINT, "eval@latest")],
)
def test_a_signal_while_it_imports_waits_and_stops_the_command(copy, number, mode):
    (copy / "sends_a_signal.py").write_text(
        "import os\n"
        "try:\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    sum(range(1000))\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('interrupted')\n"
    )
    before = fingerprint(copy / "data")
    done = call(command(copy, mode, "--import", "sends_a_signal"), copy)
    assert (done.code, done.err, done.out) == (130, "stopped\n", "")
    assert fingerprint(copy / "data") == before


@pytest.mark.parametrize("command_name", ["check", "show", "schema"])
def test_a_ctrl_c_while_a_spec_command_imports_is_the_same(tmp_path, command_name):
    (tmp_path / "interrupted.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    sum(range(1000))\n"
        "except KeyboardInterrupt:\n"
        "    raise ImportError('interrupted')\n"
    )
    words = [command_name] if command_name == "schema" else [command_name, "demo.json"]
    done = call([str(LAB), "spec", *words, "--import", "interrupted"], tmp_path)
    assert (done.code, done.err, done.out) == (130, "stopped\n", "")
