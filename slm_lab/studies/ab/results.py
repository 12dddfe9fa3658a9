"""What a test of A against B has shown so far, and its files."""

import math
from pathlib import Path
from typing import Any, final

from slm_lab.charts.ab import PairedReturns, draw_ab, pairs_table
from slm_lab.core.files import write_atomically, write_json
from slm_lab.core.text import count_text
from slm_lab.metrics.trial_state import Status, TrialState
from slm_lab.records.event_log import StudyState
from slm_lab.studies.ab.plan import difference_text, rule_of
from slm_lab.studies.ab.verdict import Answer, Verdict, verdict_of
from slm_lab.studies.compare.folder import CompareFolder
from slm_lab.studies.compare.plan import Planned

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
            "interval": [_finite(end) for end in verdict.interval],
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


def _finite(end: float) -> float | None:
    if math.isfinite(end):
        return end
    return None


def _score(state: TrialState) -> float | None:
    """The final return of a training; None if it has none."""
    if state.status is Status.FINISHED:
        return state.known_score
    return None
