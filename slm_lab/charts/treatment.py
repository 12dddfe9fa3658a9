"""The chart of a treatment: the returns of a run, and of its forks with remedies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES
from slm_lab.charts.overlay import Seeds, overlay_chart
from slm_lab.charts.plot import seeds_of
from slm_lab.charts.trainings import read_trials
from slm_lab.charts.write import write_chart
from slm_lab.metrics.lines import Line
from slm_lab.records.run_record import RunRecord


class TreatedRun(NamedTuple):
    """A run in the chart, up to a frame."""

    label: str
    record: RunRecord
    until: int
    """The last total frame to draw."""


def draw_treatment(
    panels: Mapping[str, Sequence[TreatedRun]],
    title: str,
    sentence: str,
    folder: Path,
    stem: str,
) -> list[Path]:
    """Draws `folder/stem.png` and `.html`, a panel for each finding; returns both
    paths. Runs without an episode have no curve. Raises OSError."""
    chart = overlay_chart(
        panels={heading: _groups(runs) for heading, runs in panels.items()},
        x=TOTAL_FRAMES,
        y=RETURNS[1],
        aggregate="mean",
        title=title,
    )
    chart = chart._replace(subtitle=sentence, notes=(chart.subtitle,))
    return write_chart(chart, folder, stem, folder.parent)


def _groups(runs: Sequence[TreatedRun]) -> list[Seeds]:
    groups = []
    for run in runs:
        trials, _ = read_trials({run.label: run.record}, "total_frames", RETURNS[1])
        if trials:
            whole = seeds_of(run.label, trials, TOTAL_FRAMES)
            lines = [_until(line, run.until) for line in whole.lines]
            groups.append(whole._replace(lines=tuple(lines)))
    return groups


def _until(line: Line, frame: int) -> Line:
    early = line.x <= frame
    return Line(line.x[early], line.y[early])
