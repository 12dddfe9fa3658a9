"""What is wrong with how a run ended, and with what its returns can show."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from slm_lab.core.text import error_summary
from slm_lab.core.text import significant as text
from slm_lab.experiment.doctor.case import Case, Finding
from slm_lab.experiment.doctor.machine import memory_kills
from slm_lab.storage.result import Ending, SessionResult

Outcome: TypeAlias = Callable[[Case], Finding | None]

FEWEST_ROWS, FEWEST_SEEDS, FEWEST_EPISODES = 20, 3, 20


def failed(case: Case) -> Finding | None:
    """Sessions that ended with an error, each with its reason."""
    ends = [end for end in case.ends if end.ending == Ending.FAILED]
    causes = [end for end in ends if not end.lost_others] or ends
    if not ends or case.is_training:
        return None
    reasons = [f"Session {end.session} at frame {end.frame:,}: {_why(end)}" for end in causes]
    what = f"{len(ends)} of {len(case.ends)} Sessions failed"
    advice = f"resume it: slm-lab run train@{case.trial.run_dir.root}"
    if any(end.would_repeat for end in causes):
        advice = "do not resume it, since it would fail again: change what the reason names"
    return Finding(what, "; ".join(reasons), advice)


def unfinished(case: Case) -> Finding | None:
    """A training that was stopped, or killed with all its processes, maybe while it ended."""
    reached = max((float(rows["total_frame"][-1]) for rows in _written(case)), default=0.0)
    budget = _budget(case)
    stopped = [end for end in case.ends if end.ending == Ending.INTERRUPTED]
    is_trained = not stopped and reached >= budget
    if case.is_training or (case.ends and not stopped) or (is_trained and case.metrics):
        return None
    what = "it was stopped before its end" if stopped else "it ended without a word: it was killed"
    what = "its metrics are missing or damaged" if is_trained else what
    numbers = f"{reached:,.0f} of {budget:,} frames{'' if stopped else _memory()}"
    return Finding(what, numbers, f"resume it: slm-lab run train@{case.trial.run_dir.root}")


def no_rows(case: Case) -> Finding | None:
    """Nothing to judge yet; or rows that were written are gone."""
    finished = {end.session for end in case.ends if end.ending == Ending.FINISHED and end.frame}
    gone = [s for s in case.trial.meta.writers if s in finished and not len(case.rows.get(s, ()))]
    if gone:
        paths = [case.trial.run_dir.session(case.trial.trial, s).rows for s in gone]
        numbers = ", ".join(f"no rows in {path}" for path in paths)
        return Finding("rows of finished Sessions are gone", numbers, "restore the files")
    if _written(case) or failed(case):
        return None
    frequency = case.trial.spec["meta"]["log_frequency"]
    numbers = f"a row is due every {frequency:,} frames" if frequency else "no Session has begun"
    return Finding("no rows yet", numbers, "a smaller meta.log_frequency")


def no_better_than_random(case: Case) -> Finding | None:
    """A result within the noise of random actions: what a wrong action space or reward leads to."""
    result, random = case.metrics.get("final_return"), case.metrics.get("random_return")
    if result is None or random is None or result > random + 0.1 * abs(random):
        return None
    numbers = f"final return {text(result)}, of random actions {text(random)}"
    advice = "check the environment: bounds of actions, sign and place of rewards, time limit"
    return Finding("no better than random actions", numbers, advice)


def apart(case: Case) -> Finding | None:
    """One seed far from the others, which a mean hides: Agarwal et al. 2021, arXiv:2108.13264."""
    finals = {s: float(each.rows["final_return"][-1]) for s, each in case.courses.items()}
    finals = {session: value for session, value in finals.items() if np.isfinite(value)}
    spread = max((each.spread for each in case.courses.values()), default=0.0)
    if len(finals) < FEWEST_SEEDS or case.trial.meta.sessions_per_training > 1:
        return None
    for session, value in finals.items():
        others = [each for s, each in finals.items() if s != session]
        if abs(value - np.median(others)) > max(0.3 * spread, 3 * float(np.ptp(others))):
            numbers = f"Session {session}: {text(value)}; others: {', '.join(map(text, others))}"
            advice = f"look at graph/{case.trial.run_dir.session(case.trial.trial, session).prefix}"
            return Finding("one Session is apart from the others", numbers, f"{advice}_*.png")
    return None


def weak_claim(case: Case) -> Finding | None:
    """Too few numbers to rest a claim on: Henderson et al. 2018, arXiv:1709.06560."""
    rows = min(map(len, _written(case)), default=0)
    seeds, episodes = len(case.trial.meta.trainings), case.metrics.get("final_return_episodes")
    few = [
        f"{count} of at least {least} {what}"
        for count, what, least in (
            (rows, "rows", FEWEST_ROWS),
            (seeds, "seeds", FEWEST_SEEDS),
            (episodes, "episodes", FEWEST_EPISODES),
        )
        if count is not None and count < least
    ]
    if not few or not rows or not case.ends or case.trial.of_search:
        return None
    advice = "more Sessions (meta.max_session, or meta.max_run), or slm-lab run eval@RUN"
    return Finding("too little for a claim", ", ".join(few), advice)


ENDINGS: tuple[Outcome, ...] = (failed, unfinished, no_rows)
RESULTS: tuple[Outcome, ...] = (apart, no_better_than_random)
"""Each the most serious first."""


def _why(end: SessionResult) -> str:
    if end.lost:
        return "its machine was lost"
    if (code := end.exit_code or 0) < 0:
        return f"killed by signal {-code}{_memory() if code == -9 else ''}"
    return error_summary(end.error or "no reason was written")


def _memory() -> str:
    """What the kernel has counted, if it has killed processes for their memory."""
    kills = memory_kills()
    return f" (the kernel has killed {kills} processes for memory since its start)" if kills else ""


def _written(case: Case) -> list[Any]:
    return [rows for rows in case.rows.values() if len(rows)]


def _budget(case: Case) -> int:
    return int(case.trial.spec["env"]["max_frame"])
