"""The plan of a benchmark: its rows with their specs, and a training for each seed."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

from slm_lab.core.errors import UsageError
from slm_lab.records.run_source import RunSource
from slm_lab.records.training_record import (
    TrainingRecord,
    read_record,
    record_file_name,
    write_record,
)
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.run_dir import safe_name


class PlannedRow(NamedTuple):
    """A row of the suite with its spec."""

    name: str
    method: str
    source: RunSource
    """The spec, without a seed."""
    spec: Spec
    seeds: tuple[int, ...]
    bound: float | None

    @property
    def environment(self) -> str:
        """Its environment. One with arguments of its own is another than the one with
        that name alone, and has no published score."""
        env = self.spec.env
        if not env.arguments:
            return env.name
        return f"{env.name} {json.dumps(dict(env.arguments))}"

    @property
    def facts(self) -> dict[str, Any]:
        """What a result says of its row, and no training depends on."""
        return {
            "env": self.environment,
            "method": self.method,
            "bound": self.bound,
            "seeds_planned": len(self.seeds),
        }

    def is_trained_by(self, recorded: Spec) -> bool:
        """Whether a run with this spec in its folder is a training of the row. Costs
        that the run has measured are in its spec alone."""
        simulate = self.spec.meta.simulate
        if simulate is not None and simulate.costs is None:
            meta = recorded.meta.model_copy(update={"simulate": simulate})
            recorded = recorded.model_copy(update={"meta": meta})
        return drop_seed(recorded) == drop_seed(self.spec)

    def is_result(self, record: TrainingRecord) -> bool:
        """Whether a result is one of the row. Keys that its version of the lab did not
        know yet have their defaults."""
        recorded = parse(self.spec.name, dict(record.spec)).spec
        return recorded is not None and self.is_trained_by(recorded)


class PlannedTraining(NamedTuple):
    """A row trained with a seed."""

    row: PlannedRow
    seed: int

    @property
    def label(self) -> str:
        """Finds its run folder; a folder's name may have no other letters."""
        return safe_name(f"{self.row.name}_{self.seed}")


@final
class BenchmarkPlan:
    """What a benchmark trains, and where its results are kept."""

    def __init__(
        self, name: str, rows: Sequence[PlannedRow], episodes: int, data: Path
    ) -> None:
        """`data` is the folder of the results of all suites."""
        self.name = name
        self.rows = tuple(rows)
        self.episodes = episodes
        self.folder = data / safe_name(name)
        """The folder of its own results."""

    @cached_property
    def trainings(self) -> list[PlannedTraining]:
        """All trainings, the first seed of every row first: an unfinished benchmark has
        a result of each row."""
        count = max(len(row.seeds) for row in self.rows)
        return [
            PlannedTraining(row, row.seeds[place])
            for place in range(count)
            for row in self.rows
            if place < len(row.seeds)
        ]

    def kept(self, training: PlannedTraining) -> TrainingRecord | None:
        """The result of a training so far. Raises UsageError if it cannot be read, or
        is one of another spec."""
        file = self.folder / record_file_name(training.row.name, training.seed)
        if not file.is_file():
            return None
        record = read_record(file)
        if not training.row.is_result(record):
            raise UsageError(
                f"{file} is a result of another spec than the suite's "
                f'"{training.row.name}" has now: delete it, or name another --data'
            )
        return record

    def records(self) -> list[TrainingRecord]:
        """The results so far. Raises UsageError as `kept`."""
        kept = [self.kept(training) for training in self.trainings]
        return [record for record in kept if record is not None]

    def renew_facts(self) -> None:
        """Writes the names, bounds and numbers of seeds of now into the results so far.
        Raises UsageError as `kept`, OSError."""
        for training in self.trainings:
            record = self.kept(training)
            if record is None:
                continue
            renewed = record.model_copy(update=training.row.facts)
            if renewed != record:
                write_record(self.folder, renewed)

    def to_train(self) -> list[PlannedTraining]:
        """The trainings that have not finished. Raises UsageError as `kept`."""
        return [
            training
            for training in self.trainings
            if not _is_finished(self.kept(training))
        ]


def _is_finished(record: TrainingRecord | None) -> bool:
    return record is not None and record.ending == "finished"


def drop_seed(spec: Spec) -> dict[str, Any]:
    """A spec as JSON data, without its seed."""
    content = spec.to_json()
    del content["meta"]["random_seed"]
    return content
