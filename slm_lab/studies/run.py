"""Prepares and trains a Trial in its run folder, from the command's `RunSource`."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slm_lab.core.errors import UsageError, undone_on_failure
from slm_lab.core.process import importing
from slm_lab.core.recorded import differences
from slm_lab.env.check import film_fault
from slm_lab.env.lookup import find_env
from slm_lab.env.pool_names import is_pooled
from slm_lab.env.simulators.atari import is_atari
from slm_lab.records.lock import RunLock
from slm_lab.records.lookup import find_run, required_seed
from slm_lab.records.origin import provenance, resumed
from slm_lab.records.run_source import RunSource
from slm_lab.session.seeding import draw_root_seed
from slm_lab.session.status_board import StatusBoard
from slm_lab.spec.budget import dev_profile
from slm_lab.spec.load import warnings_held
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.intact import fall_back
from slm_lab.storage.result import TrialResult
from slm_lab.storage.run_dir import origin_of
from slm_lab.studies import resume
from slm_lab.studies.fork import (
    ReplayToFork,
    begin_fork,
    check_loads,
    kept_notes,
    plan_fork,
)
from slm_lab.studies.requirements import (
    check_machine,
    check_spaces,
    copies_notes,
    missing_events_reason,
)
from slm_lab.studies.run_mode import Verb
from slm_lab.studies.trial import Trial, TrialTask, have_ended

if TYPE_CHECKING:
    from slm_lab.records.init_from import Initial

CHANGES_OF_RESUME = (
    "env.max_frame",
    "meta.save_interval",
    "meta.keep_checkpoints",
    "meta.stop_return",
    "meta.max_restart",
    "meta.record_video",
    "meta.cluster",
)
"""Keys that `-s` may change when a run resumes: none that earlier rows depend on. With
the budget the schedules may change, from the frame of the resume on."""


class PreparedRun:
    """A run ready to train: its spec is checked, its folder is made or found."""

    @warnings_held()
    def __init__(self, source: RunSource, verb: Verb = "train") -> None:
        """Raises SpecError or UsageError with every problem before any process
        starts."""
        self.imports = source.imports
        self.verb = verb
        self.resume = source.run is not None
        self.begins_by = "resuming" if self.resume else "training"
        """What it does first, as a word for the user."""
        self.notes: tuple[str, ...] = ()
        """Messages for the user before the training starts."""
        if source.fork is not None:
            self._fork(source)
        elif source.run is None:
            self._begin(source)
        else:
            self.run_dir = find_run(source.run, source.data_dir, source.name())
            self._lock = RunLock(self.run_dir.root)
            with undone_on_failure(self.release):
                self._resume(source)
        note_sources = (
            _ranks_notes,
            _devices_notes,
            copies_notes,
            _videos_notes,
            _events_notes,
        )
        self.notes += tuple(
            note for notes_of in note_sources for note in notes_of(self.spec)
        )

    def _begin(self, source: RunSource) -> None:
        spec = source.load()
        where = source.where(spec)
        spaces = check_spaces(where, spec)
        if self.verb == "dev":
            spec = dev_profile(spec, spaces.num_agents)
        check_machine(where, spec)
        if spec.meta.simulate is not None:
            with importing():  # imports torch
                from slm_lab.studies.virtual_costs import with_costs
            spec = with_costs(spec, source)
        self.spec, self.root_seed = seeded(spec)
        self.run_dir, self._lock, notes = resume.begin_run(
            source,
            self.spec,
            self.verb,
            initial_of(source, self.spec),
            **_each_rank(self.spec),
        )
        self.notes += notes
        self.notes += tuple(kept_notes(self.spec))

    def _fork(self, source: RunSource) -> None:
        fork = plan_fork(source)
        self.resume = True
        self.begins_by = "forking"
        self.spec = fork.spec
        self.root_seed = fork.root_seed
        where = source.where(self.spec)
        spaces = check_spaces(where, self.spec)
        check_machine(where, self.spec)
        check_loads(fork)
        self.run_dir, self._lock, notes = begin_fork(
            fork, source, **_each_rank(self.spec)
        )
        self.notes += notes
        self.notes += tuple(kept_notes(self.spec, fork.frame))
        if not spaces.exact_state:
            self.notes += (_lost_episodes_note(self.spec.env),)

    def _resume(self, source: RunSource) -> None:
        """Restores the run from its folder, and notes in its spec files that it
        resumes."""
        saved, self.spec = resume.resumed_spec(self.run_dir, source, CHANGES_OF_RESUME)
        self.root_seed = required_seed(self.run_dir, self.spec.meta.random_seed)
        origin = origin_of(self.run_dir.spec_file)
        budget_before = saved.env.max_frame
        where = f"{self.run_dir.root}: {self.spec.name}"
        spaces = check_spaces(where, self.spec)
        self.notes += tuple(fall_back(self.spec, self.run_dir, 0))
        ended, manifests = have_ended(self.spec, self.run_dir, 0)
        resume.check_checkpoints(self.spec, self.run_dir, manifests)
        resume.check_budget(self.spec, budget_before, self.run_dir, manifests)
        if None in manifests:
            resume.check_initial(self.run_dir, origin)
        self.notes += tuple(resume.file_notes(origin, source.spec_file, self.run_dir))
        self.notes += tuple(resume.rows_notes(self.spec, budget_before))
        has_ended = all(ended)
        start = provenance(self.root_seed)
        if not has_ended:
            check_machine(where, self.spec)
            resume.reopen(self.run_dir, ended)
            self.notes += tuple(resume.versions_notes(origin, start))
        if saved.to_json() != self.spec.to_json() or not has_ended:
            frames = [
                0 if manifest is None else manifest.frame for manifest in manifests
            ]
            how = {
                "frames": frames,
                "imports": list(source.imports),
                "track": list(source.track),
            }
            if source.schedules is not None:
                how["schedules"] = source.schedules
            origin = resumed(origin, start, source.sets, **how)
            resume.write_spec(
                self.run_dir, self.spec, {**origin, **_each_rank(self.spec)}
            )
        for session in self.spec.meta.writers:
            paths = self.run_dir.session(0, session)
            # a Hogwild! worker continues with what any other has saved
            kept = self.spec.meta.mode.lock_free and any(paths.models.glob("*"))
            if manifests[session] is None and paths.rows.is_file() and not kept:
                again = "it and its rows restart from zero"
                self.notes += (f"Session {session} has no checkpoint yet: {again}",)
        if has_ended:
            self.notes += (
                "every Session has already finished: redrawing metrics and graphs",
            )
        elif not spaces.exact_state:
            self.notes += (_lost_episodes_note(self.spec.env),)

    @property
    def task(self) -> TrialTask:
        """What it trains, and where."""
        return TrialTask(
            self.spec,
            self.run_dir,
            self.root_seed,
            resume=self.resume,
            imports=self.imports,
            checked=self.verb == "dev",
        )

    def start(self, on_tick: Callable[[StatusBoard], None]) -> TrialResult:
        """Trains to the end of the budget; a fork is first replayed to its frame."""
        try:
            return self._replay(on_tick) or Trial(self.task, on_tick).run()
        finally:
            self.release()

    def _replay(self, on_tick: Callable[[StatusBoard], None]) -> TrialResult | None:
        """Brings a fork to its frame by its parent's spec. Returns the result if it
        ends on the way: the user has stopped it, or it has failed."""
        origin = origin_of(self.run_dir.spec_file)
        replay = ReplayToFork.of(origin, self.run_dir)
        if replay is None:
            return None
        if not replay.has_come_far_enough:
            task = replace(self.task, spec=replay.spec, until=replay.frame)
            result = Trial(task, on_tick).replay()
            if result is not None:
                return result
            if all(have_ended(replay.spec, self.run_dir, 0)[0]):
                raise UsageError(
                    f"{self.run_dir.root} was replayed to its end, because its workers "
                    f"do not meet again after frame {replay.frame:,}; fork it earlier"
                )
        replay.finish(self.spec)
        return None

    def release(self) -> None:
        """Lets another process take the run folder."""
        self._lock.release()


def _lost_episodes_note(env: EnvSpec) -> str:
    message = (
        f"the state of {env.name} cannot be saved here; the run resumes with new "
        "episodes"
    )
    if not is_atari(find_env(env)) or is_pooled(env):
        return message
    return (
        f'{message}; with env.vectorization_mode "sync" a run resumes its running '
        "episodes"
    )


def _keys_per_rank(spec: Spec) -> list[tuple[str, Any, Any]]:
    """Values that differ for each rank of a training: dotted path, the spec's value,
    the rank's."""
    return differences(spec.to_json(), scaled(spec).to_json())


def _each_rank(spec: Spec) -> dict[str, Any]:
    """What a rank has, as an entry of the record of a run; empty without ranks."""
    values = {path: new for path, _, new in _keys_per_rank(spec)}
    if values:
        return {"each_rank": values}
    return {}


def _ranks_notes(spec: Spec) -> Iterator[str]:
    changes = _keys_per_rank(spec)
    if changes:
        values = ", ".join(
            f"{path} {_short(new)} (of {_short(old)})" for path, old, new in changes
        )
        reason = f'ranks has by meta.scale "{spec.meta.scale}"'
        if spec.meta.mode.lock_free:
            reason = "workers has, so that targets follow the steps of all workers"
        yield f"each of {spec.meta.max_session} {reason}: {values}"


def _short(value: Any) -> str:
    """A number with 6 digits; 1 - (1 - 0.005)^2 has more."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value)


def _devices_notes(spec: Spec) -> Iterator[str]:
    for key, net in spec.agent.nets.items():
        if spec.meta.mode.in_shared_memory and net.gpu == "auto":
            yield (
                f'agent.{key}.gpu = "auto" uses the CPU, because the weights are '
                "there; "
                "true uses a replica on a GPU"
            )


def _videos_notes(spec: Spec) -> Iterator[str]:
    reason = None
    if spec.meta.record_video is not None:
        reason = film_fault(spec.env)
    if reason is not None:
        yield f"meta.record_video: no videos, {spec.env.name} cannot be drawn: {reason}"


def _events_notes(_: Spec) -> Iterator[str]:
    fault = missing_events_reason()
    if fault is not None:
        yield fault


def initial_of(source: RunSource, spec: Spec) -> "Initial | None":
    """What a new run of `spec` begins with; None: fresh weights. Raises UsageError if
    it does not fit the spec."""
    if source.parent is None:
        return None
    with importing():  # imports torch
        from slm_lab.records.init_from import taken_from
    return taken_from(source.parent, spec)


def seeded(spec: Spec) -> tuple[Spec, int]:
    """The spec with its root seed, which is drawn if it has none, and the seed itself.
    A precision of "auto" is replaced by what it is here, so that a resumed run repeats
    it."""
    spec = resume.with_known_precision(spec)
    seed = draw_root_seed() if spec.meta.random_seed is None else spec.meta.random_seed
    return with_seed(spec, seed), seed


def with_seed(spec: Spec, seed: int) -> Spec:
    """The spec with `seed` as its root seed."""
    return spec.model_copy(
        update={"meta": spec.meta.model_copy(update={"random_seed": seed})}
    )
