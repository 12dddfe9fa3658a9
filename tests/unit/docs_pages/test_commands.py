"""Every `slm-lab` command in the pages is one that the command line takes."""

import re
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from slm_lab.cli.main import app

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^(?:\$ |\w+=\S+ |nohup )*slm-lab (.*)$", re.MULTILINE)
ENDS = ("|", "&", "&&", ">", ";", "2>&1")


def commands(page):
    """The arguments of each command in the blocks of a page."""
    blocks = BLOCK.findall(page.read_text())
    for block in (block for language, block in blocks if language in ("", "bash")):
        for line in COMMAND.findall(block.replace("\\\n", " ")):
            words = shlex.split(line, comments=True)
            yield words[: min((words.index(end) for end in ENDS if end in words), default=None)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_line_takes_every_command(page):
    for words in commands(page):
        command, context, rest = get_command(app), None, list(words)
        while isinstance(command, TyperGroup) and rest[0] in command.commands:
            context = command.context_class(command, parent=context)
            command = command.commands[rest.pop(0)]
        if isinstance(command, TyperGroup):
            assert rest[0] in ("--help", "--version", "--install-completion"), words
        else:
            command.make_context(command.name, rest, parent=context)


def test_commands_are_found():
    assert sum(len(list(commands(page))) for page in PAGES) > 90
