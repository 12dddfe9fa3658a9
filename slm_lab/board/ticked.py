"""The ticked runs: their curves over each other, how they ended, and how their specs
differ."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from dash import html

from slm_lab.board.catalog import Catalog, CatalogEntry
from slm_lab.board.elements import curves_graph, problem, rows_table, section, select
from slm_lab.board.query import EVALUATION, Query, file_link, run_link
from slm_lab.board.refresh import Part
from slm_lab.charts.axis import CLOCKS
from slm_lab.charts.diff import difference_tables
from slm_lab.charts.final_returns import improvement_text, results, text_table
from slm_lab.charts.overlay import Aggregate, overlay
from slm_lab.charts.plot import about_curves, about_few_seeds, grouped
from slm_lab.charts.trainings import ReadTrial, read_trial
from slm_lab.core.errors import LabError
from slm_lab.core.files import stamp_of
from slm_lab.core.text import error_summary
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.records.run_record import RunRecord
from slm_lab.storage.run_dir import videos

MAX_RUNS = 12
MAX_DIFFERENCES = 300
_HEIGHT = 430


def parts(catalog: Catalog, query: Query) -> dict[str, Part]:
    """The parts of the page below the table."""
    every = _entries(catalog, query.runs)
    entries = every[:MAX_RUNS]
    rows = tuple(each.stamp for each in entries)
    specs = stamp_of([each.run.spec_file for each in entries if each.run is not None])
    films = stamp_of([each.folder / "video" for each in entries])
    return {
        "ticked": Part((len(every),), partial(_about, query, every)),
        "controls": Part(specs, partial(_controls, entries, query)),
        "curves": Part(rows, partial(_curves, entries, query)),
        "endings": Part(rows, partial(_endings, entries, query)),
        "differences": Part(specs, partial(_differences, entries)),
        "videos": Part(films, partial(_videos, catalog, entries)),
    }


def _trials(entries: Sequence[CatalogEntry]) -> tuple[dict[str, RunRecord], list[str]]:
    """The trial of each run, by name, of a search the best one so far; why others have
    none."""
    trials = dict[str, RunRecord]()
    problems = list[str]()
    for entry in entries:
        try:
            trials[entry.name] = entry.trial()
        except LabError as error:
            problems.append(f"{entry.name}: {error_summary(str(error))}")
    return trials, problems


def _entries(catalog: Catalog, names: Sequence[str]) -> list[CatalogEntry]:
    """Those of the ticked names; a comparison stands for its trainings."""
    found: list[CatalogEntry] = []
    for name in names:
        entry = catalog.entries().get(name)
        if entry is not None:
            is_comparison = entry.run is None and not entry.problem
            found += catalog.inside(name) if is_comparison else [entry]
    return list({entry.name: entry for entry in found}.values())


def _about(query: Query, entries: Sequence[CatalogEntry]) -> Any:
    if not entries:
        return "tick runs to compare them"
    more = ""
    if len(entries) > MAX_RUNS:
        more = f", the first {MAX_RUNS} of {len(entries)} are drawn"
    clear = Query(q=query.q).search or "?"
    return [
        f"{len(query.runs)} ticked{more} · ",
        html.A("untick all", href=f"/{clear}"),
    ]


def _controls(entries: Sequence[CatalogEntry], query: Query) -> Any:
    if not entries:
        return []
    found = dict.fromkeys(["mean_return", EVALUATION, *BASE_COLUMNS])
    for trial in _trials(entries)[0].values():
        with suppress(LabError):  # damaged rows, which the curves report
            rows = trial.rows(0)
            found |= dict.fromkeys(
                name for name in rows.columns if rows.has_values(name)
            )
    names = dict.fromkeys(name for name in (*found, query.y) if name not in CLOCKS)
    options = [{"label": name.replace("_", " "), "value": name} for name in names]
    controls = [
        select("y", "column", query.y, options),
        select("x", "over", query.x),
        select("of", "of the seeds", query.of),
        select("smooth", "smoothed over", query.smooth),
    ]
    return html.Div(controls, className="controls")


def _read(
    trials: Mapping[str, RunRecord],
    query: Query,
    problems: list[str],
) -> list[ReadTrial]:
    found = []
    for name, trial in trials.items():
        try:
            read = read_trial(trial, query.x, query.axis)
        except LabError as error:
            problems.append(f"{name}: {error_summary(str(error))}")
            continue
        if read.trainings:
            found.append(read)
        else:
            problems.append(f"{name}: no values of {query.axis.label} yet")
    return found


def _curves(entries: Sequence[CatalogEntry], query: Query) -> Any:
    if not entries:
        return []
    trials, problems = _trials(entries)
    with_values = _read(trials, query, problems)
    warnings = [problem(each) for each in problems]
    if not with_values:
        return warnings
    methods, x = grouped(with_values, query.x)
    seeds = [method.seeds for method in methods]
    aggregate: Aggregate = "iqm" if query.of == "iqm" else "mean"
    drawn = overlay(seeds, aggregate, np.random.default_rng(0))
    curves = [c._replace(band=None) if query.of == "mean" else c for c in drawn.curves]
    graph = curves_graph(
        curves=curves,
        x=x.label,
        name=repr((query.y, query.x, query.runs)),
        height=_HEIGHT,
        legend=True,
    )
    notes = [html.P(note, className="note") for note in about_curves(methods, "", ())]
    hint = drawn.subtitle
    if query.of == "mean":
        hint = "mean of the seeds"
    return section(query.axis.label, graph, *notes, *warnings, hint=hint)


def _endings(entries: Sequence[CatalogEntry], query: Query) -> Any:
    read = _read(_trials(entries)[0], Query(x=query.x), [])
    if not read:
        return []
    methods, _ = grouped(read, query.x)
    rows, better = results([method.seeds for method in methods])
    words = [] if better is None else [html.P(improvement_text(better))]
    notes = [html.P(note, className="note") for note in about_few_seeds(rows)]
    return section("Final returns", rows_table(*text_table(rows)[:3]), *words, *notes)


def _differences(entries: Sequence[CatalogEntry]) -> Any:
    trials, _ = _trials(entries)
    if len(trials) < 2:
        return []
    names = [html.A(name, href=run_link(name)) for name in trials]
    shown = []
    for title, table in difference_tables([*trials], [*trials.values()]).items():
        lines = rows_table(["key", *names], table.rows[:MAX_DIFFERENCES], table.words)
        shown.append(section(title, lines if table.rows else html.P("none")))
    return shown


def _videos(catalog: Catalog, entries: Sequence[CatalogEntry]) -> Any:
    shown = [
        html.Figure(
            [video(catalog, file), html.Figcaption(f"{entry.name}: {file.stem}")]
        )
        for entry in entries
        for file in videos(entry.folder)[-1:]
    ]
    if shown:
        return section("Videos", html.Div(shown, className="videos"))
    return []


def video(catalog: Catalog, file: Path) -> html.Video:
    """A video that is loaded when it is played."""
    source = file_link(file.relative_to(catalog.root).as_posix())
    return html.Video(src=source, controls=True, preload="none")
