"""Every `slm-lab` command in the pages is one that the command line takes."""

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from slm_lab.cli.main import app
from tests.unit.docs_pages.pages import PAGES, commands


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
