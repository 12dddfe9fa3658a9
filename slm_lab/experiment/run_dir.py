"""The run folder: one place that knows every file name in it."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slm_lab.core.errors import UsageError
from slm_lab.experiment.manifest import manifest_path

FOLDERS = ("info", "graph", "log", "model")
"""What every run folder has in it."""

RUN_BLOCK = "_run"
"""The key beside the spec, in the run folder's spec file, that says how the run came about."""

STAMP = "%Y_%m_%d_%H%M%S"
_STAMP_PATTERN = re.compile(r"_(\d{4}_\d{2}_\d{2}_\d{6})(?:_(\d+))?$")


@dataclass(frozen=True)
class SessionPaths:
    """The files of one Session."""

    root: Path
    prefix: str
    """{spec_name}_t{trial}_s{session}"""

    @property
    def info(self) -> Path:
        """The folder of rows and metrics."""
        return self.root / "info"

    @property
    def rows(self) -> Path:
        """The training rows."""
        return self.info / f"{self.prefix}_session_df_train.csv"

    @property
    def eval_rows(self) -> Path:
        """The rows of the evaluations during training."""
        return self.info / f"{self.prefix}_session_df_eval.csv"

    @property
    def metrics(self) -> Path:
        """The scalar metrics of the training rows."""
        return self.info / f"{self.prefix}_session_metrics_scalar_train.json"

    @property
    def eval_metrics(self) -> Path:
        """The scalar metrics of the evaluation rows."""
        return self.info / f"{self.prefix}_session_metrics_scalar_eval.json"

    @property
    def models(self) -> Path:
        """The folder of checkpoints."""
        return self.root / "model"

    @property
    def manifest(self) -> Path:
        """The newest checkpoint's list of files."""
        return manifest_path(self.models, self.prefix)

    @property
    def graphs(self) -> Path:
        """The folder of session graphs."""
        return self.root / "graph"

    @property
    def log(self) -> Path:
        """The text log."""
        return self.root / "log" / f"{self.prefix}.log"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard events of the training rows."""
        return self.root / "log" / "tensorboard" / self.prefix

    @property
    def eval_tensorboard(self) -> Path:
        """The folder of TensorBoard events of the evaluation rows."""
        return self.tensorboard / "eval"

    def video(self, frame: int) -> Path:
        """The episode that was recorded at `frame`."""
        return self.root / "video" / f"{self.prefix}_session_video_{frame}.mp4"


@dataclass(frozen=True)
class RunDir:
    """One run's folder, `data/{spec_name}_{YYYY_MM_DD_HHMMSS}`."""

    root: Path
    spec_name: str

    @classmethod
    def create(cls, data_dir: Path, spec_name: str, now: datetime) -> "RunDir":
        """Makes a fresh folder; a second run in the same second gets a number behind its time."""
        stem = f"{safe_name(spec_name)}_{now.strftime(STAMP)}"
        for attempt in range(100):
            root = data_dir / (stem if attempt == 0 else f"{stem}_{attempt}")
            try:
                root.mkdir(parents=True)
                for part in FOLDERS:
                    (root / part).mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"cannot make the run folder {root}: {error.strerror}") from error
            return cls(root, spec_name)
        raise UsageError(f"cannot find a free name for the run folder beside {data_dir / stem}")

    @classmethod
    def latest(cls, data_dir: Path, spec_name: str, of_search: bool = False) -> "RunDir":
        """The newest run, or the newest search, of this spec, wherever on earth it was started; a
        run in the dev mode only where there is no other. Raises UsageError when there is none."""
        prefix, any_run = safe_name(spec_name), cls(data_dir, spec_name)
        spec, record = any_run.spec_file.name, any_run.search_record.name
        runs = [
            (*_age(folder / spec, match.group(1)), int(match.group(2) or 0), folder)
            for folder in (data_dir.iterdir() if data_dir.is_dir() else [])
            if (folder / spec).is_file()  # else killed before it began
            and (folder / record).is_file() is of_search
            and (match := _STAMP_PATTERN.search(folder.name))
            and folder.name[: match.start()] == prefix
        ]
        if not runs:
            what, mode = ("search", "search") if of_search else ("run", "train")
            raise UsageError(
                f"there is no {what} of {spec_name} in {data_dir}; start one with the mode {mode}"
            )
        return cls(max(runs)[-1], spec_name)

    @classmethod
    def open(cls, root: Path, spec_name: str) -> "RunDir":
        """An existing run. Raises UsageError when the folder is not one of this spec."""
        run = cls(root, spec_name)
        if not root.is_dir():
            raise UsageError(f"there is no run folder {root}")
        if not run.spec_file.is_file():
            raise UsageError(f"{root} is no run of {spec_name}: it has no {run.spec_file.name}")
        return run

    @property
    def prefix(self) -> str:
        """What the names of the run's files begin with."""
        return safe_name(self.spec_name)

    @property
    def spec_file(self) -> Path:
        """The spec as it was resolved, with everything that is needed to run it again."""
        return self.root / f"{self.prefix}_spec.json"

    @property
    def search_record(self) -> Path:
        """What has happened in a search; no other run has it."""
        return self.root / f"{self.prefix}_search.jsonl"

    def trial_prefix(self, trial: int) -> str:
        """{spec_name}_t{trial}"""
        return f"{self.prefix}_t{trial}"

    def trial_spec_file(self, trial: int) -> Path:
        """The spec of one Trial."""
        return self.root / f"{self.trial_prefix(trial)}_spec.json"

    def trial_metrics_file(self, trial: int) -> Path:
        """The scalar metrics of one Trial."""
        return self.root / f"{self.trial_prefix(trial)}_trial_metrics_scalar.json"

    def session(self, trial: int, session: int) -> SessionPaths:
        """The files of one Session."""
        return SessionPaths(self.root, f"{self.trial_prefix(trial)}_s{session}")

    def of_crew(self, trial: int, first: int) -> SessionPaths:
        """What Sessions that train together, of which `first` is the first, have in common."""
        return SessionPaths(self.root, f"{self.session(trial, first).prefix}_crew")


def safe_name(spec_name: str) -> str:
    """A spec name as a file name: what is neither letter, digit, dot nor hyphen becomes _."""
    return re.sub(r"[^\w.-]", "_", spec_name)


def origin_of(spec_file: Path) -> dict[str, Any]:
    """How a run came about, by its spec file; nothing where that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        about = json.loads(spec_file.read_text())[RUN_BLOCK]
        return about if isinstance(about, dict) else {}
    return {}


def _age(spec_file: Path, stamp: str) -> tuple[bool, datetime]:
    """By which newer runs are told from older ones: whether it is no dev run, and when it was
    started. Where no file says when, its folder's `stamp` does, a local time."""
    about = origin_of(spec_file)
    try:
        started = datetime.fromisoformat(about["started"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        started = _local(stamp)
    return about.get("mode") != "dev", started


def _local(stamp: str) -> datetime:
    """The time in a folder's name; the earliest there is where it is none, as 2026_99_99_000000."""
    try:
        return datetime.strptime(stamp, STAMP).astimezone(UTC)
    except (ValueError, OverflowError):
        return datetime.min.replace(tzinfo=UTC)
