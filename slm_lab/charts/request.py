"""The request of a user of `slm-lab plot`."""

import math
import os
import re
from contextlib import suppress
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple, get_args

from slm_lab.charts.axis import (
    EVAL_RETURNS,
    RETURNS,
    X_WORDS,
    Y_AXES,
    Axis,
    column_axis,
)
from slm_lab.charts.overlay import Aggregate
from slm_lab.core.errors import UsageError
from slm_lab.spec.schema.messages import choice_message

FORMS = (".pdf", ".svg", ".png")
"""The files that `--out` may name."""
USUAL_WIDTH = 5.5 * 72
"""Points: the width of the text in the style of many conferences."""
_POINTS = {"in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 72 / 72.27}
"""The points of a unit of length. A point is 1/72 inch, as in files; a point of TeX is
a little smaller."""
_LEAST = 1.5 * 72
_MOST = 40 * 72.0
RETURN_COLUMNS = (RETURNS[0].column, EVAL_RETURNS.column)
"""The columns that a final return can be compared with."""


class PlotRequest(NamedTuple):
    """The options of the user's command, see its help."""

    folders: tuple[str, ...]
    y: str = next(iter(Y_AXES))
    x: str = X_WORDS[0]
    statistic: str = "mean"
    out: Path = Path("plots")
    data_dir: Path = Path("data")
    standalone: bool = False
    width: str | None = None
    labels: tuple[str, ...] = ()
    title: str | None = None
    levels: tuple[str, ...] = ()
    smooth: float | None = None
    log_y: bool = False
    by: str | None = None
    normalise: tuple[str, ...] = ()
    command: str = ""
    x_label: str | None = None
    y_label: str | None = None
    tags: tuple[str, ...] = ()
    group_by: str | None = None

    @property
    def is_file(self) -> bool:
        """Whether `out` is a file, drawn for paper."""
        return self.out.suffix.lower() in FORMS and not os.path.isdir(self.out)

    @property
    def is_apart(self) -> bool:
        """Whether environments are drawn apart, or joined by their scores."""
        return bool(self.by or self.scores)

    @property
    def axis(self) -> Axis:
        """The y axis: one of the words, or any column, smoothed over a share of the
        frames. A figure for paper leaves that share to its caption."""
        word = self.y
        if self.y == RETURNS[1].file:
            word = RETURNS[0].file
        axis = Y_AXES.get(word) or column_axis(word)
        if self.smooth is None:
            share = 0.0
            if self.y in Y_AXES:
                share = Y_AXES[self.y].window_share
        else:
            share = self.smooth / 100
        if share and not self.is_file:
            axis = axis.smoothed(share)
        return axis._replace(file=column_axis(self.y).file, window_share=share)

    @property
    def points(self) -> float | None:
        """The width of the figure in 1/72 inch; None for a screen. Raises
        UsageError."""
        if not self.is_file:
            if self.width is not None:
                raise UsageError("--width: needs a file, such as --out figure.pdf")
            return None
        if self.width is None:
            return USUAL_WIDTH
        match = re.fullmatch(r"(\d+(?:\.\d+)?) *(in|cm|mm|pt)", self.width)
        points = 0.0
        if match:
            points = float(match[1]) * _POINTS[match[2]]
        if not _LEAST <= points <= _MOST:
            raise UsageError(
                f"--width {self.width}: must be like 3.4in, 8.6cm, 86mm or 245pt, and "
                "1.5in or more"
            )
        return points

    @property
    def scores(self) -> dict[str, float]:
        """The scores of `--normalise` by environment, one that names none under "".
        Raises UsageError."""
        scores = dict(
            _named_number("--normalise", text, "ENV=SCORE") for text in self.normalise
        )
        if len(scores) < len(self.normalise):
            raise UsageError("--normalise: an environment has two scores")
        return scores

    @property
    def lines(self) -> tuple[tuple[str, float], ...]:
        """The name and the height of each `--hline`. Raises UsageError."""
        lines = tuple(_named_number("--hline", text, "NAME=Y") for text in self.levels)
        for text, (_, height) in zip(self.levels, lines, strict=True):
            if self.log_y and height <= 0:
                raise UsageError(f"--hline {text}: has no place on this axis")
        return lines

    def check(self) -> None:
        """Raises UsageError for a word or number that is none."""
        words = {
            "--x": (self.x, X_WORDS),
            "--statistic": (self.statistic, get_args(Aggregate)),
            "--by": (self.by or "env", ("env",)),
        }
        for option, (word, known) in words.items():
            if word not in known:
                raise UsageError(f"{option} {word}: {choice_message(word, known)}")
        if self.normalise and self.axis.column not in RETURN_COLUMNS:
            raise UsageError(f"--normalise: is of returns, and --y {self.y} is none")
        if self.smooth is not None and not 0 <= self.smooth <= 100:
            raise UsageError(
                f"--smooth {self.smooth:g}: must be a percentage, 0 to 100"
            )
        suffix = self.out.suffix.lower()
        if suffix in (".csv", ".tex"):
            raise UsageError(
                f"--out {self.out}: is for graphs; --table prints: write > {self.out}"
            )
        kind = guess_type(self.out.name)[0] or ""
        is_graph = kind.startswith("image/") or suffix in (".eps", ".ps", ".html")
        if is_graph and suffix not in FORMS:
            raise UsageError(f"--out {self.out}: a file ends with .pdf, .svg or .png")
        _ = self.points, self.scores, self.lines


def _named_number(option: str, text: str, form: str) -> tuple[str, float]:
    """ "NAME=1.5" or "1.5", as `form` describes it. Raises UsageError if it is none."""
    name, _, number = text.rpartition("=")
    with suppress(ValueError):
        if math.isfinite(float(number)):
            return name, float(number)
    raise UsageError(f"{option} {text}: must be {form.rpartition('=')[2]} or {form}")
