"""Finds the run folder that a user names."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from slm_lab.core.errors import MissingRunError, SpecError, UsageError
from slm_lab.core.files import may_be_read
from slm_lab.core.recorded import recordable_text
from slm_lab.core.registry import suggestion
from slm_lab.records.archive import archive_of, unpacked
from slm_lab.records.run_record import RunRecord
from slm_lab.spec.load import chosen_name, spec_names
from slm_lab.spec.read import find_file, read_file, shipped_name
from slm_lab.storage.run_dir import RunDir, newest_first, runs_in, safe_name

_TRIAL_TARGET = re.compile(r"(.+):t(\d+)")
_LATEST = re.compile(r"latest(?:~(\d{1,9}))?")
SHOWN = 3
"""The maximum number of names in a message."""


def find_folder(
    target: str,
    data_dir: Path,
    spec_name: str | None = None,
    of_search: bool | None = None,
    env: str | None = None,
) -> tuple[RunDir, int | None]:
    """The run that a user names, and the trial if it is one of a search. A target is
    one of:

    - a folder, or its name in `data_dir`, or a unique prefix of its name.
      "elsewhere/prefix" searches the folder "elsewhere" in place of `data_dir`;
    - the name of a spec, a folder's name without the time, or what `--name` gave: the
      latest such;
    - "latest", the newest run that is not a dev run, or "latest~2", the second before
      it;
    - one of these and ":t3", a trial of a search.

    `spec_name`, `env` (given on the command line) and `of_search` narrow the runs.
    Raises UsageError if there is no such run, or several."""
    named = _TRIAL_TARGET.fullmatch(target)
    name, trial = (named[1], int(named[2])) if named is not None else (target, None)
    path = Path(name)
    if len(path.parts) > 1 and os.path.isdir(path.parent) and not os.path.exists(path):
        data_dir = path.parent
        name = path.name
    places = (Path(name), data_dir / name)
    folder = next(filter(os.path.isdir, places), places[0])  # false for a name too long
    is_word = _LATEST.fullmatch(name) or any(
        _has_name(run, name) for run in runs_in(data_dir)
    )
    if os.path.isdir(folder) and not may_be_read(folder):
        raise UsageError(f"{folder} may not be read by this user: permission denied")
    if os.path.isdir(folder) and not (is_word and RunDir.at(folder) is None):
        run_dir = _run_at(folder, spec_name, of_search)
    else:
        run_dir = _run_called(
            name=name,
            data_dir=data_dir,
            spec_name=spec_name,
            of_search=of_search,
            env=env,
        )
    return _with_name(run_dir, spec_name), trial


def _run_at(folder: Path, spec_name: str | None, of_search: bool | None) -> RunDir:
    """The run in a folder. Raises UsageError if there is none, or another kind."""
    run_dir = RunDir.at(folder) if spec_name is None else RunDir(folder, spec_name)
    if run_dir is None or not run_dir.spec_file.is_file():
        of_spec = ""
        if spec_name is not None:
            of_spec = f" of {spec_name}"
        file = "spec file"
        if run_dir is not None:
            file = run_dir.spec_file.name
        raise UsageError(f"{folder} is not a run{of_spec}: it has no {file}")
    if of_search not in (None, run_dir.is_search):
        kind, other = ("search", "run") if of_search else ("run", "search")
        fix = f"use {'train' if of_search else 'search'}@"
        raise UsageError(
            f"{folder} is not a {kind} but a {other} of {run_dir.spec_name}: {fix}"
        )
    return run_dir


def _run_called(
    name: str,
    data_dir: Path,
    spec_name: str | None,
    of_search: bool | None,
    env: str | None,
) -> RunDir:
    """The run in `data_dir` that a word or the beginning of a name means. Raises
    UsageError if there is none, or several."""
    runs = [
        run
        for run in runs_in(data_dir)
        if spec_name is None or run.prefix == safe_name(spec_name)
        if env is None
        or run.root.name.startswith(f"{safe_name(f'{spec_name}_{env}')}_")
        if of_search in (None, run.is_search)
    ]
    subject = spec_name
    if env is not None:
        subject = f"{spec_name} on {env}"
    try:
        return _choose(
            name=name,
            runs=runs,
            data_dir=data_dir,
            subject=subject,
            of_search=of_search,
        )
    except MissingRunError as error:
        hint = _hint_at_other_kind(name, data_dir, of_search)
        raise MissingRunError(f"{error}{hint}") from None


def _hint_at_other_kind(name: str, data_dir: Path, of_search: bool | None) -> str:
    """A hint at what to type where only runs of the other kind, searches or not, are in
    the folder."""
    others = [run for run in runs_in(data_dir) if run.is_search is not of_search]
    if of_search is None or not _LATEST.fullmatch(name) or not others:
        return ""
    newest = newest_first(others)[0].root.name
    if of_search:
        return f". {newest} is a run, no search: resume it by train@{newest}"
    return (
        f". {newest} is a search: eval@{newest} and enjoy@{newest} play its best "
        f"trial, search@{newest} resumes it"
    )


def _choose(
    name: str,
    runs: list[RunDir],
    data_dir: Path,
    subject: str | None,
    of_search: bool | None,
) -> RunDir:
    """The run called `name` among `runs`, which are all of `subject`."""
    latest = _LATEST.fullmatch(name)
    if latest:
        back = int(latest[1] or 0)
        if back < len(runs):
            return newest_first(runs)[back]
        what, mode = ("search", "search") if of_search else ("run", "train")
        of_spec = ""
        if subject is not None:
            of_spec = f" of {subject}"
        if runs:
            oldest = (
                f"the oldest {what}{of_spec} in {data_dir} is latest~{len(runs) - 1}"
            )
            raise MissingRunError(f"{name}: {oldest}")
        raise MissingRunError(
            f"there is no {what}{of_spec} in {data_dir}; start one with the mode {mode}"
        )
    called = [run for run in runs if _has_name(run, name)]
    if called:
        return newest_first(called)[0]
    if name.endswith(".zip") and os.path.isfile(name):
        raise UsageError(
            f"{name} is a shared run: it has only an agent, and cannot be resumed"
        )
    fitting = [run for run in runs if run.root.name.startswith(name)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        listed = ", ".join(run.root.name for run in fitting[-SHOWN:])
        raise UsageError(
            f"{len(fitting)} runs in {data_dir} begin with {name}, the last are "
            f"{listed}; add more of a name"
        )
    hint = suggestion(name, ["latest", *(run.root.name for run in runs)])
    raise MissingRunError(f"there is no run folder {name}, here or in {data_dir}{hint}")


def _with_name(run_dir: RunDir, spec_name: str | None) -> RunDir:
    """The run with the name of its spec, by default the recorded one; file names
    replace most characters by `_`."""
    if spec_name is None:
        with suppress(SpecError):  # the command reports an unreadable file
            names = spec_names(read_file(run_dir.spec_file))
            spec_name = None
            if len(names) == 1:
                spec_name = names[0]
    return RunDir(run_dir.root, spec_name or run_dir.spec_name)


def find_run(
    target: str,
    data_dir: Path,
    spec_name: str | None,
    of_search: bool = False,
    env: str | None = None,
) -> RunDir:
    """The run, or search, to resume. Raises UsageError as `find_folder`, and for a
    trial."""
    run_dir, trial = find_folder(
        target=target,
        data_dir=data_dir,
        spec_name=spec_name,
        of_search=of_search,
        env=env,
    )
    if trial is not None:
        raise UsageError(
            f"{target}: a trial is resumed with its search, {run_dir.root}"
        )
    return run_dir


def find_saved(
    target: str, data_dir: Path, spec_name: str | None, env: str | None = None
) -> tuple[RunDir, int | None]:
    """The run or search with the saved agents. "latest" without a trial is a run, with
    one a search. Raises UsageError as `find_folder`."""
    named = _TRIAL_TARGET.fullmatch(target)
    is_latest = _LATEST.fullmatch(named[1] if named else target) is not None
    return find_folder(
        target=target,
        data_dir=data_dir,
        spec_name=spec_name,
        of_search=named is not None if is_latest else None,
        env=env,
    )


def find_trial(target: str, data_dir: Path, archive: Path | None = None) -> RunRecord:
    """The Trial of a run, or the best of a search, named as for `find_folder`; ":t3"
    names another. `archive` is the shared run that `target` is unpacked from. Raises
    UsageError, SpecError."""
    run_dir, number = find_folder(target, data_dir)
    return RunRecord(run_dir, archive=archive).trial_at(number)


@contextmanager
def open_trial(target: str, data_dir: Path) -> Iterator[RunRecord]:
    """The Trial as by `find_trial`, also of the file of a shared run. This is unpacked
    meanwhile, and errors name it."""
    with unpacked(target) as folder:
        yield find_trial(folder, data_dir, archive_of(target, folder))


def find_trials(
    target: str, data_dir: Path, notes: list[str] | None = None
) -> list[RunRecord]:
    """The Trials of a run as for `find_folder`, or of all run folders in a folder. For
    a trial of a search it is this one alone. Raises UsageError if there are none.
    Raises SpecError for an unreadable spec. With `notes`, a run of a folder that has
    such a spec is left out and noted there."""
    folders = filter(os.path.isdir, (Path(target), data_dir / target))
    folder = next(folders, None)
    if folder is not None and RunDir.at(folder) is None:
        return _trials_in(folder, notes)
    run_dir, number = find_folder(target, data_dir)
    trials = RunRecord(run_dir).trials
    chosen = [trial for trial in trials if number in (None, trial.trial)]
    if not chosen:
        numbers = ", ".join(f"t{trial.trial}" for trial in trials)
        reason = "is no run"
        if numbers:
            reason = f"the run has the trials {numbers}"
        raise UsageError(f"{target}: {reason}")
    for trial in chosen:
        trial.check_spec()
    return chosen


def _trials_in(folder: Path, notes: list[str] | None) -> list[RunRecord]:
    """The Trials of all runs in a folder, see `find_trials`."""
    trials: list[RunRecord] = []
    for run_dir in runs_in(folder):
        of_run = RunRecord(run_dir).trials
        try:
            for trial in of_run:
                trial.check_spec()
            trials += of_run
        except SpecError as error:
            if notes is None:
                raise
            notes.append(f"left out: {run_dir.root.name}: {error.problems[0]}")
    if not trials:
        raise UsageError(
            f"{folder} is no run folder, and contains none: a run folder has "
            "{spec_name}_spec.json and {spec_name}_t0_spec.json, as slm-lab run "
            "makes them"
        )
    return trials


def find_labelled(label: str, data_dir: Path) -> RunDir | None:
    """The latest run or search that `--name` gave exactly this name; dev runs do not
    count."""
    named = [run for run in runs_in(data_dir) if run.label == label and not run.is_dev]
    if named:
        return _with_name(newest_first(named)[0], None)
    return None


def _has_name(run: RunDir, name: str) -> bool:
    return safe_name(name) in (run.prefix, run.stem) or run.label in (
        name,
        recordable_text(name),
    )


def resolve_spec_name(spec_file: str, spec_name: str | None) -> str:
    """`spec_name`, or the name of the file's only spec. Raises SpecError if it has
    several."""
    path = find_file(spec_file)
    content = read_file(path)
    if spec_name is None:
        return chosen_name(shipped_name(path), content, None)
    return spec_name


def required_seed(run_dir: RunDir, seed: int | None) -> int:
    """The root seed in the run's spec file. Raises SpecError if it was removed."""
    if seed is None:
        message = "must be the seed that the run was started with"
        raise SpecError.of(str(run_dir.spec_file), "meta.random_seed", message, None)
    return seed
