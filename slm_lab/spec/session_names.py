"""What Sessions are called, and what they do together."""

from slm_lab.core.text import count_text
from slm_lab.spec.schema.meta import MetaSpec


def role(meta: MetaSpec, session: int) -> str | None:
    """ "learner", or "actor 0" and so on; None if all Sessions do the same."""
    if not meta.mode.has_learner or meta.has_local_actors:
        return None
    index = session % meta.sessions_per_training
    if meta.is_actor(session):
        return f"actor {index - 1}"
    return "learner"


def full_name(meta: MetaSpec, session: int) -> str:
    """ "Session 1", which also names its files, with its role if it has one."""
    role_name = role(meta, session)
    if role_name is None:
        return f"Session {session}"
    return f"Session {session} ({role_name})"


def sessions_text(meta: MetaSpec) -> str:
    """The number of Sessions, and the mode in which they train."""
    sessions = count_text(meta.max_session, "Session")
    if meta.simulate is not None:
        sessions += " in virtual time"
    if meta.distributed is False:
        return sessions
    runs = ""
    if meta.max_run > 1:
        runs = f", {meta.max_run} runs one after the other"
    if not meta.mode.has_learner:
        return f'{sessions} together ("{meta.distributed}"){runs}'
    actors = f"{count_text(meta.max_session, 'actor')} and a learner"
    if meta.simulate is not None:
        actors += " in virtual time"
    if meta.actor_learner.serial:
        return f'{actors} in turn ("{meta.distributed}", serial){runs}'
    return f'{actors} ("{meta.distributed}"){runs}'
