"""What a benchmark keeps of a training: one small JSON file, from which all tables and
graphs are made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from slm_lab.core.errors import UsageError
from slm_lab.core.files import read_file, write_atomically
from slm_lab.records.validated import validated
from slm_lab.storage.run_dir import safe_name

FORMAT = 1
"""The version of the files."""
FIX = "put back the file, or delete it to train again"
"""What to do about a damaged file."""
FIX_OF_FOLDER = "put back the file, or name a folder of results alone with --data"
"""What to do about one in a folder that a user names: no benchmark may have written
it."""
TrainingEnding: TypeAlias = Literal["finished", "stopped", "failed"]


class GreedyEpisodes(BaseModel):
    """The returns of greedy episodes, played by the agent as the training left it."""

    model_config = ConfigDict(frozen=True)

    episodes: int
    mean: float
    std: float
    """Population standard deviation over episodes."""
    min: float
    max: float


class ReturnCurve(BaseModel):
    """The course of a training at P points."""

    model_config = ConfigDict(frozen=True)

    frame: Sequence[float] = ()
    """Environment steps of all workers."""
    wall_t: Sequence[float] = ()
    """Seconds of training."""
    episode_return: Sequence[float] = ()
    """Mean raw return of the episodes that ended since the point before."""


class TrainingRecord(BaseModel):
    """A training of a benchmark: what was trained, how it ended, on what it ran."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    suite: str
    row: str
    """The row of the suite that it belongs to; rows differ in more than the seed."""
    method: str
    """What the row compares over environments, by default the algorithm."""
    algorithm: str
    env: str
    seed: int
    mode: str
    """The way of parallel training, `meta.distributed`."""
    workers: int

    ending: TrainingEnding
    error: str | None = None
    """Why it failed."""
    max_frame: int
    frames: int = 0
    """Environment steps of all workers that it made."""
    final_return: float | None = None
    """Mean raw return of the episodes of the last 5 % of the frames; workers are
    averaged."""
    evaluation: GreedyEpisodes | None = None
    random_return: float | None = None
    """The mean return of the Random agent."""
    curve: ReturnCurve = ReturnCurve()

    bound: float | None = None
    """The final return that the suite promises."""
    seeds_planned: int = 1
    """The seeds that the suite has for the row."""

    wall_seconds: float | None = None
    frames_per_second: float | None = None
    is_alone: bool = False
    """Whether nothing else ran on the machine: else the two before are no speeds."""
    is_virtual: bool = False
    """Whether its seconds are virtual: then they are a speed in any case."""

    started: str = ""
    """ISO 8601, UTC."""
    commit: str | None = None
    packages: Mapping[str, str] = {}
    python: str = ""
    machine: Mapping[str, Any] = {}
    sets: Sequence[str] = ()
    """The `-s` that the suite gave, beside the spec."""
    spec: Mapping[str, Any] = {}
    """The whole spec, without the seed."""

    @property
    def file_name(self) -> str:
        """The name of its file in the folder of the suite."""
        return record_file_name(self.row, self.seed)


def record_file_name(row: str, seed: int) -> str:
    """The name of the file of a training."""
    return f"{safe_name(row)}_{seed}.json"


def write_record(folder: Path, record: TrainingRecord) -> Path:
    """Writes a record into the folder of its suite, a fact a line; returns the path.
    Raises OSError."""
    file = folder / record.file_name
    folder.mkdir(parents=True, exist_ok=True)
    facts = record.model_dump(mode="json").items()
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in facts]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    return file


def read_record(file: Path, fix: str = FIX) -> TrainingRecord:
    """The record in a file. Raises UsageError if it cannot be read."""
    try:
        content = read_file(file)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    record = validated(TrainingRecord, content, file, fix)
    if record.format != FORMAT:
        raise UsageError(
            f"{file} has format {record.format}, and this version reads {FORMAT}: "
            "update slm-lab"
        )
    return record


def read_records(data: Path) -> list[TrainingRecord]:
    """All records below a folder, in the order of their files. Raises UsageError if
    there is none, or if one cannot be read."""
    files = sorted(data.rglob("*.json")) if data.is_dir() else []
    if not files:
        raise UsageError(
            f"{data} holds no results; train a suite first: slm-lab benchmark SUITE "
            f"--data {data}"
        )
    return [read_record(file, FIX_OF_FOLDER) for file in files]
