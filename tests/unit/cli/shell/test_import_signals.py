"""Signals during the imports of a command."""

import json
import signal
import sys

import pytest
import typer

from slm_lab.cli.shell.exit_codes import report_errors
from slm_lab.core.process import STOP_SIGNALS
from tests.faults.lab import LAB, call, command
from tests.unit.cli.trained import fingerprint


@pytest.mark.medium
@pytest.mark.parametrize(
    ("number", "mode"),
    [
        (signal.SIGINT, "train"),
        (signal.SIGTERM, "train@latest"),
        (signal.SIGINT, "eval@latest"),
    ],
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


@pytest.mark.medium
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


SIGNAL_AT_AN_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), {number})
            sum(range(1000))

sys.meta_path.insert(0, Finder())
sys.argv[1:] = {words!r}
from slm_lab.__main__ import main
main()
"""


@pytest.mark.medium
@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize(
    ("module", "words", "err"),
    [
        ("slm_lab.cli.main", ["--version"], ""),
        ("typer", ["--version"], ""),
        ("slm_lab.records.overview", ["runs"], "stopped\n"),
        ("numpy", ["runs"], "stopped\n"),
    ],
)
def test_a_signal_at_any_import_ends_a_command_silently(
    tmp_path, number, module, words, err
):
    code = SIGNAL_AT_AN_IMPORT.format(module=module, number=int(number), words=words)
    done = call([sys.executable, "-c", code], tmp_path)
    assert (done.code, done.err, done.out) == (130, err, "")


@pytest.mark.medium
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["runs", "--json"]),
        ("slm_lab.cli.options", ["run", "--json"]),
        ("slm_lab.records.overview", ["runs", "--json"]),
        ("slm_lab.doctor.machine", ["doctor", "--json"]),
        ("slm_lab.spec.load", ["spec", "check", "--json"]),
        ("slm_lab.charts.plot", ["plot", "latest", "--json"]),
    ],
)
def test_a_command_that_is_stopped_as_it_begins_prints_a_document_too(
    tmp_path, module, words
):
    code = SIGNAL_AT_AN_IMPORT.format(
        module=module, number=int(signal.SIGTERM), words=words
    )
    done = call([sys.executable, "-c", code], tmp_path)
    assert done.code == 130
    assert json.loads(done.out) == {
        "status": "stopped",
        "folder": None,
        "exit_code": 130,
    }


@pytest.mark.medium
@pytest.mark.parametrize(
    "words",
    [
        ["run", "{spec}", "small", "train"],
        ["run", "{spec}", "small", "eval@latest"],
        ["compare", "{spec}", "small"],
        ["ab", "{spec}", "small"],
        ["probe", "{spec}", "small"],
    ],
)
def test_a_stop_before_a_run_folder_exists_is_a_document_too(copy, words):
    (copy / "stops.py").write_text(
        f"import os\nos.kill(os.getpid(), {int(signal.SIGTERM)})\n"
    )
    words = [word.format(spec=copy / "spec.json") for word in words]
    done = call([str(LAB), *words, "--import", "stops", "--json"], copy)
    assert (done.code, done.err) == (130, "stopped\n")
    assert json.loads(done.out)["status"] == "stopped"


HANGS_IN_C = """
import ctypes, os, signal, sys
from slm_lab.cli.display.output import guarded_output
from slm_lab.cli.shell import signals

signals.CLEAR_UP_SECONDS = 0.0
lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
lock(mutex)
signal.signal(signal.SIGTERM, lambda *_: lock(mutex))  # for ever
with guarded_output():
    sys.stdout.awaits_document = True
    sys.stdout.keep_for_document()
    with signals.ended_in_time(lambda: signals.print_stop(None)):
        os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_command_that_hangs_in_compiled_code_is_ended_with_a_document(tmp_path):
    done = call([sys.executable, "-c", HANGS_IN_C], tmp_path)
    assert (done.code, done.err) == (130, "stopped\n")
    assert json.loads(done.out)["status"] == "stopped"


@report_errors()
def import_interrupted():
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        raise ImportError("a library hides the interrupt") from None


def test_an_error_that_hides_an_interrupt_is_a_stop(capsys):
    with pytest.raises(typer.Exit) as ended:
        import_interrupted()
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "stopped\n"


SIGNAL_AT_THE_END = """
import os, sys
import slm_lab.__main__

class Last:
    def __del__(self, kill=os.kill, process=os.getpid()):
        kill(process, {number})

slm_lab.__main__.last = Last()  # deleted when the interpreter ends
sys.argv[1:] = ["--version"]
slm_lab.__main__.main()
"""


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_in_the_last_moment_leaves_the_exit_code(tmp_path, number):
    done = call(
        [sys.executable, "-c", SIGNAL_AT_THE_END.format(number=int(number))], tmp_path
    )
    assert (done.code, done.err) == (0, "")
