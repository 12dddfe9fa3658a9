"""The chart of a test of A against B. It shows the final returns of each seed, and how
the interval of their difference narrows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from slm_lab.charts.chart import (
    GREY,
    Chart,
    Curve,
    Ink,
    Panel,
    Scale,
    curves_panel,
)
from slm_lab.charts.statistics import Interval
from slm_lab.charts.write import write_chart
from slm_lab.core.text import short_count
from slm_lab.core.types import FloatArray

if TYPE_CHECKING:
    import pandas as pd

_A = Ink(0)
_B = Ink(1)
_EFFECT = Ink(2)
_NO_PAIRS = "no seed has finished with A and B"


class PairedReturns(NamedTuple):
    """The final returns of A and B under n seeds, and what they show."""

    title: str
    sentence: str
    seeds: Sequence[int]
    a: FloatArray
    """(n,)"""
    b: FloatArray
    """(n,)"""
    interval: Interval
    """The interval of B − A after each seed, (n,); infinite where nothing is known."""
    confidence: float
    smallest: float | None
    """A difference that does not matter."""
    max_frame: int
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> FloatArray:
        """B − A of each seed, (n,)"""
        return self.b - self.a


def draw_ab(returns: PairedReturns, folder: Path, stem: str) -> list[Path]:
    """Draws `folder/stem.png` and `.html`; returns both paths. Raises OSError."""
    return write_chart(ab_chart(returns), folder, stem, folder.parent)


def pairs_table(returns: PairedReturns) -> "pd.DataFrame":
    """A row for each seed: both returns, their difference, and the interval so far."""
    import pandas as pd

    return pd.DataFrame(
        {
            "seed": list(returns.seeds),
            "a": returns.a,
            "b": returns.b,
            "difference": returns.difference,
            "low": returns.interval.low,
            "high": returns.interval.high,
        }
    )


def ab_chart(returns: PairedReturns) -> Chart:
    """Both final returns of each seed; and B − A with its interval after each."""
    budget = short_count(returns.max_frame)
    notes = (
        f"final return: mean of the episodes of the last 5 % of {budget} total frames; "
        "a pair is a training of A and one of B under one seed",
        *returns.notes,
    )
    panels = (_returns_panel(returns), _interval_panel(returns))
    return Chart(returns.title, returns.sentence, (panels,), notes=notes, legend=True)


def _returns_panel(returns: PairedReturns) -> Panel:
    """A dot for each training, and a line from A to B of one seed."""
    places = _places(returns)
    lines = [
        Curve("", np.full(2, place), np.array(pair), style="faint", ink=Ink(GREY))
        for place, *pair in zip(places, returns.a, returns.b, strict=True)
    ]
    dots = [
        _dots("A", places, returns.a, _A),
        _dots("B", places, returns.b, _B),
    ]
    return _panel(returns, "pair", "final return", [*lines, *dots])


def _dots(label: str, x: FloatArray, y: FloatArray, ink: Ink) -> Curve:
    """Points without a line: between two of them there is a gap."""
    gaps = np.full(len(x), np.nan)
    return Curve(
        label,
        np.repeat(x, 2),
        np.column_stack([y, gaps]).ravel(),
        ink=ink,
    )


def _interval_panel(returns: PairedReturns) -> Panel:
    """The mean of B − A after each seed, in the band of its interval, over a line at
    0."""
    places = _places(returns)
    curves = []
    if len(places):
        low, high = (
            np.where(np.isfinite(end), end, np.nan) for end in returns.interval
        )
        means = np.cumsum(returns.difference) / places
        name = f"mean of B − A, {returns.confidence * 100:g} % interval"
        curves = [
            *_levels(returns, len(places)),
            Curve(name, places, means, Interval(low, high), ink=_EFFECT),
        ]
    return _panel(returns, "seeds of each", "B − A", curves)


def _levels(returns: PairedReturns, count: int) -> list[Curve]:
    """Lines at 0, and at the differences that do not matter."""
    heights = {0.0: "no difference"}
    if returns.smallest is not None:
        heights |= {
            returns.smallest: f"±{returns.smallest:g} does not matter",
            -returns.smallest: "",
        }
    ends = np.array([0.5, count + 0.5])
    return [
        Curve(
            label,
            ends,
            np.full(2, height),
            style="faint" if height == 0 else "dashed",
            ink=Ink(GREY, 1.0 if height == 0 else 0.6),
        )
        for height, label in heights.items()
    ]


def _places(returns: PairedReturns) -> FloatArray:
    """(n,): 1, 2, …"""
    return np.arange(1.0, len(returns.a) + 1)


def _panel(
    returns: PairedReturns, x: str, title: str, curves: Sequence[Curve]
) -> Panel:
    """The curves over an axis of whole numbers from 1."""
    panel = curves_panel(x, "", curves, title, note=_NO_PAIRS)
    ends = (0.5, max(len(returns.a), 1) + 0.5)
    return panel._replace(x=Scale(x, ends, whole=True))
