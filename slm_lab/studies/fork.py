"""Forks: a new run that continues another run's state at a frame, with other keys.

A fork's folder begins as a copy of the parent's checkpoint, and of the rows up to it.
If that checkpoint is from before the frame asked for, the parent's spec is replayed up
to the frame. Runs are exact, so the replay repeats the parent's numbers. From the frame
on the fork trains with its own spec, as a resumed run does."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
from rich.filesize import decimal

from slm_lab.core.errors import (
    LabError,
    Problem,
    SpecError,
    UsageError,
    undone_on_failure,
)
from slm_lab.core.process import importing
from slm_lab.core.recorded import differences, value_at
from slm_lab.core.text import count_text
from slm_lab.core.values import leaves
from slm_lab.records.lock import RunLock
from slm_lab.records.lookup import required_seed
from slm_lab.records.origin import provenance, read_origin, starts_of
from slm_lab.records.run_record import RunRecord, fork_point
from slm_lab.records.run_source import RunSource
from slm_lab.spec.parse import parse
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.copy import complete, copy_checkpoint
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir
from slm_lab.studies import resume

if TYPE_CHECKING:
    from slm_lab.agent.agent import LearningAgent
    from slm_lab.agent.memory.memory import AppendLog
    from slm_lab.core.types import StateDict
    from slm_lab.records.checkpoints import TrainingCheckpoint

BLOCK: Final = "forked_from"
"""The key of the origin of a fork."""

CONVERSIONS = ("max_frame", "clip_obs", "clip_reward", "reward_scale")
"""Keys of `env` that change what the agent sees, not the simulator: running episodes go
on."""
SIMULATOR = ("max_t", "kwargs")
"""Keys of `env` that a simulator is made with, beside its arguments: episodes begin
anew."""
FREE_META = (
    "eval_frequency",
    "save_interval",
    "keep_checkpoints",
    "stop_return",
    "max_restart",
    "step_seconds",
    "reset_seconds",
    "record_video",
    "cluster",
)
"""Keys of `meta` that a fork may change: no state has their shape."""
FIXED_AGENT = ("algorithm.name", "memory.name", "memory.max_size")
"""Keys of `agent` that what is saved depends on. Others are found by trying."""


@final
@dataclass(frozen=True)
class Fork:
    """A fork of a run, not begun yet."""

    parent: RunDir
    parent_spec: Spec
    spec: Spec
    root_seed: int
    frame: int
    """The total frame of each training at which the fork leaves its parent."""
    starts: Sequence["TrainingCheckpoint"]
    """The checkpoint of each training that it begins with."""

    @cached_property
    def changes(self) -> list[tuple[str, Any]]:
        """The keys that differ from the parent's: dotted path, the fork's value."""
        specs = self.parent_spec.to_json(), self.spec.to_json()
        return [(path, new) for path, _, new in differences(*specs)]

    @property
    def restarts_episodes(self) -> bool:
        """Whether a key of the simulator changes, so that episodes begin anew."""
        return self.frame > 0 and any(
            _concerns_simulator(path, self.spec.env) for path, _ in self.changes
        )

    @property
    def origin(self) -> dict[str, Any]:
        """The record of it in its spec file."""
        return {
            "run": self.parent.root.resolve().name,
            "frame": self.frame,
            "from": [start.total_frame for start in self.starts],
            "is_replayed": False,
            "restarts_episodes": self.restarts_episodes,
            "parent_spec": self.parent_spec.to_json(),
        }

    @property
    def notes(self) -> Iterator[str]:
        """What the user should know before it trains."""
        nearest = min(start.total_frame for start in self.starts)
        if nearest < self.frame:
            where = f"the checkpoint at frame {nearest:,}"
            if nearest == 0:
                where = "its start"
            if self.parent_spec.meta.keep_checkpoints == 0:
                where += "; with meta.keep_checkpoints it would have kept others"
            yield (
                f"replaying {self.frame - nearest:,} frames of "
                f"{self.parent.root.name} from {where}"
            )
            if not _repeats(self.parent_spec):
                yield (
                    "workers or actors that run at once do so in no fixed order: the "
                    "replay is another training than the parent's"
                )
            yield from resume.versions_notes(
                read_origin(self.parent), provenance(self.root_seed), "replaying"
            )
        if self.restarts_episodes:
            yield "the simulator changes, so every episode begins anew at the fork"

    def write(self, run_dir: RunDir) -> None:
        """Copies the parent's checkpoints and rows into the new folder. Raises
        UsageError if a file is lost meanwhile."""
        initial = self.parent.initial_file
        try:
            if initial.is_file():
                run_dir.initial_file.write_bytes(initial.read_bytes())
            for start in self.starts:
                copy_start(start, self.parent, run_dir)
        except OSError as error:
            raise UsageError(
                f"cannot copy the state of {self.parent.root} to {run_dir.root}: "
                f"{error.strerror or error}"
            ) from error


def copy_start(start: "TrainingCheckpoint", parent: RunDir, run_dir: RunDir) -> None:
    """Copies the checkpoint of each Session, and the rows up to it. They go from the
    folder of the parent to a new one. Raises OSError."""
    for session, manifest in start.manifests.items():
        copy_checkpoint(
            manifest, parent.session(0, session), run_dir.session(0, session)
        )
    for session in start.manifests:
        complete(run_dir.session(0, session))


def plan_fork(source: RunSource) -> Fork:
    """The fork that `source` asks for: of the run in the folder `source.fork`. Raises
    UsageError, and SpecError for a key that cannot change in a running state."""
    assert source.fork is not None
    record = RunRecord.required(Path(source.fork))
    parent = record.run_dir
    blocks = ("agent", "env", "meta", "search")
    parent_spec, spec = resume.resumed_spec(parent, source, blocks)
    root_seed = required_seed(parent, parent_spec.meta.random_seed)
    checkpoints = record.checkpoints
    meta = parent_spec.meta
    reached = min(checkpoints.reached(meta, sessions) for sessions in meta.trainings)
    frame = _frame(source.frame, parent, reached)
    _check_history(parent, record.origin, parent_spec, frame)
    fork = Fork(
        parent=parent,
        parent_spec=parent_spec,
        spec=spec,
        root_seed=root_seed,
        frame=frame,
        starts=[
            checkpoints.nearest(meta, sessions, frame) for sessions in meta.trainings
        ],
    )
    problems = [
        Problem(path, _against(parent), new)
        for path, new in fork.changes
        if not _may_change(path, fork.spec, frame)
    ]
    if problems:
        raise SpecError(f"fork of {parent.root}", problems)
    behind = any(start.total_frame < frame for start in fork.starts)
    if behind and meta.max_run > 1:
        known = ", ".join(f"{start.total_frame:,}" for start in fork.starts)
        raise UsageError(
            f"{parent.root}: the trainings of meta.max_run are not replayed; fork at a "
            f"frame with kept checkpoints, not {frame:,} (nearest: {known})"
        )
    if frame >= fork.spec.env.max_frame:
        raise UsageError(
            f"nothing is left to train: the fork begins at frame {frame:,}, and "
            f"env.max_frame is {fork.spec.env.max_frame:,}; give an earlier --frame, "
            "or more frames with -s env.max_frame=…"
        )
    return fork


def _check_history(
    parent: RunDir, origin: Mapping[str, Any], spec: Spec, frame: int
) -> None:
    """Raises UsageError if the parent has trained by other keys before `frame`, or
    after. A replay would be another training, and an unchanged fork another run."""
    point = fork_point(origin)
    if point is not None:
        if not value_at(origin, f"{BLOCK}.is_replayed", False):
            raise UsageError(
                f"{parent.root} is a fork that has not come to its frame "
                f"{point.frame:,} yet; first resume it: slm-lab run train@{parent.root}"
            )
        if frame < point.frame:
            raise UsageError(
                f"--frame {frame:,}: until frame {point.frame:,} {parent.root} was "
                f"{point.run}; fork that one"
            )
    for start in starts_of(origin)[1:]:
        keys = [text.partition("=")[0] for text in value_at(start, "set", [])]
        is_other = value_at(start, "schedules") == "stretch" or any(
            key.startswith("agent.") for key in keys
        )
        frames = value_at(start, "frames", [])
        reached = max(
            sum(frames[session] for session in sessions if session < len(frames))
            for sessions in spec.meta.trainings
        )
        if is_other and frame < reached:
            raise UsageError(
                f"--frame {frame:,}: at frame {reached:,} {parent.root} was resumed "
                "with other schedules, and its spec no longer has those of before; "
                f"fork it at {reached:,} or later"
            )


def begin_fork(
    fork: Fork, source: RunSource, **more: Any
) -> tuple[RunDir, RunLock, tuple[str, ...]]:
    """Makes the folder of a fork, whose origin gets `more` entries. Returns it, its
    lock, and notes for the user."""
    initial = read_origin(fork.parent).get("init_from")
    if initial is not None:
        more["init_from"] = initial
    more[BLOCK] = fork.origin
    run_dir, lock, notes = resume.begin_run(source, fork.spec, "train", **more)
    with (
        undone_on_failure(lambda: shutil.rmtree(run_dir.root)),
        undone_on_failure(lock.release),
    ):
        fork.write(run_dir)
        if all(start.total_frame == fork.frame for start in fork.starts):
            ReplayToFork(run_dir, read_origin(run_dir)).finish(fork.spec)
    return run_dir, lock, (*notes, *fork.notes)


@final
class ReplayToFork:
    """What is left of a fork's way to its frame, by its parent's spec."""

    def __init__(self, run_dir: RunDir, origin: Mapping[str, Any]) -> None:
        """Raises UsageError if the record of the fork is damaged."""
        self._run_dir = run_dir
        self._origin = origin
        block = origin[BLOCK]
        self.frame = int(value_at(block, "frame", 0))
        content = value_at(block, "parent_spec", {})
        parsed = parse(run_dir.spec_name, content)
        if parsed.spec is None:
            raise UsageError(
                f"{run_dir.spec_file}: the parent's spec in {RUN_BLOCK}.{BLOCK} cannot "
                "be read; fork the parent again"
            )
        self.spec = parsed.spec

    @classmethod
    def of(cls, origin: Mapping[str, Any], run_dir: RunDir) -> "ReplayToFork | None":
        """None if the run is no fork, or has come to its frame before."""
        if value_at(origin, f"{BLOCK}.is_replayed", True):
            return None
        return cls(run_dir, origin)

    @property
    def has_come_far_enough(self) -> bool:
        """Whether the checkpoints of every training have reached the frame."""
        checkpoints = RunRecord(self._run_dir).checkpoints
        meta = self.spec.meta
        totals = [
            checkpoints.newest(meta, sessions).total_frame
            for sessions in meta.trainings
        ]
        return min(totals) >= self.frame

    def finish(self, spec: Spec) -> None:
        """Records that the fork has come to its frame; `spec` is its own. If its
        simulator is another one than the parent's, the episodes of its checkpoints are
        forgotten first."""
        block = self._origin[BLOCK]
        if block["restarts_episodes"]:
            with importing():
                from slm_lab.storage.checkpoint import CheckpointStore
            for session in range(spec.meta.num_sessions):
                paths = self._run_dir.session(0, session)
                if paths.manifest.is_file():
                    CheckpointStore(paths.models, paths.prefix).edit(_forget_episodes)
        changed = {**self._origin, BLOCK: {**block, "is_replayed": True}}
        resume.write_spec(self._run_dir, spec, changed)


def _forget_episodes(state: "StateDict") -> None:
    for part in (state, value_at(state, "evaluation.evaluator", {}) or {}):
        if "env" in part:
            part["env"]["raw"] = None


def _concerns_simulator(path: str, env: EnvSpec) -> bool:
    block, _, key = path.partition(".")
    name = key.partition(".")[0]
    return block == "env" and (name in SIMULATOR or name not in type(env).model_fields)


def _may_change(path: str, spec: Spec, frame: int) -> bool:
    """Whether a fork at `frame` may change a key: at the start all but the seed."""
    if frame == 0:
        return path != "meta.random_seed"
    block, _, key = path.partition(".")
    if block == "agent":
        return key not in FIXED_AGENT
    if block == "env":
        # actors of the learner's process save their environments with its queue
        is_free = _concerns_simulator(path, spec.env) and not spec.meta.has_local_actors
        return key in CONVERSIONS or is_free
    return block == "meta" and key.partition(".")[0] in FREE_META


def _against(parent: RunDir) -> str:
    return (
        "cannot change in a running state; a new run with --init-from "
        f"{parent.root.name} can take its weights"
    )


def _repeats(spec: Spec) -> bool:
    """Whether the same training again has the same rows."""
    meta = spec.meta
    if meta.mode.lock_free:
        return meta.max_session == 1 or meta.simulate is not None
    return not meta.mode.has_learner or meta.has_local_actors


def _frame(asked: int | None, parent: RunDir, reached: int) -> int:
    """The frame of the fork: as asked for, or the frame of the newest checkpoint.
    Raises UsageError if the run has not come so far."""
    if asked is None and reached == 0:
        raise UsageError(
            f"{parent.root} has no checkpoint: --frame 0 forks it at its start"
        )
    if asked is None:
        return reached
    if asked > reached:
        come = f"its newest checkpoint is at frame {reached:,}"
        if reached == 0:
            come = "it has no checkpoint yet"
        raise UsageError(
            f"--frame {asked:,}: {parent.root} cannot be forked there: {come}"
        )
    return asked


def check_loads(fork: Fork) -> None:
    """Raises SpecError, which names the keys, if an agent of the fork's spec cannot
    take over the parent's state. Where a replay begins at the parent's start, the state
    of its newest checkpoint stands for it. At frame 0 the state is the weights that the
    parent began with, if it took any: raises CheckpointError."""
    if fork.frame == 0:
        with importing():
            from slm_lab.records.init_from import check_initial
        check_initial(fork.parent, fork.spec)
        return
    changes = [(path, new) for path, new in fork.changes if path.startswith("agent.")]
    checkpoints = RunRecord(fork.parent).checkpoints
    start = fork.starts[0]
    if not start.manifests:
        meta = fork.parent_spec.meta
        start = checkpoints.newest(meta, meta.trainings[0])
    if not changes or not start.manifests:
        return
    session, manifest = next(iter(start.manifests.items()))
    state = checkpoints.state(session, manifest)
    why = _loading_obstacle(fork.spec, fork.parent_spec, state)
    if why is None:
        return
    guilty = [
        (path, new)
        for path, new in changes
        if _loading_obstacle(
            _with(fork.parent_spec, path, new), fork.parent_spec, state
        )
    ]
    problems = [
        Problem(path, f"{_against(fork.parent)} ({why})", new)
        for path, new in guilty or changes
    ]
    raise SpecError(f"fork of {fork.parent.root}", problems)


def _with(spec: Spec, path: str, value: Any) -> Spec:
    """The spec with one key of another value; the same if that makes none."""
    content = spec.to_json()
    *blocks, key = path.split(".")
    block: Any = content
    for name in blocks:
        block = block.setdefault(name, {})
        if not isinstance(block, dict):
            return spec
    block[key] = value
    return parse(spec.name, content).spec or spec


def _loading_obstacle(spec: Spec, before: Spec, state: "StateDict") -> str | None:
    """Why an agent of `spec` cannot take over the `state` of one of `before`; None if
    it can."""
    with importing():
        from slm_lab.session.evaluator import snapshot_of
        from slm_lab.session.initial import network_differences

    try:
        with _agent(before) as agent:
            capacity = _capacity(agent)
        with _agent(spec) as agent:
            if _capacity(agent) != capacity:
                return (
                    f"its memory held {capacity:,} steps and is of {_capacity(agent):,}"
                )
            saved = snapshot_of(state)
            layouts = saved, agent.learner.flats, saved["statistics"]
            for text in network_differences(*layouts):
                return text
            agent.learner.load_state_dict(state["agent"]["learner"])
            if agent.memory is not None and not spec.meta.mode.has_learner:
                agent.memory.load_state_dict(state["agent"]["memory"])
    except (LabError, ValueError, RuntimeError, KeyError, TypeError) as error:
        return str(error).splitlines()[0]
    return None


@contextmanager
def _agent(spec: Spec) -> Iterator["LearningAgent"]:
    """An agent of a Session, on the CPU."""
    with importing():
        from slm_lab.session.build import env_and_agent, place_on_cpu
        from slm_lab.session.seeding import session_seeds

    spec = place_on_cpu(scaled(spec))
    one_process = spec.env.model_copy(update={"vectorization_mode": "sync"})
    with TemporaryDirectory() as scratch:
        env, agent = env_and_agent(
            spec, session_seeds(0, 0, 0), one_process, scratch=Path(scratch)
        )
        with closing(env):
            yield agent


def kept_notes(spec: Spec, begins_at: int = 0) -> Iterator[str]:
    """A line on the disk space that the kept checkpoints of a run will take."""
    budget = spec.env.max_frame
    count = sum(begins_at < frame <= budget for frame in spec.kept_frames)
    if count == 0:
        return
    with _agent(spec) as agent:
        from slm_lab.storage.checkpoint import to_bytes

        with to_bytes(agent.state_dict()) as content:
            size = len(content)
        steps = ""
        if agent.log is not None:
            in_all = spec.meta.share_of(spec.env.max_frame) * _bytes_per_step(agent.log)
            steps = f", and the steps of its memory once, {decimal(in_all)} at most"
    yield (
        f"meta.keep_checkpoints keeps {count_text(count, 'checkpoint')} of "
        f"{decimal(size)} of each Session{steps}"
    )


def _bytes_per_step(log: "AppendLog") -> int:
    """The bytes that a step of one environment takes in a file."""
    nothing = log.content(0, 0)
    values = leaves(nothing).values()
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    return sum(math.prod(array.shape[1:]) * array.itemsize for array in arrays)


def _capacity(agent: "LearningAgent") -> int:
    """The steps that its replay memory may hold."""
    return 0 if agent.log is None else agent.log.capacity
