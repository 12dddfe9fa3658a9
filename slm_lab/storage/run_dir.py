"""The run folder and the names of all files in it."""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, final

from slm_lab.core.errors import UsageError
from slm_lab.core.files import may_be_read, read_object
from slm_lab.storage.manifest import manifest_path

FOLDERS = ("info", "graph", "log", "model")
"""Folders that every run folder contains."""

RUN_BLOCK = "_run"
"""The key of the origin block, beside the spec in the run folder's spec file."""

ORDER = "ordered"
"""The key, in a run's origin, of the time by which runs are ordered. A run has it if
the clock had been set back. This time makes it newer than the runs before it."""

STAMP = "%Y_%m_%d_%H%M%S"
_STAMP_PATTERN = re.compile(r"_(\d{4}_\d{2}_\d{2}_\d{6})(?:_(\d+))?$")


INITIAL_FILE = "initial.pt"
"""The name of the file with the weights that a run began with, in `model`."""
_SPEC_END = "_spec.json"
_OF_TRIAL = re.compile(r"_t(\d+)$")


@final
class SessionPaths:
    """The files of one Session."""

    def __init__(self, root: Path, prefix: str) -> None:
        self.root = root
        self.prefix = prefix
        """{spec_name}_t{trial}_s{session}"""
        self.info = root / "info"
        self.rows = self.info / f"{prefix}_session_df_train.csv"
        self.eval_rows = self.info / f"{prefix}_session_df_eval.csv"
        self.metrics = self.info / f"{prefix}_session_metrics_scalar_train.json"
        self.eval_metrics = self.info / f"{prefix}_session_metrics_scalar_eval.json"
        self.models = root / "model"
        self.manifest = manifest_path(self.models, prefix)
        """The manifest of the newest checkpoint."""
        self.initial = self.models / INITIAL_FILE
        """The weights that the run began with, if they are another run's."""
        self.graphs = root / "graph"
        self.log = root / "log" / f"{prefix}.log"
        self.tensorboard = root / "log" / "tensorboard" / prefix
        self.eval_tensorboard = self.tensorboard / "eval"

    def video(self, frame: int) -> Path:
        """The video of the episode recorded at `frame`."""
        return self.root / "video" / f"{self.prefix}_session_video_{frame}.mp4"


def fresh_folder(
    data_dir: Path, stem: str, now: datetime, parts: Sequence[str] = ()
) -> Path:
    """Makes a folder `{stem}_{time}` with sub-folders `parts`; a second one in the same
    second gets a number. Raises UsageError if it cannot be made."""
    stem = f"{stem}_{now.strftime(STAMP)}"
    for attempt in range(100):
        folder = data_dir / (stem if attempt == 0 else f"{stem}_{attempt}")
        try:
            folder.mkdir(parents=True)
            for part in parts:
                (folder / part).mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"cannot make the folder {folder}: {error.strerror}"
            ) from error
        return folder
    raise UsageError(f"cannot find a free name for the folder beside {data_dir / stem}")


@dataclass(frozen=True)
class RunDir:
    """One run's folder, `data/{spec_name}[_{env}]_{YYYY_MM_DD_HHMMSS}`."""

    root: Path
    spec_name: str

    @classmethod
    def create(
        cls, data_dir: Path, spec_name: str, now: datetime, env: str | None = None
    ) -> "RunDir":
        """Makes a fresh folder, with `env` in its name. Raises UsageError as
        `fresh_folder`."""
        stem = safe_name(spec_name if env is None else f"{spec_name}_{env}")
        return cls(fresh_folder(data_dir, stem, now, FOLDERS), spec_name)

    @classmethod
    def at(cls, root: Path) -> "RunDir | None":
        """The run in the folder `root`, found by its spec file; None if there is none.
        Its `spec_name` is the one in file names."""
        stems = {
            file.name.removesuffix(_SPEC_END) for file in root.glob(f"*{_SPEC_END}")
        }
        of_run = [
            stem for stem in stems if _OF_TRIAL.sub("", stem) not in stems - {stem}
        ]
        if len(of_run) == 1:
            return cls(root, of_run[0])
        return None

    @property
    def trials(self) -> list[int]:
        """The numbers of the Trials that have begun."""
        numbers = (
            _OF_TRIAL.search(file.name.removesuffix(_SPEC_END))
            for file in self.root.glob(f"{self.prefix}_t*{_SPEC_END}")
        )
        return sorted(int(number[1]) for number in numbers if number)

    @property
    def is_search(self) -> bool:
        """Whether it holds a search."""
        return self.event_log_file.is_file()

    @property
    def label(self) -> str:
        """The user's name for the run; empty without one."""
        return str(origin_of(self.spec_file).get("name") or "")

    @property
    def is_dev(self) -> bool:
        """Whether it was made in the dev mode."""
        return origin_of(self.spec_file).get("mode") == "dev"

    def age(self) -> tuple[bool, datetime, int]:
        """A sort key: not a dev run, start time (UTC), number within that second. If
        the spec file holds no time, the one in the folder's name, in local time, is
        used."""
        stamp = ""
        number = 0
        match = _STAMP_PATTERN.search(self.root.resolve().name)
        if match:
            stamp = match[1]
            number = int(match[2] or 0)
        origin = origin_of(self.spec_file)
        try:
            started = datetime.fromisoformat(
                origin.get(ORDER) or origin["started"]
            ).astimezone(UTC)
        except (KeyError, TypeError, ValueError, OverflowError):
            started = _local(stamp)
        return origin.get("mode") != "dev", started, number

    @property
    def stem(self) -> str:
        """The folder's name without the time: the name of the spec, and perhaps of an
        environment."""
        return _STAMP_PATTERN.sub("", self.root.name)

    @property
    def prefix(self) -> str:
        """The prefix of the run's file names."""
        return safe_name(self.spec_name)

    @property
    def spec_file(self) -> Path:
        """The resolved spec, with everything needed to run it again."""
        return self.root / f"{self.prefix}{_SPEC_END}"

    @property
    def annotations_file(self) -> Path:
        """The tags and the note that a user has added."""
        return self.root / f"{self.prefix}_annotations.json"

    @property
    def initial_file(self) -> Path:
        """The weights that the run began with; only `--init-from` writes it."""
        return self.root / "model" / INITIAL_FILE

    @property
    def event_log_file(self) -> Path:
        """The event log of a search; only searches have it."""
        return self.root / f"{self.prefix}_search.jsonl"

    @property
    def trials_table(self) -> Path:
        """The table of a search's trials; written when the search has ended."""
        return self.root / f"{self.prefix}_experiment_df.csv"

    def trial_prefix(self, trial: int) -> str:
        """The beginning of a Trial's file names, `{spec_name}_t{trial}`."""
        return f"{self.prefix}_t{trial}"

    def trial_spec_file(self, trial: int) -> Path:
        """The spec of one Trial."""
        return self.root / f"{self.trial_prefix(trial)}{_SPEC_END}"

    def trial_metrics_file(self, trial: int) -> Path:
        """The scalar metrics of one Trial."""
        return self.root / f"{self.trial_prefix(trial)}_trial_metrics_scalar.json"

    def session(self, trial: int, session: int) -> SessionPaths:
        """The files of one Session."""
        return SessionPaths(self.root, f"{self.trial_prefix(trial)}_s{session}")

    def shared_by_training(self, trial: int, first: int) -> SessionPaths:
        """The shared files of Sessions that train together; `first` is the first of
        them."""
        return SessionPaths(self.root, f"{self.session(trial, first).prefix}_shared")


def runs_in(data_dir: Path) -> list[RunDir]:
    """All runs and searches in `data_dir`, by name, whose folders may be read."""
    inside = sorted(data_dir.iterdir()) if os.path.isdir(data_dir) else []
    readable = [folder for folder in inside if folder.is_dir() and may_be_read(folder)]
    return [run for folder in readable if (run := RunDir.at(folder)) is not None]


def newest_first(runs: Sequence[RunDir]) -> list[RunDir]:
    """The runs by their start, dev runs after all others."""
    return sorted(runs, key=RunDir.age, reverse=True)


def order_after(runs: Sequence[RunDir], now: datetime) -> str | None:
    """The time that makes a run that begins `now` the newest, see `ORDER`. None if its
    start does: then none of `runs` has a later start. A later one means that the clock
    was set back."""
    newest = max((run.age()[1] for run in runs), default=now)
    with suppress(OverflowError):  # no time is later
        if newest > now:
            return (newest + timedelta(microseconds=1)).isoformat()
        return None
    return None


def sets_env(text: str) -> bool:
    """Whether a "key=value" of `-s` sets the environment."""
    return text.partition("=")[0] in ("env", "env.name")


def safe_name(spec_name: str) -> str:
    """A spec name as a file name: all but letters, digits, dots and hyphens become
    _."""
    return re.sub(r"[^\w.-]", "_", spec_name)


def origin_of(spec_file: Path) -> dict[str, Any]:
    """The origin block of a run's spec file; empty if it cannot be read."""
    origin = read_object(spec_file).get(RUN_BLOCK)
    if isinstance(origin, dict):
        return origin
    return {}


def videos(folder: Path) -> list[Path]:
    """The videos of a run, the newest last."""
    return sorted(
        (folder / "video").glob("*.mp4"), key=lambda file: (len(file.name), file.name)
    )


def _local(stamp: str) -> datetime:
    """The time in a folder's name; the minimum if it is invalid, such as
    2026_99_99_000000."""
    try:
        return datetime.strptime(stamp, STAMP).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
