"""A treatment: a short fork of a run for each remedy of the doctor's findings. What it
has shown, and its files."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from typing_extensions import override

from slm_lab.charts.overlay import Seeds
from slm_lab.charts.treatment import draw_treatment, returns_until
from slm_lab.core.errors import LabError
from slm_lab.core.files import write_json
from slm_lab.core.recorded import finite
from slm_lab.core.text import significant
from slm_lab.doctor.finding import Finding
from slm_lab.doctor.history import median
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.event_log import StudyState
from slm_lab.records.run_record import RunRecord
from slm_lab.records.run_source import RunSource
from slm_lab.records.validated import UnreadableFileError
from slm_lab.storage.run_dir import safe_name
from slm_lab.studies.compare.folder import CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.compare.trainings import PlannedTrainings, pool_for
from slm_lab.studies.pool import Pool
from slm_lab.studies.treat.effect import RemedyVerdict, returns_of, verdict_on
from slm_lab.studies.treat.plan import Treatment, TriedRemedy, source_of
from slm_lab.studies.trial import TrialTask

UNTREATED = "as it was"
"""The label of the run that is treated."""


class Effect(NamedTuple):
    """The effect of one remedy on one finding."""

    finding: str
    remedy: TriedRemedy
    verdict: RemedyVerdict = RemedyVerdict.UNTRIED
    treated: float = float("nan")
    """The median return of rows late in its training; NaN without an episode."""
    untreated: float = float("nan")
    """The median return of the run's rows at these frames, or at its end."""
    folder: Path | None = None
    """Its run folder; None before it began."""

    @property
    def options(self) -> str:
        """The remedy as options of a command."""
        return " ".join(f"-s {setting}" for setting in self.remedy.settings)


@final
class TreatResults:
    """The results of the remedies in a folder, as far as `study_state` has them."""

    def __init__(self, folder: CompareFolder, study_state: StudyState) -> None:
        self._folder = folder
        self._treatment = Treatment.of(folder.plan)
        self._remedies = self._treatment.remedies
        self._study_state = study_state
        self.effects: list[Effect] = []
        """Each remedy's effect on each finding that it may cure: by finding, the best
        first. Empty until `judge` has found them."""

    @cached_property
    def run(self) -> RunRecord:
        """The run that is treated."""
        return self._treatment.record

    @property
    def has_ended(self) -> bool:
        """Whether every remedy has been tried."""
        trials = self._study_state.trials.values()
        return sum(state.status.is_over for state in trials) == len(self._remedies)

    @property
    def failures(self) -> list[tuple[str, str]]:
        """The remedies whose training failed, and why."""
        return [
            (self._folder.trainings[state.trial].variant, str(state.error))
            for state in self._study_state.of(Status.FAILED)
        ]

    @property
    def best(self) -> Effect | None:
        """The effect of the best remedy; None if none made the run better. Of several
        cures, it is the one for the most serious finding."""
        for verdict in (RemedyVerdict.CURED, RemedyVerdict.BETTER):
            for effect in self.effects:
                if effect.verdict is verdict:
                    return effect
        return None

    @property
    def sentence(self) -> str:
        """What the treatment has shown, in one sentence."""
        if not self.effects:
            return "no remedy has been tried yet"
        best = self.best
        if best is None:
            return "no cure: no remedy has better returns"
        returns = (
            f"return {significant(best.treated)}, untreated "
            f"{significant(best.untreated)}, at frame {best.remedy.until:,}"
        )
        if best.verdict is RemedyVerdict.CURED:
            return f"cured by {best.options}: {returns}"
        return f"not cured, but better with {best.options}: {returns}"

    def judge(self) -> None:
        """Finds the effects. Imports torch. Raises UsageError for damaged rows."""
        effects = [
            effect
            for number in range(len(self._remedies))
            for effect in self._effects_of(number)
        ]
        findings = list(dict.fromkeys(effect.finding for effect in effects))
        self.effects = sorted(
            effects, key=lambda effect: (findings.index(effect.finding), _rank(effect))
        )

    def _effects_of(self, number: int) -> list[Effect]:
        """The effects of one remedy."""
        remedy = self._remedies[number]
        untried = [Effect(finding, remedy) for finding in remedy.findings]
        state = self._study_state.trials.get(number)
        if state is None or not state.status.is_over:
            return untried
        run_dir = self._folder.run_dir(state)
        if state.status is Status.FAILED:
            return [effect._replace(verdict=RemedyVerdict.FAILED) for effect in untried]
        if run_dir is None or not run_dir.spec_file.is_file():
            return [effect._replace(verdict=RemedyVerdict.LOST) for effect in untried]
        record = RunRecord(run_dir)
        returns = returns_of(record, self.run, remedy)
        imports = self._folder.plan.imports
        serious = list(dict.fromkeys(f for r in self._remedies for f in r.findings))
        return [
            effect._replace(
                verdict=verdict_on(
                    findings=serious[: serious.index(effect.finding) + 1],
                    treated=record,
                    returns=returns,
                    imports=imports,
                ),
                treated=median(returns.treated),
                untreated=median(returns.untreated),
                folder=run_dir.root,
            )
            for effect in untried
        ]

    def draw(self) -> list[Path]:
        """The picture of the effects, its page, and the result. Raises OSError."""
        panels: dict[str, list[Seeds]] = {}
        for effect in self.effects:
            if effect.folder is None:
                continue
            until = effect.remedy.until
            curves = panels.setdefault(effect.finding, [])
            if not curves:
                curves += returns_until(UNTREATED, self.run, until)
            record = RunRecord.required(effect.folder)
            label = " ".join(effect.remedy.settings)
            curves += returns_until(label, record, until)
        graphs = []
        if panels:
            graphs = draw_treatment(
                panels=panels,
                title=f"{self.run.name} on {self.run.env}: what cures it",
                sentence=self.sentence,
                folder=self._folder.path,
                stem=f"{self._folder.stem}_treat",
            )
        self.write()
        return graphs

    def write(self) -> None:
        """Writes the result, with the effects once they are known. Raises OSError."""
        write_json(self._folder.record.result_file, self.document())

    def document(self) -> dict[str, Any]:
        """The result as JSON has it."""
        best = self.best
        return {
            "run": self._treatment.run,
            "frames": self._treatment.frames,
            "sentence": self.sentence,
            "ended": self.has_ended,
            "cured": best is not None and best.verdict is RemedyVerdict.CURED,
            "set": list(best.remedy.settings) if best is not None else [],
            "effects": [
                {
                    "finding": effect.finding,
                    "set": list(effect.remedy.settings),
                    "verdict": effect.verdict,
                    "from_frame": effect.remedy.frame,
                    "until_frame": effect.remedy.until,
                    "return": finite(effect.treated),
                    "untreated": finite(effect.untreated),
                    "folder": effect.folder and str(effect.folder),
                }
                for effect in self.effects
            ],
        }


def _rank(effect: Effect) -> tuple[int, float]:
    """A sort key: the better verdict first, then the higher return."""
    late = np.nan_to_num(effect.treated, nan=-np.inf)
    return list(RemedyVerdict).index(effect.verdict), -float(late)


@final
class TreatRun(PlannedTrainings):
    """A treatment that is run, or resumed, in its folder."""

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError as `PlannedTrainings`, and if the log is damaged."""
        super().__init__(folder, pool)
        self.pool = pool
        self.treatment = Treatment.of(folder.plan)
        self.results = TreatResults(folder, self.study_state)
        self.open_study()

    @classmethod
    def open(cls, plan: Plan, data_dir: Path, jobs: int | None) -> "TreatRun":
        """Begins the treatment, on at most `jobs` cores; None: on all. One of the same
        plan in `data_dir` is resumed. Raises UsageError beside a plan that cannot be
        read."""
        pool = pool_for(plan, jobs)
        known = _folder_of(plan, data_dir)
        if known is not None:
            return cls(CompareFolder(known, plan), pool)
        run = cls(CompareFolder.create(data_dir, plan), pool)
        run.results.write()
        return run

    @override
    def label(self, trial: int) -> str:
        return self.planned[trial].variant

    @override
    def budget(self, trial: int) -> int:
        return self.treatment.remedies[trial].until

    @override
    def new_source(self, planned: Planned) -> RunSource:
        return source_of(self.plan, planned.number, self.folder)

    @override
    def task(self, state: TrialState) -> TrialTask:
        until = self.treatment.remedies[state.trial].until
        return replace(super().task(state), until=until)

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.write()


def treat_document(
    findings: Sequence[Finding], run: TreatRun | None, code: int
) -> dict[str, Any]:
    """The findings about a run, and what their remedies have shown in `run`, with the
    exit code of a command, as JSON has them."""
    treatment = None
    if run is not None:
        treatment = {"folder": str(run.folder), **run.results.document()}
    return {
        "findings": [finding.document() for finding in findings],
        "treatment": treatment,
        "exit_code": code,
    }


def _folder_of(plan: Plan, data_dir: Path) -> Path | None:
    """The newest folder of a treatment of the same plan; None if there is none.
    Raises UsageError for a folder whose plan this version cannot read."""
    folders = data_dir.glob(f"{safe_name(plan.name)}_{plan.kind.word}_*")
    for folder in sorted(folders, reverse=True):
        try:
            known = read_plan(
                folder=folder,
                kind=plan.kind,
                imports=plan.imports,
                terms=Treatment,
                to_resume=False,
            )
        except UnreadableFileError:
            raise  # it may be this treatment: a new one would repeat its trainings
        except LabError:
            continue
        has_same_specs = [spec.to_json() for spec in known.specs.values()] == [
            spec.to_json() for spec in plan.specs.values()
        ]
        if has_same_specs and Treatment.of(known) == Treatment.of(plan):
            return folder
    return None
