"""The choices that the address of a page holds: a page can be reloaded, kept, and
opened twice."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from slm_lab.charts.axis import (
    CLOCKS,
    EVAL_RETURNS,
    RETURNS,
    X_WORDS,
    Axis,
    column_axis,
)

EVALUATION = "evaluation"
"""The word for the returns of evaluations; any other is the name of a column."""
CHOICES: Mapping[str, Mapping[str, str]] = {
    "x": dict(zip(X_WORDS, ("frames", "total frames", "wall clock"), strict=True)),
    "of": {"band": "mean ± std", "mean": "mean", "iqm": "IQM, 95 %"},
    "smooth": {"0": "none", "0.02": "2 %", "0.05": "5 %", "0.1": "10 %", "0.2": "20 %"},
}
"""The words of each control, and how the page calls them."""


SPEC = "spec"
"""The word for curves of one spec each."""


class Query(NamedTuple):
    """The choices of a page."""

    runs: tuple[str, ...] = ()
    run: str = ""
    """The run whose page it is."""
    trial: str = ""
    session: str = "0"
    y: str = RETURNS[0].column
    x: str = X_WORDS[0]
    of: str = "band"
    smooth: str = "0.05"
    group: str = SPEC
    """The key of the spec for each value of which there is a curve; `SPEC`: a curve for
    each spec."""
    q: str = ""
    """The filter of the table."""

    @classmethod
    def parse(cls, search: str | None) -> "Query":
        """The choices in an address; unknown words are left out."""
        pairs = parse_qsl((search or "").removeprefix("?"))
        runs = dict.fromkeys(value for key, value in pairs if key == "runs")
        fields = {key: value for key, value in pairs if _is_known(key, value)}
        return cls(tuple(runs), **fields)

    @property
    def search(self) -> str:
        """The part of the address from "?" on; only what is not the default."""
        chosen = zip(self._fields, self, Query(), strict=True)
        pairs = {key: value for key, value, default in chosen if value != default}
        if pairs:
            return f"?{urlencode(pairs, doseq=True)}"
        return ""

    @property
    def group_by(self) -> str | None:
        """The chosen key; None for a curve per spec."""
        return None if self.group == SPEC else self.group

    @property
    def axis(self) -> Axis:
        """The axis of the chosen column, smoothed over a share of the frames."""
        axis = EVAL_RETURNS
        if self.y != EVALUATION:
            axis = column_axis(self.y)
        return axis._replace(window_share=float(self.smooth))


def _is_known(key: str, value: str) -> bool:
    """Whether a word of an address is the value of a field other than `runs`."""
    if key in CHOICES:
        return value in CHOICES[key]
    if key in ("trial", "session"):
        return value.isdecimal()
    if key == "y":
        return value not in CLOCKS
    return key in Query._fields and key != "runs"


def run_link(name: str, trial: int | None = None) -> str:
    """The address of the page of a run."""
    return f"/run{Query(run=name, trial='' if trial is None else str(trial)).search}"


def file_link(root: Path, file: Path) -> str:
    """The address of a file in the data folder `root`."""
    return f"/files/{quote(file.relative_to(root).as_posix())}"
