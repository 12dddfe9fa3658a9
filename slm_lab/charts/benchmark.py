"""The graphs of a benchmark: curves of each environment, and what joins them."""

from collections.abc import Mapping, Sequence

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES, Axis
from slm_lab.charts.chart import Chart
from slm_lab.charts.overlay import Seeds, overlay_chart

SCORE = Axis("", "", "score: Random 0, best mean 1")
"""The y axis of what is joined over environments."""
SHORT = 4
"""A curve that ends so many times earlier than another is short beside it."""


def benchmark_chart(
    panels: Mapping[str, Sequence[Seeds]], title: str, x: Axis = TOTAL_FRAMES
) -> Chart:
    """The returns of each environment, in a panel of its own."""
    return _chart(panels, x, RETURNS[0], title)


def profile_chart(methods: Sequence[Seeds], title: str) -> Chart:
    """The scores of each method over all environments, with performance profiles."""
    return _chart({"all environments": methods}, TOTAL_FRAMES, SCORE, title)


def _chart(
    panels: Mapping[str, Sequence[Seeds]], x: Axis, y: Axis, title: str
) -> Chart:
    return overlay_chart(
        panels=panels,
        x=x,
        y=y,
        aggregate="iqm",
        title=title,
        log_x=any(map(_differ_in_length, panels.values())),
    )


def _differ_in_length(groups: Sequence[Seeds]) -> bool:
    """Whether a curve would be too short to see beside the longest."""
    ends = [max(line.x[-1] for line in group.lines) for group in groups]
    return bool(max(ends) > SHORT * min(ends))
