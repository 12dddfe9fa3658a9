"""The figure of an overlay, for a screen or for paper."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from slm_lab.analysis.figure.axis import Axis
from slm_lab.analysis.figure.figure import Band, Curve, Figure, Panel, level
from slm_lab.analysis.figure.layout import curves_panel, over_legend
from slm_lab.analysis.overlay.overlay import Middle, Seeds, look_of, overlay
from slm_lab.analysis.statistics import bootstrap_interval
from slm_lab.core.types import FloatArray

LETTERS = 8.0
"""The size of the letters on paper, in points."""
_STEPS = 201  # of a performance profile


class Options(NamedTuple):
    """How an overlay is drawn."""

    middle: Middle
    title: str = ""
    levels: tuple[float, ...] = ()
    """The heights of dashed lines."""
    log: bool = False
    """Whether the y axis is logarithmic."""
    width: float | None = None
    """In points, of a figure for paper."""
    with_profile: bool = False
    """Whether a second panel has the performance profiles of the first."""
    about: str = ""
    """Kept in the file."""


def overlay_figure(
    panels: Mapping[str, Sequence[Seeds]],
    x: Axis,
    y: Axis,
    options: Options,
    generator: np.random.Generator,
) -> Figure:
    """A panel for each heading, over one legend. Groups with one label have one colour in all."""
    every = dict.fromkeys(group.label for groups in panels.values() for group in groups)
    colours = list(every) if len(panels) > 1 else []
    drawn, named, subtitles = list[Panel](), set[str](), list[str]()
    for heading, groups in panels.items():
        found = overlay(groups, options.middle, generator.spawn(1)[0], colours)
        levels = [level(height, found.curves) for height in options.levels]
        curves = [*levels, *(_named_once(each, named) for each in found.curves)]
        drawn.append(curves_panel(x.label, y.label, curves, heading, log=options.log))
        subtitles.append(found.subtitle)
        if options.with_profile:
            drawn.append(_profile(groups, generator))
    paper = {} if options.width is None else {"width": options.width, "letters": LETTERS}
    figure = over_legend(options.title, max(subtitles, key=len), drawn, **paper)
    return figure._replace(about=options.about)


def _named_once(curve: Curve, named: set[str]) -> Curve:
    """The curve, without its label if that is in `named`, to which it is added."""
    label = "" if curve.label in named else curve.label
    named.add(curve.label)
    return curve._replace(label=label)


def _profile(groups: Sequence[Seeds], generator: np.random.Generator) -> Panel:
    """The share of seeds whose final return is above each threshold, with a 95 % bootstrap
    interval: performance profiles, §4.2 of arXiv:2108.13264."""
    returns = np.concatenate([group.final_return for group in groups])
    thresholds = np.linspace(min(returns.min(), 0.0), max(returns.max(), 1.0), _STEPS)
    curves = []
    for number, group in enumerate(groups):
        above = (group.final_return[:, None] > thresholds).astype(np.float64)
        ends = bootstrap_interval(above, _mean, generator.spawn(1)[0], strata=group.strata)
        look = look_of("", number)
        curves.append(look._replace(x=thresholds, mean=above.mean(0), band=Band(*ends)))
    return curves_panel("normalised final return τ", "share of runs above τ", curves)


def _mean(values: FloatArray) -> FloatArray:
    mean: FloatArray = values.mean(axis=0)
    return mean
