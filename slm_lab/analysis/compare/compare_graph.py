"""Writes the graphs and tables of a comparison."""

from collections.abc import Callable
from pathlib import Path

from slm_lab.analysis.compare.compare_figure import dashboard, return_overviews, speed_up_chart
from slm_lab.analysis.compare.compare_html import render_chart_html, render_dashboard_html
from slm_lab.analysis.compare.compare_png import render_chart_png, render_dashboard_png
from slm_lab.analysis.compare.compare_table import summary_csv, trainings_csv
from slm_lab.analysis.compare.comparison import Comparison
from slm_lab.analysis.figure.page import ensure_plotly_js, relative_url
from slm_lab.analysis.figure.render import write_figure
from slm_lab.core.files import write_atomically


def draw_comparison(comparison: Comparison, folder: Path, prefix: str) -> list[Path]:
    """Writes everything into `folder`; returns the paths, the dashboard's PNG first.

    Files are `{prefix}_compare.png` and `.html` (the dashboard),
    `{prefix}_compare_mean_returns_vs_{total_frames,wall_t,frames,cpu_t}` and
    `{prefix}_compare_speed_up` as both, `{prefix}_compare_df.csv` and
    `{prefix}_compare_trainings_df.csv`. Raises OSError.
    """
    stem = f"{prefix}_compare"
    board, chart = dashboard(comparison), speed_up_chart(comparison)
    paths = _write(
        folder, stem, render_dashboard_png(board), lambda js: render_dashboard_html(board, js)
    )
    for clock, overview in return_overviews(comparison).items():
        paths += write_figure(overview, folder, f"{stem}_mean_returns_vs_{clock}", folder)
    paths += _write(
        folder,
        f"{stem}_speed_up",
        render_chart_png(chart),
        lambda js: render_chart_html(chart, js),
    )
    tables = {
        folder / f"{stem}_df.csv": summary_csv(comparison),
        folder / f"{stem}_trainings_df.csv": trainings_csv(comparison),
    }
    for path, content in tables.items():
        write_atomically(path, content)
    return [*paths, *tables]


def _write(folder: Path, stem: str, png: bytes, page: Callable[[str], bytes]) -> list[Path]:
    paths = [folder / f"{stem}.png", folder / f"{stem}.html"]
    write_atomically(paths[0], png)
    write_atomically(paths[1], page(relative_url(ensure_plotly_js(folder), paths[1])))
    return paths
