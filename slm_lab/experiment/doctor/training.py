"""The findings that need nothing but rows and metrics, the most serious first."""

from collections.abc import Iterator

from slm_lab.experiment.doctor.case import Case, Finding, read_case
from slm_lab.experiment.doctor.learning import SYMPTOMS
from slm_lab.experiment.doctor.outcome import ENDINGS, RESULTS, weak_claim
from slm_lab.experiment.plot.runs import find_trials
from slm_lab.storage.run_dir import RunDir


def of_training(case: Case) -> Iterator[Finding]:
    """What the rows and the result show."""
    for symptom in SYMPTOMS:
        for session, course in case.courses.items():
            if finding := symptom(course):
                of = f"Session {session}: " if len(case.courses) > 1 else ""
                yield finding._replace(evidence=f"{of}{finding.evidence}")
                break
    for result in RESULTS:
        if finding := result(case):
            yield finding


def all_findings(case: Case, of_units: Finding | None = None) -> list[Finding]:
    """The findings about a run, the most serious first; `of_units` is that about its agent."""
    ends = [ending(case) for ending in ENDINGS]
    found = (*ends, *of_training(case), of_units, weak_claim(case))
    return [finding for finding in found if finding is not None]


def first_finding(run_dir: RunDir, trial: int) -> Finding | None:
    """The most serious finding about the training of a Trial that has just ended."""
    (found,) = find_trials(f"{run_dir.root}:t{trial}", run_dir.root.parent)
    return next(of_training(read_case(found)), None)
