"""All findings about a run, the most serious first; those about its end and its
returns."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from slm_lab.core.errors import LabError
from slm_lab.core.process import memory_kills
from slm_lab.core.recorded import value_at
from slm_lab.core.text import error_summary
from slm_lab.core.text import significant as text
from slm_lab.doctor.finding import Finding, Remedy, advising
from slm_lab.doctor.history import SessionHistory, reached_frames, read_histories
from slm_lab.doctor.learning import (
    AT_ONCE,
    SYMPTOMS,
    normalized_rewards,
    smaller_steps,
)
from slm_lab.records.lookup import open_trial
from slm_lab.records.run_record import RunRecord
from slm_lab.records.trust import command_text, named_by, resume_words
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.result import Ending, SessionResult
from slm_lab.storage.run_dir import RUN_BLOCK

Histories: TypeAlias = Mapping[int, SessionHistory]
"""The rows of each Session that has any."""


def findings_of(
    record: RunRecord, of_agent: Iterable[Finding] = (), judges_short: bool = False
) -> list[Finding]:
    """The findings about a run; `of_agent` are those about its agent. Raises UsageError
    for damaged rows."""
    histories = read_histories(record)
    return [
        *(finding for ending in ENDINGS for finding in ending(record, histories)),
        *training_findings(record, histories, judges_short),
        *of_agent,
        *weak_claim(record, histories),
    ]


def training_findings(
    record: RunRecord, histories: Histories, judges_short: bool = False
) -> Iterator[Finding]:
    """The findings about the rows and the result. A finding of several Sessions comes
    once, and has remedies if more than half of the Sessions have it. A short training
    gets the findings that it shows at once, with `judges_short` all of them."""
    long = {
        session: history
        for session, history in histories.items()
        if judges_short or not history.is_short
    }
    for symptom in SYMPTOMS:
        judged = histories if symptom in AT_ONCE else long
        findings = {
            session: finding
            for session, history in judged.items()
            for finding in symptom(history)
        }
        if findings:
            yield _merge_sessions(findings, len(histories))
    if len(long) == len(histories):
        for result in RESULTS:
            yield from result(record, histories)


def _merge_sessions(findings: Mapping[int, Finding], sessions: int) -> Finding:
    """What several of the Sessions have, as one finding: the numbers of the first."""
    session, finding = next(iter(findings.items()))
    if sessions > 1:
        evidence = f"Session {session}: {finding.evidence}"
        finding = finding._replace(evidence=evidence)
    if 2 * len(findings) <= sessions:
        finding = finding._replace(remedies=())
    return finding._replace(
        since=min(of_session.since for of_session in findings.values())
    )


def diagnose(
    run: str,
    data_dir: Path,
    imports: Sequence[str],
    trust: bool,
    judges_short: bool = False,
) -> tuple[str, list[Finding], str | None]:
    """The name of the run or of the trial, its findings, and why its agent was not
    looked at. `judges_short` as in `training_findings`. Imports torch. Raises
    UsageError if there is no such run, or its rows are damaged."""
    from slm_lab.doctor import measured
    from slm_lab.records.playable_run import find_agent
    from slm_lab.records.policy import build_policy

    unseen = None
    of_agent: list[Finding] = []
    with open_trial(run, data_dir) as record:
        read_histories(record)  # raises UsageError before torch is imported
        try:
            saved = find_agent(
                run=record.where,
                data_dir=data_dir,
                imports=imports,
                trust=trust,
            )
            of_agent = list(measured.findings(build_policy(*saved), record.spec))
        except LabError as error:
            unseen = error_summary(error)
        return record.where, findings_of(record, of_agent, judges_short), unseen


Outcome: TypeAlias = Callable[[RunRecord, Histories], Iterator[Finding]]
"""Yields a finding if the Trial has the illness."""

FEWEST_ROWS = 20
FEWEST_SEEDS = 3
FEWEST_EPISODES = 20


def failed(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """Sessions that ended with an error, each with its reason."""
    ends = [end for end in record.results if end.ending is Ending.FAILED]
    causes = [end for end in ends if not end.lost_others] or ends
    if ends and not record.is_training:
        reasons = [
            f"Session {end.session} at frame {end.frame:,}: {_why(end)}"
            for end in causes
        ]
        advice = _resume(record)
        remedies: tuple[Remedy, ...] = ()
        if any(end.would_repeat for end in causes):
            change = "change the cause"
            if any(end.diverged for end in causes):
                options = smaller_steps(record.spec)
                smaller = advising("", "", record.spec, *options)
                change = f"{smaller.advice},"
                remedies = smaller.remedies
            advice = (
                f"do not resume it, since it would fail again: {change} in a new run"
            )
        what = f"{len(ends)} of {len(record.results)} Sessions failed"
        yield Finding(what, "; ".join(reasons), advice, remedies)


def unfinished(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """A training that was stopped, or killed with all its processes, maybe while it
    ended."""
    budget = value_at(record.spec, "env.max_frame", 0.0)
    reached = reached_frames(record, histories)
    is_stopped = any(end.ending is Ending.INTERRUPTED for end in record.results)
    is_trained = not is_stopped and reached >= budget
    if (
        record.is_training
        or (record.results and not is_stopped)
        or (is_trained and record.metrics)
    ):
        return
    what = "it ended silently: it was killed"
    if is_stopped:
        what = "it was stopped before its end"
    what = "its metrics are missing or damaged" if is_trained else what
    numbers = f"{reached:,.0f} of {budget:,.0f} frames{'' if is_stopped else _memory()}"
    yield Finding(what, numbers, _resume(record))


def no_rows(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """Nothing to judge yet; or rows that were written are gone."""
    done = {
        end.session
        for end in record.results
        if end.ending is Ending.FINISHED and end.frame
    }
    gone = [
        paths.rows
        for session, paths in record.sessions.items()
        if session in done and session not in histories
    ]
    if gone:
        numbers = ", ".join(f"no rows in {path}" for path in gone)
        yield Finding(
            "rows of finished Sessions are gone", numbers, "restore the files"
        )
    elif not histories and not any(failed(record, histories)):
        every = value_at(record.spec, "meta.log_frequency", 0.0)
        numbers = "no Session has begun"
        if every:
            numbers = f"a row is due every {every:,.0f} frames"
        yield Finding("no rows yet", numbers, "set meta.log_frequency to fewer frames")


def no_better_than_random(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """A result within the noise of random actions: what a wrong action space or reward
    leads to."""
    result = record.metrics.get("final_return")
    random = record.metrics.get("random_return")
    if (
        result is not None
        and random is not None
        and result <= random + 0.1 * abs(random)
    ):
        numbers = f"final return {text(result)}, of random actions {text(random)}"
        advice = (
            "raise env.max_frame; check bounds of actions, signs of rewards and the "
            "time limit"
        )
        remedies: tuple[Remedy, ...] = ()
        spec = record.spec
        sees_vectors = value_at(spec, "agent.net.type") in ("MLPNet", "SimBaNet")
        if sees_vectors and not value_at(spec, "env.frame_op"):
            joined = 'set env.frame_op "concat" and env.frame_op_len 4'
            advice = f"{advice}; if one observation does not show the state: {joined}"
            changes = (("env.frame_op", "concat"), ("env.frame_op_len", 4))
            remedies = (Remedy(changes),)
        yield Finding("no better than random actions", numbers, advice, remedies)


def apart(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """One seed far from the others, which a mean hides: Agarwal et al. 2021,
    arXiv:2108.13264."""
    lasts = {
        s: float(history.column("final_return")[-1]) for s, history in histories.items()
    }
    finals = {session: value for session, value in lasts.items() if np.isfinite(value)}
    spread = max((history.spread for history in histories.values()), default=0.0)
    if len(finals) < FEWEST_SEEDS or record.meta.sessions_per_training > 1:
        return
    for session, value in finals.items():
        others = [final for s, final in finals.items() if s != session]
        if abs(value - np.median(others)) > max(
            0.3 * spread, 3 * float(np.ptp(others))
        ):
            numbers = (
                f"Session {session}: {text(value)}; others: "
                f"{', '.join(map(text, others))}"
            )
            graph = f"graph/{record.sessions[session].prefix}_*.png"
            yield Finding(
                "one Session is apart from the others", numbers, f"look at {graph}"
            )


def weak_claim(record: RunRecord, histories: Histories) -> Iterator[Finding]:
    """Too few numbers to rest a claim on: Henderson et al. 2018, arXiv:1709.06560."""
    rows = min((len(history.rows) for history in histories.values()), default=0)
    seeds = len(record.meta.trainings)
    episodes = record.metrics.get("final_return_episodes")
    more = "meta.max_run"
    if record.meta.distributed is False:
        more = "meta.max_session"
    play = _command(record, ["run", f"eval@{record.place}"])
    few = [
        (f"{count:,.0f} of at least {least} {what}", advice)
        for count, least, what, advice in (
            (rows, FEWEST_ROWS, "rows", "a longer training"),
            (seeds, FEWEST_SEEDS, "seeds", f"raise {more} in a new run"),
            (episodes, FEWEST_EPISODES, "episodes", f"play more: {play}"),
        )
        if count is not None and count < least
    ]
    if few and rows and record.results and not record.is_trial_of_search:
        numbers = ", ".join(count for count, _ in few)
        advice = "; ".join(advice for _, advice in few)
        yield Finding("too little for a claim", numbers, advice)


ENDINGS: tuple[Outcome, ...] = (failed, unfinished, no_rows)
RESULTS: tuple[Outcome, ...] = (apart, no_better_than_random)
"""The checks of how a training ended, and of its result; in each list the most serious
first."""


def _resume(record: RunRecord) -> str:
    if record.archive is not None:
        return "resume it where it was trained: a shared run has only an agent"
    run = record.run_dir
    words = resume_words(run.root, run.is_search, value_at(record.spec, "meta.cluster"))
    return f"resume it: {_command(record, words)}"


def _command(record: RunRecord, words: Sequence[str]) -> str:
    """The command with these words, which imports the modules that the run names."""
    return command_text(words, named_by([record.run_dir.spec_file], RUN_BLOCK))


def _why(end: SessionResult) -> str:
    if end.lost:
        return "its machine was lost"
    code = end.exit_code or 0
    if code < 0:
        return f"killed by signal {-code}{_memory() if code == -9 else ''}"
    return error_summary(end.error or "no reason was written")


def _memory() -> str:
    """A note about processes that the kernel has killed for their memory; empty if
    there are none."""
    kills = memory_kills()
    if kills:
        return f" (the kernel has killed {kills} processes for memory since its start)"
    return ""


def advice_after_divergence(spec: Spec, ends: Iterable[SessionResult]) -> str:
    """One line of advice for a training whose loss or gradients are no longer
    finite."""
    content = spec.to_json()
    options = (*smaller_steps(content), *normalized_rewards(content))
    fix = advising("", "", content, *options).advice
    for end in ends:
        _, is_at_fault, values = str(end.error).partition("the environment gave")
        _, is_too_large, keys = values.partition("\n")[0].partition(" by ")
        if is_too_large:
            fix = f"set {keys}"
        elif is_at_fault:
            fix = "the environment must give finite numbers only"
    return (
        "resuming would repeat it, because a resume cannot change what led to numbers "
        f"that are not finite. Start a new run: {fix}"
    )
