"""The commands that a user may type next about a run, ready to be copied."""

from contextlib import suppress
from pathlib import Path

from slm_lab.core.errors import LabError
from slm_lab.records.run_record import RunRecord, RunStatus
from slm_lab.records.trust import command_text, named_by, resume_words
from slm_lab.storage.run_dir import PLAN_BLOCK, PLAN_FILE, RUN_BLOCK, RunDir

WITHOUT_IMPORTS = ("watch", "draw")
"""The purposes of commands that import no module of the run."""


def next_commands(
    folder: Path, run: RunDir | None, status: RunStatus, trial: str = ""
) -> dict[str, str]:
    """Commands by their purpose, for a run or a search, or a comparison if `run` is
    None; of one `trial` of a search if it is named. They have `--import` for the
    modules that files of the run name."""
    place = str(folder)
    target = place
    if trial:
        target = f"{place}:t{trial}"
    may_resume = status not in (RunStatus.TRAINING, RunStatus.DONE)
    commands: dict[str, list[str]] = {}
    if run is None:
        block = PLAN_BLOCK
        files = [*folder.glob(PLAN_FILE.format("*"))]
        if may_resume:
            commands["resume"] = ["compare", "--resume", place]
    else:
        block = RUN_BLOCK
        files = [run.spec_file]
        if may_resume:
            cluster = RunRecord(run).cluster
            commands["resume"] = resume_words(run.root, run.is_search, cluster)
        if status is RunStatus.TRAINING:
            commands["watch"] = ["watch", place]
        commands["evaluate"] = ["run", f"eval@{target}"]
        commands["see it play"] = ["run", f"enjoy@{target}", "--render"]
        commands["examine"] = ["doctor", target]
    commands["draw"] = ["plot", target]
    modules: tuple[str, ...] = ()
    with suppress(LabError):  # files that cannot be read name none
        modules = named_by(files, block)
    return {
        purpose: command_text(words, () if purpose in WITHOUT_IMPORTS else modules)
        for purpose, words in commands.items()
    }
