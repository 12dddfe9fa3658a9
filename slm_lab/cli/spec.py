"""`slm-lab spec`: check, show and list specs, write their JSON Schema."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Argument, Exit
from typing_extensions import override

from slm_lab.cli.display.screen import console, print_json, print_line
from slm_lab.cli.options import AsJson, Imports, Sets, SpecName, Trust
from slm_lab.cli.shell import completion
from slm_lab.cli.shell.exit_codes import BAD_INPUT, report_errors
from slm_lab.core.errors import (
    LabError,
    MissingExtraError,
    Problem,
    SpecError,
    UsageError,
)
from slm_lab.core.plugins import import_plugins, is_covered, module_in

if TYPE_CHECKING:
    from slm_lab.spec.parse import Parsed
    from slm_lab.spec.schema.spec import Spec

app = typer.Typer(
    help="Check, show and list specs; write their JSON Schema.", no_args_is_help=True
)


@app.command()
def check(
    files: Annotated[
        list[str] | None,
        Argument(
            help="Spec files, paths or shipped names. Default: every shipped file.",
            autocompletion=completion.spec_files,
        ),
    ] = None,
    sets: Sets = None,
    imports: Imports = None,
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
    from slm_lab.records.trust import IMPORTS, imports_of_file, is_of_a_run
    from slm_lab.spec.load import check_file
    from slm_lab.spec.read import find_file, shipped_files

    results: list[_Result] = []
    with report_errors():
        import_plugins(imports or [])
        for file in files or shipped_files():
            try:
                modules = imports_of_file(str(file), imports or (), trust)
                may_import_all = trust or not is_of_a_run(find_file(file))
                import_plugins(modules)
                checked = check_file(file, sets or [])
            except SpecError as error:
                found = [_Result(error.where, error.problems)]
            except UsageError as error:
                found = [_Result(str(file), [Problem(IMPORTS, str(error))])]
            else:
                found = [
                    _result(each, None if may_import_all else modules)
                    for each in checked
                ]
            results += found
            for each in found if not as_json else ():
                print_line(console(), str(each))
        if as_json:
            print_json([each.to_json() for each in results])
    if any(each.problems for each in results):
        raise Exit(BAD_INPUT)


@app.command()
def show(
    file: Annotated[
        str,
        Argument(
            help="A spec file, or a shipped name.", autocompletion=completion.spec_files
        ),
    ],
    name: SpecName = None,
    sets: Sets = None,
    imports: Imports = None,
) -> None:
    """Print a spec as it would run, every default written out, as JSON."""
    with report_errors():
        from slm_lab.records.trust import imports_of_file
        from slm_lab.spec.load import load_spec

        import_plugins(imports_of_file(file, imports or (), trust=False))
        spec = load_spec(file, name, sets or [])
        print_json({spec.name: spec.to_json()})


@app.command()
def schema(imports: Imports = None) -> None:
    """Print the JSON Schema of spec files, for completion in an editor."""
    with report_errors():
        from slm_lab.spec.json_schema import file_schema

        import_plugins(imports or [])
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


class _Result(NamedTuple):
    """The result for a spec, or for a file that cannot be read."""

    where: str
    problems: Sequence[Problem]
    notes: Sequence[str] = ()
    of_search: Sequence[Problem] = ()
    """The problems that only a search has."""

    @property
    def is_ok_for_train(self) -> bool:
        """Whether a training accepts the spec."""
        return all(problem in self.of_search for problem in self.problems)

    @override
    def __str__(self) -> str:
        if not self.is_ok_for_train:
            return str(SpecError(self.where, self.problems))
        note = ""
        if self.notes:
            note = f" ({'. '.join(self.notes)})"
        if self.problems:
            of_search = SpecError(f"{self.where}: search", self.problems)
            return f"{self.where}: ok for train{note}\n{of_search}"
        return f"{self.where}: ok{note}"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; a problem has its path, the message, and both as text."""
        problems = [
            {"path": each.path, "message": each.message, "text": str(each)}
            for each in self.problems
        ]
        return {
            "spec": self.where,
            "ok": not problems,
            "ok_for_train": self.is_ok_for_train,
            "problems": problems,
            "notes": self.notes,
        }


def _result(checked: "Parsed", imports: Sequence[str] | None) -> _Result:
    """`imports` are the modules that may be imported; None allows all that the file
    names."""
    names = () if checked.env is None else checked.env.code_names
    modules = dict.fromkeys(module for name in names if (module := module_in(name)))
    of_env = [
        each
        for each in modules
        if imports is not None and not is_covered(each, imports)
    ]
    found = _Found([], [], []) if of_env else _second_pass(checked)
    of_search = [*checked.of_search, *found.of_search]
    problems = [*checked.problems, *found.problems, *found.of_search]
    notes = [
        f"env names the module {module}, which was not imported: --import {module} or "
        "--trust checks the environment too"
        for module in of_env
    ]
    notes.extend(found.notes)
    if checked.variables:
        needed = " ".join(f"-s {name}=…" for name in checked.variables)
        notes.append(f"template: needs {needed}")
    notes.extend([*checked.renamed, *checked.adapted])
    if checked.legacy:
        notes.append(f"ignored: {'; '.join(checked.legacy)}")
    if checked.suspicious:
        notes.append(f"suspicious: {'; '.join(checked.suspicious)}")
    return _Result(checked.where, problems, notes, of_search)


class _Found(NamedTuple):
    """What the second pass found."""

    problems: Sequence[Problem]
    of_search: Sequence[Problem]
    notes: Sequence[str]


def _second_pass(checked: "Parsed") -> _Found:
    """What a run checks before it starts: environment, spaces, nets, and what this
    machine has."""
    if checked.env is None:
        return _Found([], [], [])
    from slm_lab.env.check import check_env

    problems = check_env(checked.env)
    if problems or checked.spec is None:
        return _Found(problems, [], [])
    from slm_lab.studies.run import check_devices, check_spaces

    notes: list[str] = []
    try:
        check_spaces(checked.where, checked.spec)
    except SpecError as error:
        problems = list(error.problems)
    except MissingExtraError as error:
        notes.append(f"not checked with its environment: {error}")
    except LabError as error:
        problems = [Problem("env", str(error))]
    notes.extend(f"not on this machine: {each}" for each in check_devices(checked.spec))
    return _Found(
        problems, [] if checked.of_search else _of_search(checked.spec), notes
    )


def _of_search(spec: "Spec") -> Sequence[Problem]:
    """The problems of the environments that a search would make."""
    from slm_lab.spec.search import dimensions

    if not any(each.path.startswith("env") for each in dimensions(spec.search or {})):
        return []
    from slm_lab.studies.search.prepare import env_problems  # imports ray
    from slm_lab.studies.search.space import Space

    return env_problems(Space(spec), spec)
