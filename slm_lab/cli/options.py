"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated, Literal

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
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder, its name in --data or a unique beginning of it, latest, or FOLDER:tN "
        "for a trial of a search.",
    ),
]
Which = Annotated[
    Literal["best", "latest"] | None,
    typer.Option(
        help="The best or the latest agent. Default: the best, or latest if there is none."
    ),
]
OneSession = Annotated[
    int | None, typer.Option("--session", min=0, help="Default: the first that has an agent.")
]
Data = Annotated[Path, typer.Option(help="Folder of run folders.")]
