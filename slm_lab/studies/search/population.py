"""Population based training: the worst trials copy the best (arXiv:1711.09846)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from typing_extensions import override

from slm_lab.metrics.trial_state import Params
from slm_lab.spec.schema.scheduler import PbtSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.spec.search import Dimension
from slm_lab.storage.copy import complete, copy_checkpoint
from slm_lab.storage.manifest import Manifest, previous_path, read_manifest
from slm_lab.storage.run_dir import RunDir, SessionPaths
from slm_lab.studies.search.scheduler import Scheduler
from slm_lab.studies.search.space import draw, mutate
from slm_lab.studies.study import Decision, Intervention

TRIES = 20
"""Attempts at a copy. A running donor may replace its checkpoint during each of
them."""


def copy_checkpoints(run_dir: RunDir, spec: Spec, donor: int, trial: int) -> int | None:
    """Copies the newest checkpoint of `donor`, and the rows up to it, to `trial`, which
    must not run. Returns its frame, or None if a Session of `donor` has no checkpoint
    yet."""
    sessions = range(spec.meta.num_sessions)
    sources = [run_dir.session(donor, s) for s in sessions if not spec.meta.is_actor(s)]
    targets = [run_dir.session(trial, s) for s in sessions if not spec.meta.is_actor(s)]
    if any(read_manifest(paths.manifest) is None for paths in sources):
        return None
    frames = [_copy(*pair).frame for pair in zip(sources, targets, strict=True)]
    for paths in targets:
        # from before the copy: obsolete
        previous_path(paths.manifest).unlink(missing_ok=True)
        complete(paths)
    if spec.meta.mode.shares_budget:
        return sum(frames)
    return max(frames)


def delete_models(run_dir: RunDir, trial: int) -> None:
    """Deletes the checkpoints of an ended trial."""
    for path in list(
        run_dir.session(trial, 0).models.glob(f"{run_dir.trial_prefix(trial)}_s*")
    ):
        path.unlink(missing_ok=True)


def _copy(source: SessionPaths, target: SessionPaths, tries: int = TRIES) -> Manifest:
    """Copies one Session's checkpoint and returns the source's manifest. The copy's
    manifest stays pending until all Sessions are copied."""
    try:
        manifest = read_manifest(source.manifest)
        if manifest is None:
            raise FileNotFoundError(source.manifest)
        copy_checkpoint(manifest, source, target)
    except FileNotFoundError:  # the donor saved a newer checkpoint meanwhile
        if tries == 1:
            raise
        return _copy(source, target, tries - 1)
    return manifest


@dataclass
class _Member:
    params: Params
    due: float
    """The frame of its next evaluation."""
    frame: int = 0
    score: float | None = None
    """The score at its last evaluation; after a copy the donor's."""
    is_own: bool = True
    """Whether the score is its own. A member with untried values is never a donor."""
    is_waiting: bool = True
    is_at_barrier: bool = False
    """Whether it waits for the others of its round."""


@final
class Population(Scheduler):
    """Evaluates a trial every `perturbation_interval` frames.

    A trial that is then among the worst continues from the weights of one of the best.
    It takes the donor's values, each resampled or perturbed. No trial is compared
    before all have a score.

    If all trials run at once, each is compared at its evaluation with the last scores
    of others. If some wait for room, trials take turns in rounds. A trial pauses at its
    evaluation until all of the round have reached theirs. Then the round is compared
    and the next one begins."""

    needs_all = True

    def __init__(
        self, spec: PbtSpec, dimensions: Sequence[Dimension], max_frame: int, seed: int
    ) -> None:
        self._spec = spec
        self._dimensions = dimensions
        interval = spec.perturbation_interval
        self._interval = max_frame / 10 if interval is None else interval
        self._max_frame = max_frame
        self._rng = np.random.default_rng(seed)
        self._live: dict[int, _Member] = {}

    @override
    def add(self, trial: int, params: Params) -> None:
        self._live[trial] = _Member(
            params, max(self._spec.burn_in_period, self._interval)
        )

    @override
    def begin(self, trial: int) -> None:
        self._live[trial].is_waiting = False

    @override
    def report(self, trial: int, frame: int, score: float) -> list[Decision]:
        member = self._live.get(trial)
        if member is None:
            return []
        member.frame = frame
        if frame < member.due or frame >= self._max_frame:
            return []
        member.score = score
        member.is_own = True
        member.due = frame + self._interval
        if not any(live_member.is_waiting for live_member in self._live.values()):
            return self._copies([trial])
        member.is_at_barrier = member.is_waiting = True
        if not self._all_at_barrier():
            return [Decision(trial, Intervention.PAUSE)]
        decisions = self._next_round()
        if any(decision.donor == trial for decision in decisions):
            # the pause saves what is copied
            return [Decision(trial, Intervention.PAUSE), *decisions]
        if all(decision.trial != trial for decision in decisions):
            # the last trial of the round continues without a pause
            member.is_waiting = False
        return decisions

    @override
    def end(self, trial: int) -> list[Decision]:
        self._live.pop(trial, None)
        if self._all_at_barrier():
            return self._next_round()
        return []

    @override
    def choose(self, waiting: Sequence[int]) -> int | None:
        """The trial with the fewest frames that has not reached the end of the
        round."""
        live = self._live
        behind = [
            trial
            for trial in waiting
            if trial in live and not live[trial].is_at_barrier
        ]
        return min(behind, key=lambda trial: (live[trial].frame, trial), default=None)

    def _all_at_barrier(self) -> bool:
        return bool(self._live) and all(
            member.is_at_barrier for member in self._live.values()
        )

    def _next_round(self) -> list[Decision]:
        for member in self._live.values():
            member.is_at_barrier = False
        return self._copies(self._live)

    def _copies(self, candidates: Collection[int]) -> list[Decision]:
        scores = {t: m.score for t, m in self._live.items() if m.score is not None}
        if len(scores) < len(self._live):
            return []
        worst, best = self._quantiles(scores)
        takers = [trial for trial in worst if best and trial in candidates]
        return [self._copy(trial, int(self._rng.choice(best))) for trial in takers]

    def _quantiles(self, scores: Mapping[int, float]) -> tuple[list[int], list[int]]:
        """The worst trials, and the best trials that may be donors; no trial is
        both."""
        order = sorted(scores, key=lambda trial: (scores[trial], trial))
        count = int(np.ceil(self._spec.quantile_fraction * len(order)))
        count = min(count, len(order) // 2)
        others = [trial for trial in order[count:] if self._live[trial].is_own]
        return order[:count], others[-count:]

    def _copy(self, trial: int, donor: int) -> Decision:
        target = self._live[trial]
        source = self._live[donor]
        target.params = self._explored(source.params)
        target.score = source.score
        target.is_own = False
        target.frame = source.frame
        target.due = source.frame + self._interval
        return Decision(trial, Intervention.COPY, donor, target.params)

    def _explored(self, params: Params) -> Mapping[str, object]:
        values = {}
        for dimension in self._dimensions:
            if self._rng.random() < self._spec.resample_probability:
                values[dimension.path] = draw(dimension, self._rng)
            else:
                factor = float(self._rng.choice(self._spec.perturbation_factors))
                values[dimension.path] = mutate(
                    dimension, params[dimension.path], factor, self._rng
                )
        return values
