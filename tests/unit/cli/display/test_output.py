"""What is printed: escaped, in the terminal's characters, and without failing the
training."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from slm_lab.cli.display.output import SafeStream
from slm_lab.cli.display.screen import LabConsole, print_json, print_line, print_table
from slm_lab.core.text import printable
from tests.faults.lab import LAB, NAME, call, command, write_spec
from tests.support import ppo

ESCAPES = (
    "red \x1b[31m, clear \x1b[2J, bell \x07, C1 \x9b2J, back\r\x08, bidi \u202e, lone "
    "\ud800"
)


@given(st.text())
def test_printable_text_has_no_character_that_a_terminal_acts_on(text):
    shown = printable(text)
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    assert printable(shown) == shown
    shown.encode()


@given(st.text("aé中–× \n\t{}[]:\\"))
def test_printable_text_is_unchanged(text):
    assert printable(text) == text


def test_names_in_lines_and_tables_are_escaped():
    """Colours, which are the console's own, are not."""
    written = io.StringIO()
    console = LabConsole(
        file=written, force_terminal=True, width=200, color_system="standard"
    )
    print_line(console, ESCAPES)
    table = Table()
    table.add_column("\x1b[2Jname", style="red")
    table.add_row(ESCAPES.replace("[", "("))
    console.print(table)
    text = written.getvalue()
    assert "\\x1b[31m" in text
    assert "\x1b[31m" in text.replace("\\x1b", ""), "the column's own colour"
    assert not {"\x1b[2J", "\x9b", "\x07", "\r", "\u202e", "\ud800"} & {
        part
        for part in ("\x1b[2J", "\x9b", "\x07", "\r", "\u202e", "\ud800")
        if part in text
    }


class Ascii(io.StringIO):
    encoding, errors = "ascii", "strict"


def test_a_stream_without_the_lab_s_signs_gets_others_in_their_place():
    stream = Ascii()
    SafeStream(stream, escapes=False).write("2 × 3 ± 1 – left … é\n")
    assert stream.getvalue() == "2 x 3 +/- 1 - left ... \\xe9\n"


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (BrokenPipeError(32, "Broken pipe"), None),
        (OSError(28, "No space left"), "No space left"),
    ],
)
def test_a_failing_stream_is_written_no_more_and_a_closed_reader_is_no_failure(
    error, failure
):
    output = SafeStream(Broken(error), escapes=False)
    assert output.write("text") == 4
    output.flush()
    assert output.failure == failure


def run_in_shell(folder, words, shell):
    """A command as a shell runs it, with what it prints to the standard error."""
    text = f"{shell.format(' '.join(map(str, words)))}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {text}"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def short(tmp_path):
    write_spec(tmp_path, ppo(env__max_frame=400, meta__log_frequency=None))
    return tmp_path


def finished(folder):
    return list((folder / "data").glob(f"*/{NAME}_t0_trial_metrics_scalar.json"))


@pytest.mark.medium
def test_a_reader_that_goes_away_ends_no_training(short):
    done = run_in_shell(short, command(short, "train"), "{} | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 1
    assert finished(short)


@pytest.mark.slow
def test_an_output_that_is_full_is_one_line_and_the_training_is_there(short):
    done = run_in_shell(short, command(short, "train"), "{} > /dev/full")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("standard output: No space left on device")
    assert finished(short)


@pytest.mark.slow
def test_a_terminal_of_ascii_gets_tables_without_a_crash(short):
    done = run_in_shell(short, command(short, "train"), "PYTHONIOENCODING=ascii {}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "Trial metrics" in done.stdout
    (folder,) = (path for path in (short / "data").iterdir() if path.is_dir())
    drawn = run_in_shell(short, [LAB, "plot", folder], "PYTHONIOENCODING=ascii {}")
    assert (drawn.returncode, drawn.stdout.isascii()) == (0, True)


@pytest.mark.medium
@pytest.mark.parametrize("args", [["spec", "list"], ["spec", "schema"], ["--version"]])
def test_other_commands_end_well_without_their_reader(tmp_path, args):
    done = run_in_shell(tmp_path, [LAB, *args], "{} | true")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.medium
def test_names_and_keys_of_files_are_escaped_on_either_stream(tmp_path):
    spec = ppo(**{"agent__algorithm__ga\x1b[2Jmma": 1})
    (tmp_path / "spec.json").write_text(json.dumps({"na\x1b[31mme": spec}))
    for args in (
        ["spec", "check", "spec.json"],
        ["run", "spec.json"],
        ["run", "spec.json", "x"],
    ):
        done = call([str(LAB), *args], tmp_path)
        assert done.code == 2
        assert "\x1b" not in done.out + done.err
        assert "na\\x1b[31mme" in done.out + done.err


def test_an_error_of_the_command_line_has_no_codes_of_colours_on_a_terminal(tmp_path):
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [LAB, "compare", "--nope"], cwd=tmp_path, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the terminal is closed
        while part := os.read(reader, 1024):
            shown += part
    os.close(reader)
    assert process.wait() == 2
    assert b"No such option: --nope" in shown
    assert b"x1b" not in shown
    assert b"\x1b" not in shown


@pytest.mark.medium
@pytest.mark.parametrize("shell", ["{} >&-", "{} 2>&-"])
def test_closed_streams_are_no_error(tmp_path, shell):
    assert run_in_shell(tmp_path, [LAB, "spec", "list"], shell).returncode == 0


@pytest.mark.medium
@pytest.mark.parametrize(
    "words", [["spec", "list"], ["--help"], ["run", "-h"], ["--version"]]
)
def test_a_full_output_is_reported_by_a_command_that_only_prints(tmp_path, words):
    done = run_in_shell(tmp_path, [LAB, *words], "{} > /dev/full")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("standard output: No space left on device")


@pytest.mark.parametrize(
    ("width", "left_out"), [(60, ()), (35, ("second",)), (25, ("second", "third"))]
)
def test_a_narrow_terminal_leaves_columns_out_before_it_cuts_words(width, left_out):
    written = io.StringIO()
    header, cells = (
        ("first", "second", "third", "fourth"),
        ("one word", "two", "three", "four"),
    )
    console = LabConsole(file=written, width=width)
    print_table(console, "", header, [cells], spare=("second", "third"))
    table, _, note = written.getvalue().partition("without ")
    for name, cell in zip(header, cells, strict=True):
        assert (name in table) is (cell in table) is (name not in left_out)
    assert note.startswith(", ".join(left_out))
    assert bool(note) is bool(left_out)


class Terminal(io.StringIO):
    def isatty(self):
        return True


LONG_PATH = f"/home/user/{'long_name/' * 20}run_2026_11_24_171246"


def test_a_path_in_a_document_on_a_narrow_terminal_has_no_line_end(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    document = {"folder": LONG_PATH, "graphs": [LONG_PATH, "a b"], "code": 0}
    print_json(document)
    assert "\x1b[" in terminal.getvalue(), "in colours"
    assert json.loads(re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())) == document


def test_a_name_in_a_table_that_is_to_be_copied_is_in_one_piece():
    written = io.StringIO()
    rows = [(LONG_PATH, "done"), ("short", "failed")]
    print_table(
        LabConsole(file=written, width=80), "", ("run", "status"), rows, whole=True
    )
    line = next(line for line in written.getvalue().splitlines() if "done" in line)
    assert LONG_PATH in line


def test_a_line_end_in_a_cell_is_escaped():
    stream = io.StringIO()
    print_table(LabConsole(file=stream, width=80), "", ("name",), [("two\nlines",)])
    assert r"two\nlines" in stream.getvalue()


def test_two_long_names_in_a_header_stay_apart_in_a_narrow_terminal():
    stream = io.StringIO()
    names = [f"ppo_cartpole_2026_11_24_17124{digit}" for digit in "67"]
    header = ("key", *names)
    print_table(
        LabConsole(file=stream, width=40), "", header, [("lr", "1", "2")], left=header
    )
    lines = (
        line.split("┃")[2:4] for line in stream.getvalue().splitlines() if "┃" in line
    )
    columns = zip(*lines, strict=True)
    assert ["".join(part.strip() for part in column) for column in columns] == names
