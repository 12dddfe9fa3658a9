"""Finds the run folder that a command names."""

import re
from pathlib import Path

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.registry import nearest_name
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


def find_folder(target: str, data_dir: Path) -> tuple[RunDir, int | None]:
    """A run folder, and the trial number if the target is FOLDER:t3.

    FOLDER is a path, a name in `data_dir`, a beginning that one name alone has, or "latest", the
    newest run that is not a dev run. Raises UsageError if there is none, or several.
    """
    named = _TRIAL_TARGET.fullmatch(target)
    folder, trial = (named[1], int(named[2])) if named is not None else (target, None)
    path = _folder(folder, data_dir)
    if path.is_dir():
        run_dir = RunDir.at(path)
        if run_dir is None:
            raise UsageError(f"{path} is no run folder: it has no {{spec_name}}_spec.json")
        return run_dir, trial
    inside = sorted(data_dir.iterdir()) if data_dir.is_dir() else []
    runs = [run for each in inside if each.is_dir() and (run := RunDir.at(each)) is not None]
    if folder == "latest" and runs:
        return max(runs, key=RunDir.age), trial
    fitting = [run for run in runs if run.root.name.startswith(folder)]
    if len(fitting) == 1:
        return fitting[0], trial
    if fitting:
        listed = ", ".join(run.root.name for run in fitting[-3:])
        raise UsageError(f"{len(fitting)} runs in {data_dir} begin with {folder}, such as {listed}")
    nearest = nearest_name(folder, [run.root.name for run in runs])
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise UsageError(f"there is no run folder {folder}, here or in {data_dir}{hint}")


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
