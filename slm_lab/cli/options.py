"""Arguments and options shared by several commands."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from slm_lab.cli.display.output import SafeStream
from slm_lab.cli.shell import completion
from slm_lab.core.errors import UsageError
from slm_lab.records.run_source import OutputForm

NONE: list[str] = []
"""The default of options that may be repeated. Nobody changes it."""
setting = partial(Option, metavar="KEY=VALUE", autocompletion=completion.keys)
"""An option that changes keys of a spec."""
Sets = Annotated[
    list[str],
    setting(
        "--set",
        "-s",
        help="Fill ${KEY}, or override a dotted path of the spec. Repeatable.",
    ),
]
Imports = Annotated[
    list[str],
    Option("--import", metavar="MODULE", help="Import a plug-in module. Repeatable."),
]
Trust = Annotated[
    bool, Option("--trust", help="Import all modules that the run or file names.")
]
SpecFile = Annotated[
    str,
    Argument(
        help="A spec file, or a shipped name.", autocompletion=completion.spec_files
    ),
]
SPEC_NAME_HELP = "The spec in the file, if it has several."
RUN_NAME_HELP = f"{SPEC_NAME_HELP} After an algorithm, the environment."
SpecName = Annotated[
    str | None, Argument(help=SPEC_NAME_HELP, autocompletion=completion.spec_names)
]
FirstSeed = Annotated[int | None, Option(min=0, help="First seed: meta.random_seed.")]
Data = Annotated[Path, Option(help="Folder of run folders.")]
SavedRunName = Annotated[
    str,
    Argument(
        metavar="RUN",
        help="A folder, its name in --data or a beginning of it. Or the name of a spec "
        "or of --name, latest, latest~2 or FILE.zip. One of these with :tN is a trial "
        "of a search.",
        autocompletion=completion.runs,
    ),
]
WhichAgent = Annotated[
    Literal["best", "latest"] | None,
    Option(
        help="The saved agent. Default: that with the best return, else the latest."
    ),
]
OneSession = Annotated[
    int | None, Option(min=0, help="The agent's Session. Default: the first.")
]
Repository = Annotated[
    str, Argument(metavar="OWNER/NAME", help="A repository of the Hugging Face Hub.")
]
Notify = Annotated[
    str | None,
    Option(
        metavar="CMD",
        help="A shell command to run at the end, with SLM_LAB_RUN (the folder) and "
        "SLM_LAB_EXIT_CODE.",
    ),
]


Label = Annotated[
    str | None,
    Option("--name", metavar="NAME", help="A name that finds the new run."),
]
Note = Annotated[str | None, Option(metavar="TEXT", help="A note about the new run.")]
Tags = Annotated[
    list[str],
    Option("--tag", metavar="TAG", help="A tag of the new run. Repeatable."),
]
Track = Annotated[
    list[str],
    Option(
        metavar="WORD",
        help="Send the run to wandb, mlflow or tensorboard, or to a callback of a "
        "package. Repeatable. A resumed run keeps its trackers; none drops them.",
    ),
]
AllMetrics = Annotated[
    bool,
    Option("--all", help="Print all metrics at the end, not only the first five."),
]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only warnings and errors.")]


def output_form(as_json: bool, quiet: bool = False) -> OutputForm:
    """The form of what a training prints."""
    if as_json:
        return "json"
    if quiet:
        return "nothing"
    return "text"


def reject_beside_resume(plan: Mapping[str, object], rest: str = "") -> None:
    """Raises UsageError for an option of the `plan` with a value, which no resumed
    comparison can change. `rest` ends the message."""
    for option, value in plan.items():
        if value is not None:
            raise UsageError(
                f"{option} cannot be used with --resume, which keeps the first "
                f"plan{rest}"
            )


def _await_document(ctx: typer.Context, wanted: bool) -> bool:
    stream: object = sys.stdout
    if wanted and isinstance(stream, SafeStream) and not ctx.resilient_parsing:
        stream.awaits_document = True
    return wanted


AsJson = Annotated[
    bool,
    Option(
        "--json",
        help="Print one JSON document, and nothing else.",
        callback=_await_document,
    ),
]
