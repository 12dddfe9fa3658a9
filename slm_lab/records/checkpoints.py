"""The saved agents of a Trial."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, final

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import CheckpointError, UsageError
from slm_lab.core.types import FloatArray, StateDict
from slm_lab.records.run_record import RunRecord
from slm_lab.session.evaluator import load_snapshot, snapshot_of
from slm_lab.session.initial import check_fits
from slm_lab.storage.checkpoint import CheckpointStore, reading
from slm_lab.storage.manifest import Manifest, previous_path, read_manifest
from slm_lab.storage.run_dir import SessionPaths

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
        self, networks: Mapping[str, FlatParameters], statistics: FloatArray
    ) -> None:
        """Loads the snapshot into `networks` by name, and into the normalisers'
        `statistics` (S,). Raises CheckpointError if it does not fit the networks of the
        folder's (edited) spec."""
        with reading(self.file):
            check_fits(self.snapshot, networks, statistics, self.file)
            load_snapshot(self.snapshot, networks, statistics)


@final
class TrialCheckpoints:
    """The saved agents of a Trial. Only their files are read."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def begun(self) -> list[int]:
        """The Sessions that have a checkpoint."""
        prefix = f"{self._record.run_dir.trial_prefix(self._record.trial)}_s"
        files = (self._record.folder / "model").glob(f"{prefix}*_latest.json")
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
        paths = self._record.run_dir.session(self._record.trial, session)
        try:
            yield paths
        except CheckpointError as error:
            if not previous_path(paths.manifest).is_file():
                raise
            hint = (
                f"train@{self._record.folder} resumes from the previous checkpoint if "
                "it is intact"
            )
            raise CheckpointError(f"{error}; {hint}") from error

    def _load(
        self, paths: SessionPaths, session: int, which: Which | None
    ) -> AgentCheckpoint:
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
            f"{self._record.folder}: Session {session} has no checkpoint yet"
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
            where = f"{self._record.folder}: Session {session}"
            raise UsageError(f"{where} has no {which} agent yet, {reason}")
        return which
