"""The commands that one may give next for a run, a search or a comparison."""

from contextlib import suppress
from pathlib import Path

from slm_lab.core.errors import LabError
from slm_lab.experiment.runs.summary import RunStatus
from slm_lab.experiment.trust import command_text, named_by
from slm_lab.storage.run_dir import PLAN_BLOCK, PLAN_FILE, RunDir


def next_commands(
    folder: Path, run: RunDir | None, status: RunStatus, trial: str = ""
) -> dict[str, str]:
    """What each command does, and its text, with `--import` for the modules that files of the run
    name. `run` is None for a comparison; `trial` chooses one of a search. A folder whose name has
    control characters has none."""
    if not str(folder).isprintable():
        return {}
    place = str(folder)
    target = f"{place}:t{trial}" if trial else place
    commands: dict[str, list[str]] = {}
    if status not in (RunStatus.TRAINING, RunStatus.DONE):
        commands["resume"] = ["compare", "--resume", place]
        if run is not None:
            commands["resume"] = ["run", f"{'search' if run.is_search else 'train'}@{place}"]
    if run is not None:
        if status is RunStatus.TRAINING:
            commands["watch"] = ["watch", place]
        commands["evaluate"] = ["run", f"eval@{target}"]
        commands["see it play"] = ["run", f"enjoy@{target}", "--render"]
        commands["examine"] = ["doctor", target]
    commands["draw"] = ["plot", target]
    modules = _modules(folder, run)
    return {
        about: command_text(words, () if about in ("watch", "draw") else modules)
        for about, words in commands.items()
    }


def _modules(folder: Path, run: RunDir | None) -> tuple[str, ...]:
    """The modules that the files of a run name; none if they cannot be read."""
    with suppress(LabError):
        if run is not None:
            return named_by([run.spec_file])
        return named_by(folder.glob(PLAN_FILE.format("*")), PLAN_BLOCK)
    return ()
