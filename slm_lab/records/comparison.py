"""A comparison on disk: several trainings, planned together in one folder.

The plan file is a spec file with every variant, and a block of the plan's own. A
`ComparisonKind` has all in which lists, pages, folders and resumes differ by kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from slm_lab.core.errors import MissingRunError, UsageError
from slm_lab.core.files import read_object
from slm_lab.core.recorded import value_at
from slm_lab.core.text import count_text, error_summary
from slm_lab.records.event_log import EventLog
from slm_lab.records.run_source import RunSource
from slm_lab.records.table import read_table
from slm_lab.spec.read import read_file

if TYPE_CHECKING:
    import pandas as pd

PLAN_BLOCK = "_compare"
"""The key in the plan file, beside the specs, that holds the rest of the plan."""
PLAN_FILE = "{}_compare_specs.json"
"""The name of the plan file."""
PLAN_ENDING = PLAN_FILE.format("")
"""The end of that name."""
COMPARISON_LOG = "{}_compare.jsonl"
"""The name of the event log, beside the plan."""


@final
class ComparisonRecord:
    """A comparison of any kind on disk, read when an attribute is first used.

    An attribute may raise any exception if the plan file is damaged."""

    def __init__(self, plan_file: Path) -> None:
        self.plan_file = plan_file
        self.folder = plan_file.parent
        self.stem = plan_file.name.removesuffix(PLAN_ENDING)
        """How the names of its files begin."""

    @classmethod
    def at(cls, folder: Path) -> "ComparisonRecord | None":
        """The comparison in a folder; None if it has no plan file."""
        plan_file = next(folder.glob(PLAN_FILE.format("*")), None)
        if plan_file is None:
            return None
        return cls(plan_file)

    @classmethod
    def required(cls, folder: Path) -> "ComparisonRecord":
        """The comparison in a folder. Raises UsageError if it has none, SpecError if
        the plan file cannot be read."""
        if not folder.is_dir():
            raise MissingRunError(f"there is no folder {folder}")
        comparison = cls.at(folder)
        if comparison is None or not isinstance(
            comparison.content.get(PLAN_BLOCK), dict
        ):
            lacks = f"it has no {PLAN_FILE.format('*')}"
            raise UsageError(f"{folder} is not the folder of a comparison: {lacks}")
        return comparison

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """What the plan file holds."""
        return read_file(self.plan_file)

    @property
    def block(self) -> Mapping[str, Any]:
        """The plan's own block."""
        block: Mapping[str, Any] = self.content[PLAN_BLOCK]
        return block

    @property
    def kind(self) -> "ComparisonKind":
        """The kind of comparison that the plan describes."""
        return kind_of(self.block)

    @property
    def terms(self) -> Mapping[str, Any]:
        """What only plans of its kind say."""
        return self.kind.terms_of(self.block)

    @property
    def specs(self) -> Sequence[Mapping[str, Any]]:
        """The spec of each variant, the baseline's first."""
        return [self.content[entry["spec"]] for entry in self.block["variants"]]

    @property
    def seeds(self) -> int:
        """The number of seeds of each variant, at most."""
        return len(self.block["seeds"])

    @property
    def planned(self) -> int:
        """The number of trainings, at most."""
        return self.seeds * len(self.specs)

    @property
    def budget(self) -> int:
        """The frames of all trainings at their end."""
        return self.kind.budget(self)

    def mode_text(self, done: int) -> str:
        """What it is, and how far it has come, when `done` trainings have finished."""
        return self.kind.mode_text(self, done)

    def has_ended(self, done: int) -> bool:
        """Whether no training is to follow, when `done` have finished."""
        if not self.kind.has_result:
            return done == self.planned
        return value_at(read_object(self.result_file), "ended", False)

    @property
    def result_file(self) -> Path:
        """The file with its answer."""
        return self.folder / self.kind.result_name(self.stem)

    @property
    def result(self) -> dict[str, Any]:
        """Its answer so far. Raises UsageError if there is none."""
        if not self.result_file.is_file():
            raise UsageError(f"{self.folder} has no {self.result_file.name} yet")
        return read_object(self.result_file)

    @property
    def table(self) -> "pd.DataFrame":
        """Its table: a row per variant, or per seed of a test of two specs. Raises
        UsageError if it is not written yet."""
        return read_table(self.folder / f"{self.stem}_{self.kind.word}_df.csv")

    @property
    def trainings_table(self) -> "pd.DataFrame":
        """A row per training of a comparison of modes. Raises UsageError as `table`."""
        name = f"{self.stem}_{self.kind.word}_trainings_df.csv"
        return read_table(self.folder / name)

    @property
    def graphs(self) -> list[Path]:
        """The pictures of its graphs."""
        return sorted(self.folder.glob(f"{self.stem}_{self.kind.word}*.png"))

    @property
    def log_problem(self) -> str:
        """Why its event log cannot be read, in one line; empty if it can."""
        try:
            for log in self.folder.glob(COMPARISON_LOG.format("*")):
                list(EventLog(log).read())
        except UsageError as error:
            return error_summary(error)
        return ""

    @property
    def resume_words(self) -> list[str]:
        """The words of the command that resumes it."""
        return self.kind.resume_words(self.folder, self.terms)


class ComparisonKind(ABC):
    """What differs between comparisons, outside of what they train and draw.

    Its page, and its result if it has one, are files `{plan}_{word}`."""

    word: str
    """Its name in the plan file, in the name of its folder and of files in it."""
    directions: str
    """What it is and its command, for a user who gave `{folder}` to another one."""
    terms_key: str = ""
    """The key in the plan's block for what only this kind has; empty: nothing."""
    has_result: bool = True
    """Whether a result file says that it has ended; else all trainings must finish."""
    measures_speed: bool = False
    """Whether it compares speeds, and so resumes only on the machine it began on."""

    @abstractmethod
    def mode_text(self, comparison: ComparisonRecord, done: int) -> str:
        """What a list of runs says of it, when `done` trainings have finished."""

    def budget(self, comparison: ComparisonRecord) -> int:
        """The frames of all trainings at their end."""
        frames = [spec["env"]["max_frame"] for spec in comparison.specs]
        return comparison.seeds * sum(frames)

    def resume_words(self, folder: Path, terms: Mapping[str, Any]) -> list[str]:
        """The words of the command that resumes the one in `folder`."""
        return [self.word, "--resume", str(folder)]

    @final
    def terms_of(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        """What only this kind has in the block of a plan."""
        terms: Mapping[str, Any] = block.get(self.terms_key, {})
        return terms

    @final
    def result_name(self, stem: str) -> str:
        """The name of the file with the answer, whose `ended` says if it is final."""
        return f"{stem}_{self.word}.json"

    @final
    def page_name(self, stem: str) -> str:
        """The name of the page that it draws."""
        return f"{stem}_{self.word}.html"


@final
class _Compare(ComparisonKind):
    """Modes of parallel training, each under the same seeds."""

    word = "compare"
    directions = "a comparison: slm-lab compare --resume {folder}"
    has_result = False
    measures_speed = True

    @override
    def mode_text(self, comparison: ComparisonRecord, done: int) -> str:
        return f"comparison, {done} of {comparison.planned} trainings"


@final
class _Ab(ComparisonKind):
    """Two specs, with more seeds until it is known which is better."""

    word = "ab"
    directions = "a test of two specs: slm-lab ab --resume {folder}"
    terms_key = "rule"

    @override
    def mode_text(self, comparison: ComparisonRecord, done: int) -> str:
        return f"A against B, {count_text(done, 'training')}"


@final
class _Treat(ComparisonKind):
    """Forks of a run, each with a remedy that the doctor advised."""

    word = "treat"
    directions = "a treatment: repeat slm-lab doctor RUN --treat"
    terms_key = "treatment"

    @override
    def mode_text(self, comparison: ComparisonRecord, done: int) -> str:
        run = Path(comparison.terms["run"]).name
        return f"treatment of {run}, {count_text(comparison.planned, 'training')}"

    @override
    def budget(self, comparison: ComparisonRecord) -> int:
        meta = comparison.specs[0]["meta"]
        trainings: int = meta["max_run"]
        if meta["distributed"] is False:
            trainings = meta["max_session"]
        return trainings * sum(
            remedy["until"] for remedy in comparison.terms["remedies"]
        )

    @override
    def resume_words(self, folder: Path, terms: Mapping[str, Any]) -> list[str]:
        run = value_at(terms, "run", "")
        frames = value_at(terms, "frames", 0)
        words = ["doctor", run, "--treat", "--frames", str(frames)]
        if folder.parent != RunSource.data_dir:
            words += ["--data", str(folder.parent)]
        return words


@final
class UnknownKind(ComparisonKind):
    """A kind that only another version of the lab knows. It is listed, not resumed."""

    has_result = False

    def __init__(self, word: str) -> None:
        self.word = word
        self.directions = (
            f"a comparison of the kind {word!r}, which this version does not know: "
            "update slm-lab"
        )

    @override
    def mode_text(self, comparison: ComparisonRecord, done: int) -> str:
        return f"{self.word}, {done} of {comparison.planned} trainings"


COMPARE = _Compare()
AB = _Ab()
TREAT = _Treat()
KINDS: tuple[ComparisonKind, ...] = (COMPARE, AB, TREAT)


def kind_of(block: Mapping[str, Any]) -> ComparisonKind:
    """The kind of the comparison whose plan has this block.

    A plan of an earlier version names none: it is known by its terms."""
    word = block.get("kind")
    for kind in KINDS:
        if word == kind.word or (word is None and kind.terms_key in block):
            return kind
    if word is None:
        return COMPARE
    return UnknownKind(str(word))
