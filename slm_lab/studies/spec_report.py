"""What a check of a spec finds, without a run of it: problems, and notes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from slm_lab.core.errors import (
    LabError,
    MissingExtraError,
    Problem,
    SpecError,
    UsageError,
)
from slm_lab.core.plugins import import_plugins, is_covered, module_in
from slm_lab.env.check import check_env
from slm_lab.records.trust import IMPORTS, imports_of_file, is_of_run_folder
from slm_lab.spec.load import check_file
from slm_lab.spec.parse import Parsed
from slm_lab.spec.read import find_file
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import dimensions
from slm_lab.studies.requirements import check_devices, check_spaces, copies_notes


class SpecReport(NamedTuple):
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
        """The report as a JSON object; a problem has its path, the message, and both as
        text."""
        problems = [
            {"path": problem.path, "message": problem.message, "text": str(problem)}
            for problem in self.problems
        ]
        return {
            "spec": self.where,
            "ok": not problems,
            "ok_for_train": self.is_ok_for_train,
            "problems": problems,
            "notes": self.notes,
        }


def check_specs(
    file: str | Path, sets: Sequence[str], imports: Sequence[str], trust: bool
) -> list[SpecReport]:
    """A report for each spec of a file, after the import of the modules that it may
    name. What is wrong with the file itself is a report too."""
    try:
        modules = imports_of_file(str(file), imports, trust)
        may_import_all = trust or not is_of_run_folder(find_file(file))
        import_plugins(modules)
        specs = check_file(file, sets)
    except SpecError as error:
        return [SpecReport(error.where, error.problems)]
    except UsageError as error:
        return [SpecReport(str(file), [Problem(IMPORTS, str(error))])]
    allowed = None if may_import_all else modules
    return [_report(spec, allowed) for spec in specs]


def _report(parsed: Parsed, allowed: Sequence[str] | None) -> SpecReport:
    """The report for a spec that may import the modules `allowed`; None allows all that
    the file names."""
    names = () if parsed.env is None else parsed.env.code_names
    modules = [module for module in dict.fromkeys(map(module_in, names)) if module]
    refused = [
        module
        for module in modules
        if allowed is not None and not is_covered(module, allowed)
    ]
    notes = [
        f"env names the module {module}, which was not imported: --import {module} or "
        "--trust checks the environment too"
        for module in refused
    ]
    problems = [*parsed.problems]
    of_search = [*parsed.of_search]
    if parsed.env is not None and not refused:
        of_env = check_env(parsed.env)
        problems += of_env
        if parsed.spec is not None and not of_env:
            problems += _check_parts(parsed.where, parsed.spec, notes)
            if not parsed.of_search:
                of_search += _search_problems(parsed.spec)
                problems += of_search
    if parsed.variables:
        needed = " ".join(f"-s {name}=…" for name in parsed.variables)
        notes.append(f"template: needs {needed}")
    notes += [*parsed.renamed, *parsed.adapted]
    if parsed.legacy:
        notes.append(f"ignored: {'; '.join(parsed.legacy)}")
    if parsed.suspicious:
        notes.append(f"suspicious: {'; '.join(parsed.suspicious)}")
    return SpecReport(parsed.where, problems, notes, of_search)


def _check_parts(where: str, spec: Spec, notes: list[str]) -> list[Problem]:
    """The problems that a run finds before it starts: spaces and nets. `notes` gets
    what this machine lacks."""
    problems: list[Problem] = []
    try:
        check_spaces(where, spec)
        notes += copies_notes(spec)
    except SpecError as error:
        problems = list(error.problems)
    except MissingExtraError as error:
        notes.append(f"not checked with its environment: {error}")
    except LabError as error:
        problems = [Problem("env", str(error))]
    notes += [f"not on this machine: {problem}" for problem in check_devices(spec)]
    return problems


def _search_problems(spec: Spec) -> Sequence[Problem]:
    """The problems of the environments that a search would make."""
    searched = dimensions(spec.search or {})
    if not any(variable.path.startswith("env") for variable in searched):
        return []
    from slm_lab.studies.search.run import env_problems
    from slm_lab.studies.search.space import Space

    return env_problems(Space(spec), spec)
