"""A run on disk: its spec, its rows, its results, and whether it trains."""

import time
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from slm_lab.core.errors import (
    CheckpointError,
    LabError,
    MissingRunError,
    Problem,
    SpecError,
    UsageError,
)
from slm_lab.core.files import read_object
from slm_lab.core.recorded import LARGEST_NUMBER, value_at
from slm_lab.core.text import error_summary
from slm_lab.metrics.reader import DamagedRowsError, NewRows, RowFile, Rows
from slm_lab.metrics.trial_metrics import training_return
from slm_lab.records.event_log import StudyState
from slm_lab.records.lock import is_locked
from slm_lab.records.table import read_table
from slm_lab.spec.read import read_file
from slm_lab.storage.manifest import read_manifest
from slm_lab.storage.result import Ending, SessionResult, session_results
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir, SessionPaths, origin_of

if TYPE_CHECKING:
    import pandas as pd

    from slm_lab.records.checkpoints import TrialCheckpoints
    from slm_lab.spec.schema.meta import MetaSpec
    from slm_lab.spec.schema.spec import Spec

KEYS_OF_META = (
    "distributed",
    "max_session",
    "max_run",
    "actor_learner",
    "random_seed",
)
"""The keys of meta that a record validates; others may come from an earlier version."""

METRIC_NUMBERS = (
    "final_return",
    "final_return_std",
    "final_return_episodes",
    "random_return",
    "random_return_episodes",
    "random_episode_length",
    "num_sessions",
)
"""Metrics that are numbers if they are known."""

GRAPH_OF_RETURNS = "_trial_graph_mean_returns_ma_vs_frames.png"
"""How the name of the main picture of a Trial ends."""

MAX_CACHED = 400
"""The number of files of rows that are kept in memory."""


class RunStatus(StrEnum):
    """Whether a run trains, or how it ended; or why that is unknown."""

    TRAINING = "training"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    """Interrupted or killed; it can be resumed."""
    DAMAGED = "damaged"
    """Its spec or metrics cannot be read."""
    UNREADABLE = "unreadable"
    """Its folder may not be read by this user."""


@final
class RowCache:
    """Rows that were read, by file. The first read of a file compares it with its
    checkpoint; later ones only read what was appended."""

    def __init__(self) -> None:
        self._files: dict[Path, RowFile] = {}

    def read(self, paths: SessionPaths, file: Path) -> Rows:
        """The rows so far in `file`, which is one of a Session's; none before its
        start. Raises UsageError for a damaged file."""
        known = self._files.pop(file, None)
        row_file = known or RowFile(file)
        rows = read_or_report(row_file)
        if known is None:
            _compare_with_checkpoint(paths, file)
        self._files[file] = row_file
        while len(self._files) > MAX_CACHED:
            del self._files[next(iter(self._files))]
        return rows


def read_or_report(file: RowFile) -> Rows:
    """All complete rows of a file. Raises UsageError, with its path, for a damaged
    file."""
    try:
        return file.read()
    except OSError as error:
        raise UsageError(f"{file.path} cannot be read: {error.strerror}") from None
    except DamagedRowsError as error:
        raise UsageError(f"rows cannot be read: {error}") from None


def _compare_with_checkpoint(paths: SessionPaths, file: Path) -> None:
    """Raises UsageError unless the rows that a checkpoint covers have its checksum."""
    try:
        manifest = read_manifest(paths.manifest)
    except CheckpointError:  # training reports it; the rows can still be shown
        return
    extent = None
    if manifest is not None:
        extent = manifest.rows.get(file.name)
    problem = None
    if extent is not None:
        problem = extent.misfit(file)
    if problem is not None:
        raise UsageError(problem)


@final
class RunRecord:
    """A run or a search on disk, or one trial of a search.

    It reads the folder when an attribute is first used, and keeps what it read. A new
    record looks again. The folder may be damaged, or may grow while it is read. Reading
    imports no plug-in of the spec and needs no lock."""

    def __init__(
        self,
        run_dir: RunDir,
        trial: int | None = None,
        row_cache: RowCache | None = None,
        archive: Path | None = None,
    ) -> None:
        """The record of `run_dir`, or of one trial of the search in it. `row_cache`
        keeps the rows for later records. `archive` is the file of a shared run that
        was unpacked into the folder."""
        self.run_dir = run_dir
        self.folder = run_dir.root
        self.archive = archive
        self.place = archive or run_dir.root
        """The run folder, or the file of a shared run."""
        self.is_search = run_dir.is_search and trial is None
        """Whether it is a search, with all its trials."""
        self.is_trial_of_search = run_dir.is_search and trial is not None
        """Whether it is one trial of a search."""
        self.trial = trial or 0
        """The number of its Trial."""
        self._row_cache = row_cache or RowCache()

    @classmethod
    def required(cls, folder: Path) -> "RunRecord":
        """The run in a folder. Raises MissingRunError if it is gone."""
        run_dir = RunDir.at(folder)
        if run_dir is None:
            raise MissingRunError(f"{folder} is gone: it was deleted or renamed")
        return cls(run_dir)

    @property
    def spec_file(self) -> Path:
        """The file of `spec`."""
        if self.is_search:
            return self.run_dir.spec_file
        return self.run_dir.trial_spec_file(self.trial)

    @cached_property
    def _named_spec(self) -> tuple[str, Mapping[str, Any]]:
        from slm_lab.spec.load import recorded_spec  # imports pydantic

        return recorded_spec(self.spec_file)

    @property
    def name(self) -> str:
        """The name of its spec. Raises SpecError if its spec cannot be read."""
        return self._named_spec[0]

    @property
    def spec(self) -> Mapping[str, Any]:
        """The spec as the file holds it, with every default. Raises SpecError if it
        cannot be read."""
        return self._named_spec[1]

    def checked_spec(self) -> "Spec":
        """Its spec, validated. Raises SpecError if it cannot be read, or is
        invalid."""
        from slm_lab.spec.load import load_spec

        return load_spec(self.spec_file, self.name, warn=False)

    @cached_property
    def run_spec_or_empty(self) -> Mapping[str, Any]:
        """The spec of the run as its file holds it; empty if it cannot be read."""
        content = read_object(self.run_dir.spec_file)
        content.pop(RUN_BLOCK, None)
        spec = next(iter(content.values()), None)
        if isinstance(spec, Mapping):
            return spec
        return {}

    @property
    def env(self) -> str:
        """The name of its environment."""
        return str(value_at(self.spec, "env.name", "?"))

    @cached_property
    def meta(self) -> "MetaSpec":
        """The keys that determine its Sessions; other keys have their defaults. Raises
        SpecError if the spec cannot be read, or lacks them."""
        from pydantic import ValidationError

        from slm_lab.spec.schema.meta import MetaSpec

        recorded = self.spec.get("meta")
        has_env = value_at(self.spec, "env.name") is not None
        if not has_env or not isinstance(recorded, Mapping):
            message = "must have blocks env and meta"
            raise SpecError.of(str(self.spec_file), self.name, message)
        keys = {key: recorded[key] for key in KEYS_OF_META if key in recorded}
        try:
            return MetaSpec.model_validate(keys)
        except ValidationError as error:
            problems = [
                Problem(".".join(["meta", *map(str, fault["loc"])]), fault["msg"])
                for fault in error.errors()
            ]
            raise SpecError(str(self.spec_file), problems) from None

    @cached_property
    def origin(self) -> Mapping[str, Any]:
        """How the run was started and resumed, see `records.origin`; empty if it cannot
        be read."""
        return origin_of(self.run_dir.spec_file)

    @cached_property
    def label(self) -> str:
        """The user's name for the run; empty without one."""
        return str(self.origin.get("name") or "")

    @cached_property
    def beginning(self) -> dict[str, str]:
        """What it began with, by the option or verb that took it. This is the weights
        of another run, or for a fork the other run's state. Empty if it began with
        fresh weights."""
        begun = {}
        weights = value_at(self.origin, "init_from", {})
        if weights:
            agent = f"Session {weights.get('session')} at frame {weights.get('frame')}"
            parts = ", ".join(map(str, value_at(weights, "taken", [])))
            begun["--init-from"] = f"{weights.get('run')}, {agent}: {parts}"
        if self.forked_from is not None:
            begun["fork"] = f"at frame {self.forked_from.frame:,}"
        return begun

    @cached_property
    def forked_from(self) -> "ForkPoint | None":
        """The point where it left another run; None if it is no fork."""
        return fork_point(self.origin)

    @cached_property
    def metrics(self) -> Mapping[str, Any]:
        """The metrics of its Trial, without damaged numbers; empty before its end."""
        return trial_metrics(self.run_dir, self.trial)

    def checked_metrics(self) -> dict[str, Any]:
        """The metrics of its Trial as the file holds them now; empty before its end.
        Raises SpecError if they are damaged."""
        file = self.run_dir.trial_metrics_file(self.trial)
        if file.is_file():
            return read_file(file)
        return {}

    @cached_property
    def results(self) -> list[SessionResult]:
        """How its Sessions ended; empty before the end. Raises UsageError if the
        metrics are damaged."""
        from pydantic import ValidationError

        try:
            return session_results(self.metrics.get("sessions") or ())
        except TypeError as error:
            reason = str(error)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
        raise UsageError(
            f"{self.where}: its metrics cannot be read: sessions: {reason}"
        )

    @cached_property
    def checkpoints(self) -> "TrialCheckpoints":
        """The checkpoints of its Trial."""
        from slm_lab.records.checkpoints import TrialCheckpoints  # imports pydantic

        return TrialCheckpoints(self.run_dir, self.trial)

    @cached_property
    def is_training(self) -> bool:
        """Whether a process of this machine trains it."""
        return is_locked(self.folder)

    @property
    def evaluation_file(self) -> Path:
        """The file that keeps the numbers of an evaluation of its agents."""
        prefix = self.run_dir.trial_prefix(self.trial)
        return self.folder / "info" / f"{prefix}_evaluation.json"

    def session_metrics(self, session: int) -> Mapping[str, Any]:
        """The metrics of a Session as they are now; empty before its end."""
        return read_object(self.sessions[session].metrics)

    def session_graphs(self, session: int) -> list[Path]:
        """The pictures of a Session's graphs."""
        paths = self.sessions[session]
        return sorted(paths.graphs.glob(f"{paths.prefix}_*.png"))

    def trial_graphs(self) -> list[Path]:
        """The pictures of its Trial's graphs."""
        pattern = f"{self.run_dir.trial_prefix(self.trial)}_trial_graph_*.png"
        files = [*self.folder.glob(pattern), *self.folder.glob(f"graph/{pattern}")]
        return sorted(files)

    @property
    def graphs(self) -> list[Path]:
        """The pictures of all graphs in its folder, and in those inside of it."""
        return sorted(self.folder.rglob("*_graph_*.png"))

    @property
    def result_files(self) -> list[Path]:
        """The results of its Trial: its metrics, the rows and metrics of its Sessions,
        and the graph of its returns."""
        prefix = self.run_dir.trial_prefix(self.trial)
        patterns = (
            self.run_dir.trial_metrics_file(self.trial).name,
            f"info/{prefix}_s*_session_*",
            f"{prefix}{GRAPH_OF_RETURNS}",
            f"graph/{prefix}{GRAPH_OF_RETURNS}",
        )
        return [file for pattern in patterns for file in self.folder.glob(pattern)]

    @cached_property
    def evaluated_returns(self) -> list[float]:
        """The return of each greedy episode of its evaluation, all agents in turn;
        empty without one."""
        agents = value_at(read_object(self.evaluation_file), "agents", [])
        lists = [value_at(agent, "returns", []) for agent in agents]
        return [number for numbers in lists for number in numbers]

    @cached_property
    def sessions(self) -> dict[int, SessionPaths]:
        """The files of each Session that writes rows. Raises SpecError as `meta`."""
        return {
            session: self.run_dir.session(self.trial, session)
            for session in self.meta.writers
        }

    def rows(self, session: int) -> Rows:
        """The training rows of a Session so far. Raises UsageError if they are
        damaged."""
        paths = self.sessions[session]
        return self._row_cache.read(paths, paths.rows)

    def final_return(self, sessions: Iterable[int]) -> float:
        """The final return of the training of these Sessions, as `training_return`.
        Raises UsageError as `rows`."""
        return training_return(
            self.rows(session) for session in sessions if session in self.sessions
        )

    def evaluation_rows(self, session: int) -> Rows:
        """The rows of a Session's evaluations so far. Raises UsageError if they are
        damaged."""
        paths = self.sessions[session]
        return self._row_cache.read(paths, paths.eval_rows)

    def new_rows(self, session: int, after: float = -1.0) -> NewRows:
        """The training rows of a Session after the frame `after`, as they come."""
        return NewRows(self.sessions[session].rows, after)

    def new_evaluation_rows(self, session: int, after: float) -> NewRows:
        """The rows of a Session's evaluations after the frame `after`, as they come."""
        return NewRows(self.sessions[session].eval_rows, after)

    def readable_rows(self) -> "ReadableRows":
        """The rows of each Session that has any. A damaged file hides no other. Raises
        SpecError as `meta`."""
        rows = dict[int, Rows]()
        evaluations = dict[int, Rows]()
        problems = list[str]()
        for session, paths in self.sessions.items():
            for file, tables in ((paths.rows, rows), (paths.eval_rows, evaluations)):
                try:
                    table = self._row_cache.read(paths, file)
                except UsageError as error:
                    problems.append(error_summary(error))
                    continue
                if len(table):
                    tables[session] = table
        return ReadableRows(rows, evaluations, problems)

    def session_states(self) -> dict[int, "SessionState"]:
        """The state of each Session with rows. Raises SpecError as `meta`."""
        ends = {end.get("session"): end for end in self.metrics.get("sessions") or []}
        return {
            session: _session_state(rows, ends.get(session, {}))
            for session, rows in self.readable_rows().rows.items()
        }

    @property
    def cluster(self) -> object:
        """The Ray cluster that its spec names; None without one."""
        return value_at(self.run_spec_or_empty, "meta.cluster")

    @cached_property
    def study_state(self) -> StudyState:
        """The state of the search, from its event log. Raises UsageError if its event
        log is damaged."""
        return StudyState.from_log(self.run_dir.event_log_file)

    @property
    def trials_table(self) -> "pd.DataFrame":
        """A row per trial of a search, the best first. Raises UsageError if it is not
        written yet."""
        return read_table(self.run_dir.trials_table)

    @cached_property
    def last_rows(self) -> list["LastRow"]:
        """The last row of each Session with rows; of a search, of all trials."""
        pattern = f"{self.run_dir.prefix}_t*_session_df_train.csv"
        if not self.is_search:
            pattern = pattern.replace("t*", f"t{self.trial}_s*")
        files = sorted((self.folder / "info").glob(pattern))
        rows = [_last_row(file) for file in files]
        return [row for row in rows if row is not None]

    @cached_property
    def status(self) -> RunStatus:
        """Whether it trains, or how it ended. DAMAGED if its files cannot be read."""
        if self.is_training:
            return RunStatus.TRAINING
        try:
            endings = self._endings()
        except (LabError, OSError):
            return RunStatus.DAMAGED
        if self._is_damaged():
            return RunStatus.DAMAGED
        if Ending.FAILED in endings:
            return RunStatus.FAILED
        is_done = bool(endings) and all(end == Ending.FINISHED for end in endings)
        if is_done:
            return RunStatus.DONE
        return RunStatus.STOPPED

    def _endings(self) -> list[Any]:
        """How the Sessions ended; or how a search did, which fails if all its trials
        do."""
        if not self.is_search:
            sessions = value_at(self.metrics, "sessions", [])
            return [value_at(session, "ending") for session in sessions]
        study_state = self.study_state
        if not study_state.trials or not study_state.is_over:
            return []
        return [Ending.FAILED if study_state.has_failed else Ending.FINISHED]

    def _is_damaged(self) -> bool:
        """Whether its specs, its metrics or its rows cannot be read."""
        if not value_at(self.run_spec_or_empty, "env", {}):
            return True
        trials = [self.trial]
        if self.is_search:
            trials = self.run_dir.trials
        specs = [self.run_dir.trial_spec_file(trial) for trial in trials]
        metrics = [self.run_dir.trial_metrics_file(trial) for trial in trials]
        files = [file for file in (*specs, *metrics) if file.exists()]
        is_whole = all(read_object(file) for file in files)
        return not is_whole or any(not row.values for row in self.last_rows)

    @property
    def trials(self) -> list["RunRecord"]:
        """The Trials that have begun; one unless it is a search."""
        return [self.trial_record(number) for number in self.run_dir.trials]

    def trial_at(self, number: int | None) -> "RunRecord":
        """The trial `number` of a search, by default its best; or the run itself.
        Raises UsageError if there is none, SpecError if its spec cannot be read."""
        chosen = self.trial_record(self.number_of_trial(number))
        chosen.check_spec()
        return chosen

    def check_spec(self) -> None:
        """Raises SpecError if its spec cannot be read."""
        _ = self.meta

    def number_of_trial(self, number: int | None) -> int:
        """The number of `trial_at`. Raises UsageError if there is none."""
        if not self.run_dir.is_search:
            if number:
                raise UsageError(
                    f"{self.folder} is no search: it has no trial t{number}"
                )
            return 0
        ranked = self.study_state.ranked
        begun = [state.trial for state in ranked if state.has_begun]
        if not begun or (number is not None and number not in begun):
            known = ", ".join(f"t{trial}" for trial in sorted(begun)) or "none"
            raise UsageError(f"{self.folder} has no such trial; it has {known}")
        if number is not None:
            return number
        results = self.study_state.results
        confirmed = [result.trial for result in results if result.mean is not None]
        return (confirmed or begun)[0]

    def trial_record(self, number: int) -> "RunRecord":
        """The record of a trial, whose files may not exist yet."""
        return RunRecord(self.run_dir, number, self._row_cache, self.archive)

    @property
    def where(self) -> str:
        """Its name in messages."""
        if self.is_trial_of_search:
            return f"{self.place}:t{self.trial}"
        return str(self.place)

    @property
    def key(self) -> tuple[Path, int | None]:
        """Identifies the run or the trial, however the user named it."""
        if self.is_search:
            return self.folder.resolve(), None
        return self.folder.resolve(), self.trial

    @property
    def folder_time(self) -> str:
        """Its start time from the folder's name; the whole name if it contains none."""
        return self.folder.resolve().name.removeprefix(f"{self.run_dir.prefix}_")


class ForkPoint(NamedTuple):
    """The point where a fork leaves its parent."""

    run: str
    """The name of the parent's folder."""
    frame: int
    """The frame of the whole training."""


def fork_point(origin: Mapping[str, Any]) -> ForkPoint | None:
    """The record of a fork in the origin of a run; None if it is no fork."""
    run = value_at(origin, "forked_from.run", "")
    if not run:
        return None
    return ForkPoint(run, int(value_at(origin, "forked_from.frame", 0)))


class ReadableRows(NamedTuple):
    """The rows and the evaluations' rows of each Session, and why others cannot be
    read."""

    rows: dict[int, Rows]
    evaluations: dict[int, Rows]
    problems: list[str]


class SessionState(NamedTuple):
    """The state of a Session, by its last row and its end."""

    ending: str
    """How the Session has ended; empty before its end."""
    frame: float
    frames_per_s: float
    newest_return: float | None
    """The recent return; without one the final return."""
    error: str


def _session_state(rows: Rows, end: Mapping[str, Any]) -> SessionState:
    last = {name: float(rows[name][-1]) for name in rows.columns}
    returns = (last.get(name, nan) for name in ("recent_return", "final_return"))
    return SessionState(
        ending=str(end.get("ending", "")),
        frame=last["frame"],
        frames_per_s=last.get("fps", 0.0),
        newest_return=next(filter(isfinite, returns), None),
        error=str(end.get("error") or ""),
    )


class LastRow(NamedTuple):
    """The last row of a Session."""

    values: dict[str, float]
    """The numbers by column, without empty cells; empty if the row cannot be read."""
    age: float
    """Seconds since it was written."""


def _last_row(file: Path) -> LastRow | None:
    """The last row of a file; None if it has none yet."""
    try:
        row = RowFile(file).last_row()
        age = time.time() - file.stat().st_mtime
    except (OSError, ValueError):
        return LastRow({}, 0.0)
    values = {
        column: value
        for column, value in row.items()
        if value is not None and abs(value) < LARGEST_NUMBER
    }
    if values:
        return LastRow(values, age)
    return None


def trial_metrics(run_dir: RunDir, trial: int) -> dict[str, Any]:
    """The metrics of a Trial, without damaged numbers; empty before its end."""
    metrics = read_object(run_dir.trial_metrics_file(trial))
    return {
        key: value
        for key, value in metrics.items()
        if key not in METRIC_NUMBERS or value_at(metrics, key, 0.0) == value
    }
