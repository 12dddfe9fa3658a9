"""An unexpected exception is one line, and its traceback is kept."""

import errno
import os
import re
import sys
from pathlib import Path

import pytest
import typer

from slm_lab.cli.shell.exit_codes import FAILED, report_errors


def fail(error):
    with report_errors():
        raise error


def test_a_bug_is_one_line_and_a_file_with_command_and_traceback(
    capsys, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["slm-lab", "runs", "a b"])
    with pytest.raises(typer.Exit) as ended:
        fail(KeyError("no such thing"))
    assert ended.value.exit_code == FAILED
    first, second = capsys.readouterr().err.splitlines()
    assert first == "unexpected KeyError: 'no such thing'"
    found = re.fullmatch(
        r"the traceback is in (.+); please report it, see CONTRIBUTING.md", second
    )
    text = Path(found[1]).read_text()
    assert "slm-lab runs 'a b'" in text
    assert text.rstrip().endswith("KeyError: 'no such thing'")
    assert "in fail" in text


def test_without_room_for_a_file_the_traceback_is_printed(capsys, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with pytest.raises(typer.Exit):
        fail(ZeroDivisionError("division by zero"))
    error = capsys.readouterr().err
    assert error.startswith("Traceback")
    assert error.endswith("unexpected ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize("error", [typer.Exit(3), SystemExit(3)])
def test_an_exit_stays_an_exit(error, capsys):
    with pytest.raises(type(error)):
        fail(error)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EROFS])
def test_a_file_that_cannot_be_written_is_no_bug(number, capsys):
    with pytest.raises(typer.Exit):
        fail(OSError(number, os.strerror(number), "some/file"))
    assert capsys.readouterr().err == f"{os.strerror(number)}: some/file\n"
