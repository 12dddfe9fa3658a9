"""The parts of a Session: built from a spec, saved to a checkpoint and restored from
it. Also the files that it writes, and the checks of the dev mode."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import numpy as np
import torch
from typing_extensions import override

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.memory.memory import AppendLog
from slm_lab.core.errors import CheckpointError, LabError
from slm_lab.core.state import HasState, SavedFields
from slm_lab.core.types import StateDict
from slm_lab.env.vector.raw import CopyMarks
from slm_lab.env.vector_env import FinishedEpisodes, VectorEnv
from slm_lab.metrics.reader import RowFile
from slm_lab.metrics.row import Cell, Row
from slm_lab.metrics.tracker import TrainingTracker
from slm_lab.metrics.writer import Extent, SessionRows
from slm_lab.session.build import env_and_agent
from slm_lab.session.evaluator import RigorousEval, snapshot_of
from slm_lab.session.experience import Clock, Experience
from slm_lab.session.initial import check_fits
from slm_lab.session.pace import NANO, Pace
from slm_lab.session.seeding import SessionSeeds
from slm_lab.session.status_board import Flow
from slm_lab.session.strategy import Strategy
from slm_lab.session.video import VideoRecorder
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.checkpoint import (
    CheckpointStore,
    previous_checkpoint_text,
    reading,
)
from slm_lab.storage.manifest import Manifest
from slm_lab.storage.run_dir import SessionPaths


@final
class Records:
    """The files of one Session. Rows can be added once `open` has been called."""

    def __init__(self, paths: SessionPaths) -> None:
        self._paths = paths
        self.store = CheckpointStore(paths.models, paths.prefix)
        self.best: StateDict | None = None
        """The best agent, until the next checkpoint writes it; it may be beaten before
        then."""
        self.saved_at = time.perf_counter()
        """The time of the last checkpoint; a kill would lose the training since
        then."""

    def open(
        self,
        columns: Mapping[str, Sequence[str]],
        extents: Mapping[str, Extent] | None,
        frame: int,
    ) -> None:
        """Creates the files of rows or continues them, see SessionRows; `frame` is the
        Session's current frame."""
        with self._writing_rows(frame):
            self._rows = SessionRows(self._paths.info, columns, extents)

    def append(self, name: str, row: Row) -> None:
        """Adds a row to the file `name`. Raises CheckpointError if the disk is full."""
        with self._writing_rows(row["frame"]):
            self._rows.append(name, row)

    def save(
        self,
        frame: int,
        state: StateDict,
        log: AppendLog | None,
        finished: bool,
        commit_barrier: Callable[[], None],
        kept_at: int | None = None,
    ) -> list[str]:
        """Writes a checkpoint; rows first, so that the manifest never names missing
        rows. Returns the names of its parts. For the arguments and errors see
        CheckpointStore."""
        with self._writing_rows(frame):
            rows = self._rows.sync()
        parts = {"state": state}
        if self.best is not None:
            parts["best"] = self.best
        self.store.save(
            frame,
            rows,
            parts,
            finished=finished,
            log=log,
            commit_barrier=commit_barrier,
            kept_at=kept_at,
        )
        self.best = None
        self.saved_at = time.perf_counter()
        return list(parts)

    def save_copy(self, frame: int, state: StateDict) -> str:
        """Writes a faulty state for a person to inspect; returns the frame and file as
        text."""
        path = self._paths.models / f"{self._paths.prefix}_nonfinite_{frame}.pt"
        self.store.save_copy(path, state)
        previous = previous_checkpoint_text(self.store.manifest())
        return f"at frame {frame}; the state is in {path}; {previous}"

    def close(self) -> None:
        """Closes the files of rows."""
        self._rows.close()

    @contextmanager
    def _writing_rows(self, frame: Cell) -> Iterator[None]:
        """Reports a full disk together with the checkpoint from which a run can
        resume."""
        try:
            yield
        except OSError as error:
            previous = previous_checkpoint_text(self.store.manifest())
            raise CheckpointError(
                f"cannot write rows to {self._paths.info} at frame {frame}: "
                f"{error.strerror or error}; {previous}"
            ) from error


class Elapsed(NamedTuple):
    """Seconds of training."""

    wall_t: float
    cpu_t: float
    """CPU seconds of this process only; environments in worker processes are not
    counted."""


@final
class Stopwatch(HasState):
    """Counts seconds from `start`, added to the seconds from before the Session was
    resumed."""

    def __init__(self, pace: Pace) -> None:
        self._before = np.zeros(2, np.int64)  # nanoseconds, which add up exactly
        self._now = pace.clock
        self._began = self._now()

    def start(self) -> None:
        """Starts counting; earlier time is discarded."""
        self._began = self._now()

    def read(self) -> Elapsed:
        """The seconds counted so far."""
        elapsed = self._before + self._now() - self._began
        return Elapsed(*(elapsed / NANO).tolist())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent in this context, which is not training."""
        began = self._now()
        yield
        self._began += self._now() - began

    def resume_after(self, wall_t: float, cpu_t: float) -> None:
        """Adds the seconds that an earlier process counted."""
        self._before = np.rint(np.array([wall_t, cpu_t]) * NANO).astype(np.int64)

    @override
    def state_dict(self) -> StateDict:
        return self.read()._asdict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.resume_after(float(state["wall_t"]), float(state["cpu_t"]))


@dataclass
class SessionParts(SavedFields):
    """The parts of a Session. A checkpoint holds their states, but for the steps in the
    agent's log."""

    saved: ClassVar = {
        "elapsed": "stopwatch",
        "agent": "agent",
        "tracker": "tracker",
        "evaluation": "evaluation",
        "strategy": "strategy",
    }
    merged: ClassVar = ("experience",)

    paths: SessionPaths
    strategy: Strategy
    env: VectorEnv
    agent: LearningAgent
    clock: Clock
    experience: Experience
    tracker: TrainingTracker
    evaluation: RigorousEval | None
    video: VideoRecorder | None
    records: Records
    stopwatch: Stopwatch

    @override
    def state_dict(self) -> StateDict:
        return {
            "frame": self.clock.frame,
            "frames": self.clock.frames,
            **super().state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        """Restores the parts; `restore` does the rest."""
        self.clock.load(int(state["frame"]), state["frames"])
        self.env.set_frame(self.clock.total_frame)
        super().load_state_dict(state)

    @property
    def has_failed_env(self) -> bool:
        """Whether an environment has raised an exception, in training or in an
        evaluation."""
        evaluates_no_more = self.evaluation is not None and self.evaluation.has_failed
        return evaluates_no_more or self.experience.has_failed

    def snapshot(self) -> StateDict:
        """The state that acting needs: weights and normaliser statistics."""
        return {
            "frame": self.clock.frame,
            "total_frame": self.clock.total_frame,
            "flats": {
                name: f.state_dict() for name, f in self.agent.learner.flats.items()
            },
            "statistics": self.env.statistics.copy(),
        }

    def row(self) -> Row:
        """The next row of the training."""
        elapsed = self.stopwatch.read()
        strategy = self.strategy
        self.tracker.track_update(
            strategy.report(elapsed.wall_t - self.tracker.last_wall_t)
        )
        return self.tracker.row(
            frame=self.clock.frame,
            total_frame=self.clock.total_frame,
            wall_t=elapsed.wall_t,
            cpu_t=strategy.cpu_t(elapsed.cpu_t),
            opt_step=self.agent.learner.opt_step,
            explore_var=self.experience.explore_var,
        )

    def eval_row(self, episodes: FinishedEpisodes) -> Row:
        """The row of an evaluation that played `episodes`."""
        assert self.evaluation is not None
        return self.evaluation.tracker.row(
            episodes.episode_return,
            episodes.episode_length,
            episodes.info,
            frame=self.clock.frame,
            total_frame=self.clock.total_frame,
            wall_t=self.stopwatch.read().wall_t,
            epi=self.tracker.episodes,
            opt_step=self.agent.learner.opt_step,
        )

    def progress(self) -> dict[str, float | None]:
        """Fields of the status board from the last row; empty before the first row."""
        row = self.tracker.last_row
        best = self.tracker.best_return
        if row is None:
            return {}
        if self.evaluation is not None:
            best = self.evaluation.tracker.best_return
        recent = row["recent_return"]
        if recent is None:  # too few episodes have ended
            recent = row["final_return"]
        flow = {name: row[name] for name in Flow._fields if name in row.columns}
        return {"fps": row["fps"], "recent_return": recent, "best": best, **flow}

    def close(self) -> None:
        """Frees the environments and the files of rows."""
        self.records.close()
        if self.evaluation is not None:
            self.evaluation.close()
        self.experience.close()
        self.env.close()


def build_parts(
    spec: Spec,
    index: int,
    seeds: SessionSeeds,
    paths: SessionPaths,
    strategy: Strategy,
    marks: CopyMarks | None = None,
) -> SessionParts:
    """The parts of a fresh Session. Its copies, never of training and evaluation at
    once, have the same `marks`, see `make_env`."""
    blueprint = strategy.blueprint
    env, agent = env_and_agent(
        spec,
        seeds,
        strategy.env_spec(spec.env),
        scratch=paths.models,
        correction=blueprint.correction,
        make_memory=blueprint.make_memory,
        marks=marks,
    )
    clock = strategy.clock(spec.env.max_frame)
    experience = strategy.experience(spec, agent, env, clock)
    tracker = TrainingTracker(
        num_envs=spec.env.num_envs * env.num_agents * blueprint.num_sessions,
        log_frequency=spec.log_frequency,
        max_frame=spec.env.max_frame,
        extra_columns=(*agent.learner.metric_names, *blueprint.columns),
        workers=spec.meta.writers_per_training,
        info_keys=spec.env.info_keys,
        agents=env.shown_agents,
    )
    share = strategy.episodes.eval_share(spec.meta.rigorous_eval)
    evaluation = None
    if share:
        evaluation = RigorousEval(
            spec.of_evaluations(),
            share,
            seeds.rigorous_eval,
            process_seed=seeds.processes.evaluation,
            marks=marks,
        )
    video = None
    if spec.meta.record_video is not None and spec.meta.is_first_of_training(index):
        video = VideoRecorder(spec.of_videos(), seeds.video, paths, marks)
    return SessionParts(
        paths=paths,
        strategy=strategy,
        env=env,
        agent=agent,
        clock=clock,
        experience=experience,
        tracker=tracker,
        evaluation=evaluation,
        video=video,
        records=Records(paths),
        stopwatch=Stopwatch(strategy.pace),
    )


def restore(parts: SessionParts, manifest: Manifest) -> None:
    """Restores a Session from its checkpoint. Raises CheckpointError."""
    store = parts.records.store
    learner = parts.agent.learner
    state = store.load(manifest)
    file = store.file(manifest)
    with reading(file):
        check_fits(snapshot_of(state), learner.flats, parts.env.statistics, file)
        parts.load_state_dict(state)
    if parts.agent.log is not None:
        store.load_log(manifest, parts.agent.log)
    parts.experience.resume(state)


def open_rows(
    parts: SessionParts, manifest: Manifest | None, replaces: str | None
) -> None:
    """Creates the files of rows, or continues them. They continue from the checkpoint
    or, if this Session replaces a process, from the last complete row."""
    paths = parts.paths
    columns = {}
    if parts.strategy.blueprint.leads:
        columns[paths.rows.name] = parts.tracker.columns
        if parts.evaluation is not None:
            columns[paths.eval_rows.name] = parts.evaluation.tracker.columns
    extents = None
    if manifest is not None:
        extents = manifest.rows
    if replaces is not None:
        extents = SessionRows.whole_lines(paths.info, columns, parts.clock.frame)
    parts.records.open(columns, extents, parts.clock.frame)


def take_over(parts: SessionParts, manifest: Manifest | None) -> None:
    """Continues in place of a process that died: same frames and rows, fresh
    episodes."""
    rows = RowFile(parts.paths.rows).read()
    parts.tracker.resume_after_rows(rows)
    if len(rows):
        parts.agent.learner.opt_step = int(rows["opt_step"][-1])
        parts.stopwatch.resume_after(
            float(rows["wall_t"][-1]), float(rows["cpu_t"][-1])
        )
    if manifest is not None:
        parts.agent.break_off(parts.env.obs, parts.env.raw_obs)
    parts.env.set_frame(parts.clock.total_frame)
    parts.env.reset()


class AgentChecks:
    """Checks one agent in the dev mode: views stay views, learning changes weights, and
    weights stay finite."""

    def __init__(self, agent: LearningAgent) -> None:
        self._agent = agent
        self._initial = {n: f.vector.clone() for n, f in agent.learner.flats.items()}

    def after_learning(self) -> None:
        """Raises LabError if a training event broke the flat vectors or made them
        non-finite."""
        for name, flat in self._agent.learner.flats.items():
            try:
                flat.check()
            except RuntimeError as error:
                raise LabError(f"dev check of {name}: {error}") from error
            if not torch.isfinite(flat.vector).all():
                raise LabError(f"dev check of {name}: a weight is not finite")

    def at_end(self) -> None:
        """Raises LabError if training left a network unchanged."""
        if self._agent.memory is None:
            return
        if self._agent.learner.opt_step == 0:
            raise LabError(
                "dev check: no training event happened in the whole run; "
                "env.max_frame is too short for the frames that one event takes"
            )
        for name, flat in self._agent.learner.flats.items():
            if torch.equal(flat.vector, self._initial[name]):
                raise LabError(f"dev check of {name}: learning changed no weight")
