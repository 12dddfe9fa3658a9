"""Names of Sessions and their roles, and resume commands."""

from typing import TYPE_CHECKING

from rich.console import Console

from slm_lab.analysis.table import count_text
from slm_lab.cli.display.screen import print_line
from slm_lab.experiment.trust import command_text, modules_of
from slm_lab.spec.schema.meta import MetaSpec

if TYPE_CHECKING:
    from slm_lab.experiment.run import Run
    from slm_lab.experiment.search.prepare import Prepared


def print_resume(console: Console, verb: str, run: "Run | Prepared") -> None:
    """Prints the command that resumes a run, with its recorded spec."""
    words = ["run", f"{verb}@{run.run_dir.root}"]
    command = command_text(words, [*run.imports, *modules_of(run.spec)])
    print_line(console, f"resume with: {command}")


def role(meta: MetaSpec, session: int) -> str | None:
    """ "learner", or "actor 0" and so on; None if all Sessions do the same."""
    if not meta.mode.has_learner or meta.actor_learner.serial:
        return None
    index = session % meta.sessions_per_training
    return f"actor {index - 1}" if meta.is_actor(session) else "learner"


def full_name(meta: MetaSpec, session: int) -> str:
    """ "Session 1", which also names its files, with its role if it has one."""
    role_name = role(meta, session)
    return f"Session {session}" if role_name is None else f"Session {session} ({role_name})"


def sessions_text(meta: MetaSpec) -> str:
    """The number of Sessions, and the mode in which they train."""
    sessions = count_text(meta.max_session, "Session")
    if meta.distributed is False:
        return sessions
    runs = f", {meta.max_run} runs one after the other" if meta.max_run > 1 else ""
    if not meta.mode.has_learner:
        return f'{sessions} together ("{meta.distributed}"){runs}'
    actors = f"{count_text(meta.max_session, 'actor')} and a learner"
    if meta.actor_learner.serial:
        return f'{actors} in turn ("{meta.distributed}", serial){runs}'
    return f'{actors} ("{meta.distributed}"){runs}'
