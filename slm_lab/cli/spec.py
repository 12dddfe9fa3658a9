"""`slm-lab spec`: check, show and list specs, write their JSON Schema."""

from typing import Annotated

import typer
from typer import Argument, Exit

from slm_lab.cli.display.screen import console, print_json, print_line
from slm_lab.cli.options import NONE, AsJson, Imports, Sets, SpecFile, SpecName, Trust
from slm_lab.cli.shell import completion
from slm_lab.cli.shell.exit_codes import BAD_INPUT, report_errors
from slm_lab.core.plugins import import_plugins

app = typer.Typer(
    help="Check, show and list specs; write their JSON Schema.", no_args_is_help=True
)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        Argument(
            help="Spec files, paths or shipped names; every spec in them is checked. "
            "Default: every shipped file.",
            autocompletion=completion.spec_files,
        ),
    ] = None,  # as in `runs`
    sets: Sets = NONE,
    imports: Imports = NONE,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Check every spec of the files, without running any.

    Makes each environment and each net as a run does. What is not installed is not
    checked.

    A spec with a ${VAR} without a value is a template; its other values are checked.

    Imports the modules that a file names, as a run of it does: of a file in a run
    folder only with --import or --trust.

    Exit codes: 0 no problems, 2 some problems."""
    from slm_lab.spec.read import shipped_files
    from slm_lab.studies.spec_report import SpecReport, check_specs

    reports: list[SpecReport] = []
    with report_errors():
        import_plugins(imports)
        for file in files or shipped_files():
            of_file = check_specs(file, sets, imports, trust)
            reports += of_file
            for report in of_file if not as_json else ():
                print_line(console(), str(report))
        if as_json:
            print_json([report.to_json() for report in reports])
    if any(report.problems for report in reports):
        raise Exit(BAD_INPUT)


@app.command()
def show(
    file: SpecFile,
    name: SpecName = None,
    sets: Sets = NONE,
    imports: Imports = NONE,
) -> None:
    """Print a spec as it would run, every default written out, as JSON."""
    with report_errors():
        from slm_lab.records.trust import imports_of_file
        from slm_lab.spec.load import load_spec

        import_plugins(imports_of_file(file, imports, trust=False))
        spec = load_spec(file, name, sets)
        print_json({spec.name: spec.to_json()})


@app.command()
def schema(imports: Imports = NONE) -> None:
    """Print the JSON Schema of spec files, for completion in an editor."""
    with report_errors():
        from slm_lab.spec.json_schema import file_schema

        import_plugins(imports)
        print_json(file_schema())


@app.command(name="list")
def list_specs() -> None:
    """List the shipped files and the specs in them."""
    with report_errors():
        from slm_lab.spec.load import spec_names
        from slm_lab.spec.read import read_file, shipped_files, shipped_name

        for path in shipped_files():
            names = ", ".join(spec_names(read_file(path)))
            print_line(console(), f"{shipped_name(path)}: {names}")
