"""All findings about a run, the most serious first."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary
from slm_lab.experiment.doctor.case import Case, Finding, read_case
from slm_lab.experiment.doctor.learning import SYMPTOMS
from slm_lab.experiment.doctor.outcome import ENDINGS, RESULTS, weak_claim
from slm_lab.experiment.plot.runs import FoundTrial
from slm_lab.experiment.search.outcomes import find_trial


def of_training(case: Case) -> Iterator[Finding]:
    """What the rows and the result show; the same of several Sessions only once."""
    for symptom in SYMPTOMS:
        found = [(s, each) for s, course in case.courses.items() for each in symptom(course)]
        for session, finding in found[:1]:
            of = f"Session {session}: " if len(case.courses) > 1 else ""
            yield finding._replace(evidence=f"{of}{finding.evidence}")
    for result in RESULTS:
        yield from result(case)


def all_findings(case: Case, of_agent: Iterable[Finding] = ()) -> list[Finding]:
    """The findings about a run; `of_agent` are those about its agent."""
    ends = (finding for ending in ENDINGS for finding in ending(case))
    return [*ends, *of_training(case), *of_agent, *weak_claim(case)]


def diagnose(
    run: str, data_dir: Path, imports: Sequence[str], trust: bool
) -> tuple[FoundTrial, list[Finding], str | None]:
    """A run, or the best trial of a search: its findings, and why its agent was not looked at.
    Imports torch. Raises UsageError if there is no such run, or its rows are damaged."""
    from slm_lab.experiment.doctor import measured
    from slm_lab.experiment.policy import build_policy
    from slm_lab.experiment.saved_run import find_agent

    trial = find_trial(run, data_dir)
    case = read_case(trial)
    unseen, of_agent = None, list[Finding]()
    try:
        saved = find_agent(f"{trial.where}", None, None, data_dir, imports, trust)
        of_agent = list(measured.findings(build_policy(*saved)))
    except LabError as error:
        unseen = error_summary(str(error))
    return trial, all_findings(case, of_agent), unseen
