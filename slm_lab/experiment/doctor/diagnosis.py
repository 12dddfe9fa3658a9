"""All findings about a run and its agent, the most serious first. Needs torch."""

from collections.abc import Sequence
from pathlib import Path

from slm_lab.core.errors import LabError
from slm_lab.core.text import error_summary
from slm_lab.experiment.doctor import measured
from slm_lab.experiment.doctor.case import Finding, read_case
from slm_lab.experiment.doctor.training import all_findings
from slm_lab.experiment.plot.runs import FoundTrial
from slm_lab.experiment.policy import build_policy
from slm_lab.experiment.saved_run import find_agent
from slm_lab.experiment.search.outcomes import find_trial


def diagnose(
    run: str, data_dir: Path, imports: Sequence[str], trust: bool
) -> tuple[FoundTrial, list[Finding], str | None]:
    """A run, or the best trial of a search: its findings, and why its agent was not looked at.
    Raises UsageError if there is no such run, or its rows are damaged."""
    trial = find_trial(run, data_dir)
    case = read_case(trial)
    unseen, of_agent = None, list[Finding]()
    try:
        saved = find_agent(f"{trial.where}", None, None, data_dir, imports, trust)
        of_agent = list(measured.findings(build_policy(*saved)))
    except LabError as error:
        unseen = error_summary(str(error))
    return trial, all_findings(case, of_agent), unseen
