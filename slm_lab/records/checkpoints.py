"""The checkpoints of a Trial: its saved agents, and the states that a fork begins with.

Their files are found without torch; it is imported when one is loaded."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, final

from slm_lab.core.errors import CheckpointError, UsageError
from slm_lab.core.process import importing
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.storage.intact import damage
from slm_lab.storage.manifest import (
    Manifest,
    kept_manifests,
    previous_path,
    read_manifest,
)
from slm_lab.storage.run_dir import RunDir, SessionPaths

if TYPE_CHECKING:
    from slm_lab.agent.optim.flat import FlatParameters

Which: TypeAlias = Literal["best", "latest"]

PARTS: dict[Which, str] = {"best": "best", "latest": "state"}
"""The part of a checkpoint that holds the agent."""


@dataclass(frozen=True)
class AgentCheckpoint:
    """An agent that was saved at `frame`."""

    session: int
    which: Which
    frame: int
    snapshot: StateDict
    """Its weights and statistics."""
    file: Path
    sha256: str = ""
    """The checksum of `file`."""

    def load_into(
        self, networks: Mapping[str, "FlatParameters"], statistics: FloatArray
    ) -> None:
        """Loads the snapshot into `networks` by name, and into the normalisers'
        `statistics` (S,). Raises CheckpointError if it does not fit the networks of the
        folder's (edited) spec."""
        from slm_lab.session.evaluator import load_snapshot
        from slm_lab.session.initial import check_fits
        from slm_lab.storage.checkpoint import reading

        with reading(self.file):
            check_fits(self.snapshot, networks, statistics, self.file)
            load_snapshot(self.snapshot, networks, statistics)


@final
@dataclass(frozen=True)
class TrainingCheckpoint:
    """A checkpoint of the Sessions that train one agent together."""

    manifests: Mapping[int, Manifest]
    """The manifest of each Session. Empty if nothing is saved: the training begins at
    its start."""

    @cached_property
    def total_frame(self) -> int:
        """Frames of all its Sessions."""
        return sum(manifest.frame for manifest in self.manifests.values())


@final
class TrialCheckpoints:
    """The checkpoints of a Trial. Only their files are read."""

    def __init__(self, run_dir: RunDir, trial: int) -> None:
        self._run_dir = run_dir
        self._trial = trial

    def begun(self) -> list[int]:
        """The Sessions that have a checkpoint."""
        prefix = f"{self._run_dir.trial_prefix(self._trial)}_s"
        files = (self._run_dir.root / "model").glob(f"{prefix}*_latest.json")
        numbers = (
            file.name.removeprefix(prefix).removesuffix("_latest.json")
            for file in files
        )
        return sorted(int(number) for number in numbers if number.isdecimal())

    def has_checkpoint(self, session: int) -> bool:
        """Whether a Session has a checkpoint yet."""
        with self._previous_reported(session) as paths:
            return read_manifest(paths.manifest) is not None

    def load(self, session: int, which: Which | None) -> AgentCheckpoint:
        """The agent of a Session; by default the best, or the latest if there is no
        best. Raises UsageError if there is none, CheckpointError if its file is
        damaged."""
        with self._previous_reported(session) as paths:
            return self._load(paths, session, which)

    @contextmanager
    def _previous_reported(self, session: int) -> Iterator[SessionPaths]:
        """Adds the hint at the previous checkpoint to a CheckpointError."""
        paths = self._paths(session)
        try:
            yield paths
        except CheckpointError as error:
            if not previous_path(paths.manifest).is_file():
                raise
            hint = (
                f"train@{self._run_dir.root} resumes from the previous checkpoint if "
                "it is intact"
            )
            raise CheckpointError(f"{error}; {hint}") from error

    def _load(
        self, paths: SessionPaths, session: int, which: Which | None
    ) -> AgentCheckpoint:
        from slm_lab.session.evaluator import snapshot_of
        from slm_lab.storage.checkpoint import CheckpointStore, reading

        store = CheckpointStore(paths.models, paths.prefix)
        manifest = store.manifest()
        while manifest is not None:
            chosen = self._choose(session, manifest, which)
            try:
                state = store.load(manifest, PARTS[chosen])
                file = store.file(manifest, PARTS[chosen])
                with reading(file):
                    snapshot = state
                    if chosen != "best":
                        snapshot = snapshot_of(state)
                    frame = int(snapshot["frame"])
            except CheckpointError as error:
                before = manifest
                manifest = store.manifest()
                # else a running training has replaced it: try again
                if manifest == before:
                    if chosen == "latest":
                        raise
                    store.load(manifest, PARTS["latest"])
                    better = "choose the latest (--which latest)"
                    raise CheckpointError(f"{error}; {better}") from error
            else:
                return AgentCheckpoint(
                    session=session,
                    which=chosen,
                    frame=frame,
                    snapshot=snapshot,
                    file=file,
                    sha256=manifest.files[PARTS[chosen]].sha256,
                )
        raise UsageError(
            f"{self._run_dir.root}: Session {session} has no checkpoint yet"
        )

    def _choose(self, session: int, manifest: Manifest, which: Which | None) -> Which:
        if which is None:
            if "best" in manifest.files:
                return "best"
            return "latest"
        if PARTS[which] not in manifest.files:
            reason = (
                "because no return has been measured; choose the latest (--which "
                "latest)"
            )
            if which == "latest":
                reason = "it is a shared run, which has one agent; leave out which"
            where = f"{self._run_dir.root}: Session {session}"
            raise UsageError(f"{where} has no {which} agent yet, {reason}")
        return which

    def state(self, session: int, manifest: Manifest) -> StateDict:
        """The state that a Session has saved. Raises CheckpointError if a file of it is
        damaged."""
        with importing():
            from slm_lab.storage.checkpoint import CheckpointStore
        paths = self._paths(session)
        return CheckpointStore(paths.models, paths.prefix).load(manifest)

    def newest(self, meta: MetaSpec, sessions: Iterable[int]) -> TrainingCheckpoint:
        """The newest manifests of the Sessions of a training, as far as they can be
        read."""
        members = _members(meta, sessions)
        return _readable(
            {session: self._paths(session).manifest for session in members}
        )

    def reached(self, meta: MetaSpec, sessions: Iterable[int]) -> int:
        """The largest total frame that a training has saved; 0 without a checkpoint."""
        saved = self._saved(meta, sessions)
        return max((checkpoint.total_frame for checkpoint in saved), default=0)

    def nearest(
        self, meta: MetaSpec, sessions: Iterable[int], frame: int
    ) -> TrainingCheckpoint:
        """The newest intact checkpoint of a training at or before `frame`."""
        saved = self._saved(meta, sessions)
        for checkpoint in sorted(saved, key=lambda c: c.total_frame, reverse=True):
            if checkpoint.total_frame > frame:
                continue
            problems = chain.from_iterable(
                damage(self._paths(session), manifest)
                for session, manifest in checkpoint.manifests.items()
            )
            if not any(problems):
                return checkpoint
        return TrainingCheckpoint({})

    def _saved(
        self, meta: MetaSpec, sessions: Iterable[int]
    ) -> Iterator[TrainingCheckpoint]:
        """The checkpoints of a training on the disk, each with all its members. Those
        of ranks and of virtual time belong together by their number, those of other
        workers by the total frame."""
        members = _members(meta, sessions)
        by_serial = not meta.mode.lock_free or meta.simulate is not None
        together: dict[int, dict[int, Path]] = {}
        for session in members:
            paths = self._paths(session)
            for kept in kept_manifests(paths.models, paths.prefix):
                key = kept.serial if by_serial else kept.total_frame
                together.setdefault(key, {})[session] = kept.path
        newest = {session: self._paths(session).manifest for session in members}
        previous = {session: previous_path(path) for session, path in newest.items()}
        for places in (*together.values(), newest, previous):
            checkpoint = _readable(places)
            manifests = checkpoint.manifests.values()
            serials = {manifest.serial for manifest in manifests}
            is_joint = len(serials) == 1 or not by_serial
            if len(manifests) == len(members) and is_joint:
                yield checkpoint

    def _paths(self, session: int) -> SessionPaths:
        return self._run_dir.session(self._trial, session)


def _members(meta: MetaSpec, sessions: Iterable[int]) -> list[int]:
    """The Sessions of a training that save."""
    return [session for session in sessions if not meta.is_actor(session)]


def _readable(places: Mapping[int, Path]) -> TrainingCheckpoint:
    """The manifests of Sessions. A damaged one is left out: there may be an earlier
    one."""
    manifests = {}
    for session, path in places.items():
        with suppress(CheckpointError):
            manifest = read_manifest(path)
            if manifest is not None:
                manifests[session] = manifest
    return TrainingCheckpoint(manifests)
