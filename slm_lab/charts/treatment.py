"""The chart of a treatment: the returns of a run, and of its forks with remedies."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from slm_lab.charts.axis import RETURNS, TOTAL_FRAMES
from slm_lab.charts.overlay import Seeds, overlay_chart
from slm_lab.charts.plot import seeds_of
from slm_lab.charts.trainings import read_trials
from slm_lab.charts.write import write_chart
from slm_lab.metrics.lines import Line
from slm_lab.records.run_record import RunRecord


def draw_treatment(
    panels: Mapping[str, Sequence[Seeds]],
    title: str,
    sentence: str,
    folder: Path,
    stem: str,
) -> list[Path]:
    """Draws `folder/stem.png` and `.html`, a panel for each finding; returns both
    paths. Raises OSError."""
    chart = overlay_chart(panels, TOTAL_FRAMES, RETURNS[1], "mean", title=title)
    chart = chart._replace(subtitle=sentence, notes=(chart.subtitle,))
    return write_chart(chart, folder, stem, folder.parent)


def returns_until(label: str, record: RunRecord, frame: int) -> list[Seeds]:
    """The curve of a run up to a total frame; none without an episode."""
    trials, _ = read_trials({label: record}, "total_frames", RETURNS[1])
    if not trials:
        return []
    whole = seeds_of(label, trials, TOTAL_FRAMES)
    return [whole._replace(lines=tuple(_until(line, frame) for line in whole.lines))]


def _until(line: Line, frame: int) -> Line:
    early = line.x <= frame
    return Line(line.x[early], line.y[early])
