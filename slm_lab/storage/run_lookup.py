"""Finds the run folder that a command names."""

import re
from pathlib import Path

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.spec.load import spec_names
from slm_lab.spec.read import find_file, read_file, shipped_name
from slm_lab.storage.run_dir import RunDir

_TRIAL_TARGET = re.compile(r"(.+):t(\d+)")


def find_run(target: str, data_dir: Path, spec_name: str, of_search: bool = False) -> RunDir:
    """The folder of a run, or of a search, for "latest", a path, or a name inside the data folder.

    Raises UsageError if there is none, or if it is of the other kind.
    """
    if target == "latest":
        return RunDir.latest(data_dir, spec_name, of_search)
    folder = _folder(target, data_dir)
    run_dir = RunDir.open(folder, spec_name)
    if run_dir.search_record.is_file() is not of_search:
        kind, other = ("search", "run") if of_search else ("run", "search")
        raise UsageError(f"{folder} is not a {kind} but a {other} of {spec_name}")
    return run_dir


def find_saved(target: str, data_dir: Path, spec_name: str) -> tuple[RunDir, int | None]:
    """The run or search with the saved agents, and the trial number if the target is FOLDER:t3.

    "latest" without a trial is a run, with one a search.
    """
    named = _TRIAL_TARGET.fullmatch(target)
    folder, trial = (named[1], int(named[2])) if named is not None else (target, None)
    if folder != "latest" and _folder(folder, data_dir).is_dir():
        return RunDir.open(_folder(folder, data_dir), spec_name), trial
    return find_run(folder, data_dir, spec_name, of_search=trial is not None), trial


def _folder(target: str, data_dir: Path) -> Path:
    folder = Path(target)
    inside = data_dir / folder
    return inside if not folder.is_dir() and inside.is_dir() else folder


def asked_spec_name(spec_file: str, spec_name: str | None) -> str:
    """`spec_name`, or the name of the file's only spec. Raises SpecError if it has several."""
    path = find_file(spec_file)
    names = spec_names(read_file(path))
    if spec_name is not None:
        return spec_name
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        problem = Problem("spec name", f"must be given; the file holds {listed}")
        raise SpecError(shipped_name(path), [problem])
    return names[0]


def recorded_seed(run_dir: RunDir, seed: int | None) -> int:
    """The root seed in the run's spec file. Raises SpecError if it was removed."""
    if seed is None:
        problem = Problem(
            "meta.random_seed", "must be the seed that the run was started with", None
        )
        raise SpecError(str(run_dir.spec_file), [problem])
    return seed
