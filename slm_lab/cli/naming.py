"""What Sessions are called that do not all do the same, and the words of a command to resume."""

import shlex
from collections.abc import Sequence

from slm_lab.core.plugins import is_covered
from slm_lab.spec.schema.meta import MetaSpec


def command_text(words: Sequence[str], modules: Sequence[str]) -> str:
    """A command to paste: `slm-lab` with these words, and --import for each of the modules that a
    run folder names, which is not imported by the name alone."""
    named = dict.fromkeys(modules)
    needed = [each for each in named if not is_covered(each, [*(named.keys() - {each})])]
    imports = [word for module in needed for word in ("--import", module)]
    return shlex.join(["slm-lab", *words, *imports])


def role(meta: MetaSpec, session: int) -> str | None:
    """ "learner", or "actor 0" and so on; None where a Session has no part of its own."""
    if meta.distributed != "actor_learner" or meta.actor_learner.serial:
        return None
    place = session % meta.sessions_per_training
    return f"actor {place - 1}" if meta.is_actor(session) else "learner"


def full_name(meta: MetaSpec, session: int) -> str:
    """ "Session 1", by which its files are found; with its role, if it has one."""
    part = role(meta, session)
    return f"Session {session}" if part is None else f"Session {session} ({part})"


def sessions_text(meta: MetaSpec) -> str:
    """How many Sessions there are, and what they do together."""
    sessions = count_text(meta.max_session, "Session")
    if meta.distributed is False:
        return sessions
    runs = f", {meta.max_run} runs one after the other" if meta.max_run > 1 else ""
    if meta.distributed != "actor_learner":
        return f'{sessions} together ("{meta.distributed}"){runs}'
    actors = f"{count_text(meta.max_session, 'actor')} and a learner"
    if meta.actor_learner.serial:
        return f'{actors} in turn ("actor_learner", serial){runs}'
    return f'{actors} ("actor_learner"){runs}'


def count_text(number: int, noun: str) -> str:
    """ "1 actor", "2 actors"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
