"""A test of A against B: one more seed of each until the answer is known. What it has
shown so far, and its files."""

import math
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from slm_lab.charts.ab import PairedReturns, draw_ab, pairs_table
from slm_lab.core.errors import Problem, UsageError
from slm_lab.core.files import write_atomically, write_json
from slm_lab.core.recorded import finite
from slm_lab.core.text import count_text
from slm_lab.metrics.trial_state import Params, Status, TrialState
from slm_lab.records.comparison import AB, PLAN_BLOCK
from slm_lab.records.event_log import StudyState
from slm_lab.records.validated import damaged
from slm_lab.spec.load import warnings_held
from slm_lab.studies.ab.plan import LABELS, check_enough, difference_text, rule_of
from slm_lab.studies.ab.verdict import Answer, StoppingRule, Verdict, verdict_of
from slm_lab.studies.compare.folder import FIX, CompareFolder, read_plan
from slm_lab.studies.compare.plan import Plan, Planned
from slm_lab.studies.compare.trainings import PlannedTrainings, pool_for
from slm_lab.studies.pool import Pool

MOST_FAILED = 3
"""Trainings that fail before a test gives up: its specs need mending, not seeds."""
NO_EPISODE = "no episode ended in its budget, so it has no final return"


@final
class AbResults:
    """The results of the trainings in a folder, as far as `study_state` has them."""

    def __init__(self, folder: CompareFolder, study_state: StudyState) -> None:
        self._folder = folder
        self._plan = folder.plan
        self._rule = rule_of(folder.plan)
        self._study_state = study_state
        self._known: tuple[list[Any], Verdict] | None = None
        """The pairs of the last verdict, and that verdict."""

    @property
    def allowed(self) -> int:
        """The most seeds of each."""
        return len(self._plan.seeds)

    @property
    def settled(self) -> int:
        """How many pairs are over, in order from the first."""
        return len(self._pairs)

    @property
    def verdict(self) -> Verdict:
        """What the settled pairs show."""
        pairs = self._pairs
        if self._known is None or self._known[0] != pairs:
            self._known = pairs, verdict_of(pairs, self._rule, self.allowed)
        return self._known[1]

    @property
    def failures(self) -> list[tuple[Planned, str]]:
        """The trainings that count for nothing, and why."""
        return [
            (self._folder.trainings[state.trial], state.error or NO_EPISODE)
            for state in self._study_state.trials.values()
            if state.status.is_over and _score(state) is None
        ]

    @property
    def has_given_up(self) -> bool:
        """Whether too many trainings failed to go on."""
        return self.verdict.answer is None and len(self.failures) >= MOST_FAILED

    @property
    def has_ended(self) -> bool:
        """Whether no training is to follow."""
        return self.verdict.answer is not None or self.has_given_up

    @property
    def sentence(self) -> str:
        """The answer in one sentence, or what is known so far."""
        sentence = self.verdict.sentence(self.allowed)
        if self.has_given_up:
            return f"given up after {MOST_FAILED} failed trainings; {sentence}"
        skipped = self.allowed - self.verdict.pairs_left - self.verdict.pairs
        if skipped:
            seeds = count_text(skipped, "seed")
            return f"{sentence}; without {seeds} under which a training failed"
        return sentence

    @property
    def progress(self) -> str | None:
        """What the last settled pair has shown, in a line. None before any interval is
        known, and at the end."""
        if self.has_ended or all(map(math.isinf, self.verdict.interval)):
            return None
        return self.verdict.progress

    def paired_returns(self) -> PairedReturns:
        """What has been measured so far."""
        verdict = self.verdict
        a, b = self._plan.specs.values()
        spec = self._plan.baseline
        pairs = zip(self._plan.seeds, self._pairs, strict=False)
        seeds = [seed for seed, pair in pairs if pair is not None]
        return PairedReturns(
            title=f"{self._plan.name} on {spec.env.name}: A against B",
            sentence=self.sentence,
            seeds=tuple(seeds[: verdict.pairs]),
            a=verdict.a,
            b=verdict.b,
            interval=verdict.intervals,
            confidence=self._rule.confidence,
            smallest=self._rule.smallest,
            max_frame=spec.env.max_frame,
            notes=(difference_text(a, b),),
        )

    def draw(self) -> list[Path]:
        """The picture of what has been measured so far, its page, the table and the
        result. Raises OSError."""
        stem = f"{self._folder.stem}_ab"
        graphs = draw_ab(self.paired_returns(), self._folder.path, stem)
        return [*graphs, *self.write()]

    def write(self) -> list[Path]:
        """Writes the table of the pairs, and the result. Raises OSError."""
        table = self._folder.path / f"{self._folder.stem}_ab_df.csv"
        content = pairs_table(self.paired_returns()).to_csv(index=False)
        write_atomically(table, content.encode())
        write_json(self._folder.record.result_file, self.document())
        return [table, self._folder.record.result_file]

    def document(self) -> dict[str, Any]:
        """The result as JSON has it: an end of the interval is null while it is
        infinite."""
        verdict = self.verdict
        states = self._study_state.trials.values()
        better = None
        if verdict.answer in (Answer.A, Answer.B):
            better = str(verdict.answer)
        return {
            "sentence": self.sentence,
            "ended": self.has_ended,
            "answer": verdict.answer,
            "better": better,
            "interval": [finite(end) for end in verdict.interval],
            "confidence": self._rule.confidence,
            "smallest": self._rule.smallest,
            "seeds": verdict.pairs,
            "allowed": self.allowed,
            "trainings": sum(state.status.is_over for state in states),
            "failed": len(self.failures),
        }

    @property
    def _pairs(self) -> list[tuple[float, float] | None]:
        """The final returns of A and of B of the settled pairs; None where a training
        failed."""
        pairs: list[tuple[float, float] | None] = []
        trials = self._study_state.trials
        for number in range(self.allowed):
            a = trials.get(2 * number)
            b = trials.get(2 * number + 1)
            if a is None or b is None or not (a.status.is_over and b.status.is_over):
                break
            pairs.append(_pair(a, b))
        return pairs


def _pair(a: TrialState, b: TrialState) -> tuple[float, float] | None:
    scores = _score(a), _score(b)
    if scores[0] is None or scores[1] is None:
        return None
    return scores[0], scores[1]


def _score(state: TrialState) -> float | None:
    """The final return of a training; None if it has none."""
    if state.status is Status.FINISHED:
        return state.known_score
    return None


@final
class AbRun(PlannedTrainings):
    """A test that is run, or resumed, in its folder.

    A pair begins only once no outcome of the pairs before it could show which is
    better. So such an answer makes no running training needless, and it does not depend
    on how many run at once."""

    def __init__(self, folder: CompareFolder, pool: Pool) -> None:
        """Raises UsageError as `PlannedTrainings`, and if the log is damaged."""
        super().__init__(folder, pool)
        self.pool = pool
        self.results = AbResults(folder, self.study_state)
        self.open_study()
        self.redoes_failed = self.results.verdict.answer is None

    @classmethod
    def begin(cls, plan: Plan, data_dir: Path, jobs: int | None = None) -> "AbRun":
        """Begins a new test in a new folder, on at most `jobs` cores; None: on all."""
        pool = pool_for(plan, jobs)
        run = cls(CompareFolder.create(data_dir, plan), pool)
        run.results.write()
        return run

    @classmethod
    @warnings_held()
    def resume(
        cls,
        folder: Path,
        imports: tuple[str, ...] = (),
        seeds: int | None = None,
        jobs: int | None = None,
    ) -> "AbRun":
        """Resumes a test with the plug-ins `imports`. It may now use `seeds` of each;
        None: as many as before. Raises UsageError, SpecError."""
        plan = read_plan(folder, AB, imports, StoppingRule)
        if tuple(plan.specs) != LABELS:
            place = f"{PLAN_BLOCK}.variants"
            problem = Problem(place, "must be labelled A and B", list(plan.specs))
            raise damaged(plan.file(folder), problem, FIX)
        if seeds is not None:
            plan = _extended(plan, seeds)
        run = cls(CompareFolder(folder, plan), pool_for(plan, jobs))
        if seeds is not None:
            run.compare_folder.keep_seeds()
        return run

    @override
    def propose(self, trial: int) -> Params | None:
        results = self.results
        ahead = trial // len(self.plan.specs) - results.settled
        if results.has_ended or ahead >= results.verdict.further:
            return None
        return super().propose(trial)

    @override
    def conclude(self, state: TrialState) -> None:
        self.results.write()


def _extended(plan: Plan, seeds: int) -> Plan:
    """The plan with more seeds. Raises UsageError if it has as many already."""
    before = len(plan.seeds)
    if seeds < before:
        raise UsageError(
            f"--seeds {seeds}: {before} were allowed; a resume may only allow more"
        )
    check_enough(seeds, rule_of(plan))
    first = plan.seeds[0]
    return plan._replace(seeds=tuple(range(first, first + seeds)))
