"""Arguments and options shared by several commands."""

from typing import Annotated

import typer

Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="Fill ${KEY}, or override a dotted path of the spec. Repeatable.",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Import a plug-in module. Repeatable."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Import every module that a run folder, or a checked file, names."
    ),
]
SpecName = Annotated[
    str | None, typer.Argument(help="The spec in the file. May be omitted if it is the only one.")
]
