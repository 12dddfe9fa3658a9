"""The rows of a Session as the doctor reads them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from slm_lab.core.recorded import value_at
from slm_lab.core.text import significant
from slm_lab.core.types import FloatArray
from slm_lab.doctor.finding import Finding, Option, advising
from slm_lab.metrics.reader import Rows
from slm_lab.records.run_record import RunRecord
from slm_lab.spec.modes import words_of

FEWEST_FRAMES = 10_000
FEWEST_STEPS = 200
FEWEST_EPISODES = 20
"""Frames, gradient steps and episodes below which no training shows what it learns."""
PARTS = 10
"""The parts of the rows whose episodes have a mean length each."""
FIRST_ROWS = 3
FIRST_SHARE = 0.05
"""The first rows of a training, and their share. An easy task soon leaves them, but few
rows differ by chance."""


class SessionHistory(NamedTuple):
    """The rows of a Session, at least one, and its spec."""

    rows: Rows
    spec: Mapping[str, Any]
    """The spec as the run folder holds it, with every default."""
    random_length: float | None = None
    """Mean steps of an episode of the Random agent; None if it is unknown."""

    @property
    def is_short(self) -> bool:
        """Whether there are too few frames, gradient steps or episodes to judge its
        learning."""
        least = {
            "total_frame": FEWEST_FRAMES,
            "opt_step": FEWEST_STEPS,
            "epi": FEWEST_EPISODES,
        }
        return any(self.column(name)[-1] < number for name, number in least.items())

    @property
    def steps(self) -> float:
        """Steps of each copy that this Session covers."""
        copies = self.key("env.num_envs", 1.0)
        has_learner = words_of(lambda mode: mode.has_learner)
        if self.key("meta.distributed") in has_learner:
            copies *= self.key("meta.max_session", 1.0)
        return float(self.column("frame")[-1] / copies)

    def finding(
        self, what: str, evidence: str, *options: Option, **more: Any
    ) -> Finding:
        """A finding about it, see `advising`."""
        return advising(what, evidence, self.spec, *options, **more)

    def key(self, path: str, default: Any = None) -> Any:
        """A value of the spec, see `value_at`."""
        return value_at(self.spec, path, default)

    def column(self, name: str) -> FloatArray:
        """The values of all rows (R,); NaN in files of another version, without the
        column."""
        if name in self.rows.columns:
            return self.rows[name]
        return np.full(len(self.rows), np.nan)

    def values(self, column: str, begin: float = 0.0, end: float = 1.0) -> FloatArray:
        """The finite values of a column between two shares of the rows."""
        count = len(self.rows)
        part = self.column(column)[int(begin * count) : max(1, round(end * count))]
        return part[np.isfinite(part)]

    def episode_lengths(self) -> FloatArray:
        """The mean steps of the episodes in each tenth of the rows in which an episode
        ended."""
        ends = np.linspace(0, len(self.rows), PARTS + 1).round().astype(int)
        ends = np.unique(np.maximum(ends, 1)) - 1
        with np.errstate(invalid="ignore"):  # damaged rows may have infinite numbers
            frames = np.diff(self.column("frame")[ends])
            episodes = np.diff(self.column("epi")[ends])
        known = np.isfinite(frames) & np.isfinite(episodes) & (episodes > 0)
        return frames[known] / episodes[known]

    def late(self, column: str) -> float:
        """The median of the last half; NaN without values."""
        return median(self.values(column, 0.5))

    def growth(self, column: str, factor: float, least: float) -> str:
        """How far the size of a column grew from the first to the last quarter, as
        text. Empty if it stayed below `factor` times its first size, or times `least`
        if that is larger."""
        early, late = (
            np.abs(self.values(column, begin, begin + 0.25)) for begin in (0, 0.75)
        )
        if min(len(early), len(late)) < 2 or median(late) < factor * max(
            median(early), least
        ):
            return ""
        return (
            f"{column} went from {significant(median(early))} to "
            f"{significant(median(late))}"
        )

    def growth_begins(self, column: str) -> float:
        """The total frame of the last row before a column grows to ten times its size
        in the first quarter."""
        sizes = np.abs(self.column(column))
        usual = median(np.abs(self.values(column, 0.0, 0.25)))
        grown = np.flatnonzero(sizes > 10 * usual)
        frames = self.column("total_frame")
        return float(frames[max(grown[0] - 1, 0)] if len(grown) else 0.0)

    def frame_of_best(self) -> float:
        """The total frame of the row with the best recent return."""
        returns = self.column("recent_return")
        return float(self.column("total_frame")[np.nanargmax(returns)])

    @property
    def spread(self) -> float:
        """The difference between the highest and the lowest return of a row."""
        returns = self.values("mean_return")
        if len(returns):
            return float(np.ptp(returns))
        return 0.0

    @property
    def rises(self) -> bool:
        """Whether the returns of the last quarter are well above the returns of the
        first share of the rows. It is true too if they are far above the first few."""
        returns = self.values("mean_return")
        first = median(returns[:FIRST_ROWS])
        share = max(FIRST_ROWS, round(FIRST_SHARE * len(returns)))
        early = median(returns[:share])
        late = median(self.values("mean_return", 0.75))
        return late - early > 0.25 * self.spread or late - first > 0.5 * self.spread


def median(values: FloatArray) -> float:
    """The median; NaN without values."""
    if len(values):
        return float(np.median(values))
    return float("nan")


def read_histories(record: RunRecord) -> dict[int, SessionHistory]:
    """The history of each Session with rows. Raises UsageError for a damaged file."""
    random_length = record.metrics.get("random_episode_length")
    histories = {}
    for session in record.sessions:
        rows = record.rows(session)
        if len(rows):
            histories[session] = SessionHistory(rows, record.spec, random_length)
    return histories


def reached_frames(record: RunRecord, histories: Mapping[int, SessionHistory]) -> float:
    """The frames that the slowest training with rows has reached."""
    last = {
        session: float(history.column("total_frame")[-1])
        for session, history in histories.items()
    }
    of_trainings = [
        [last[session] for session in sessions if session in last]
        for sessions in record.meta.trainings
    ]
    return min((max(frames) for frames in of_trainings if frames), default=0.0)
