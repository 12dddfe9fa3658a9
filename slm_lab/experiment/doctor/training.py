"""The findings that need nothing but rows and metrics, the most serious first."""

from collections.abc import Iterable, Iterator

from slm_lab.experiment.doctor.case import Case, Finding
from slm_lab.experiment.doctor.learning import SYMPTOMS
from slm_lab.experiment.doctor.outcome import ENDINGS, RESULTS, weak_claim


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
