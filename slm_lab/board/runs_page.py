"""The page of all runs: a table, and below it the ticked ones over each other."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import dash_ag_grid as dag
from dash import dcc, html

from slm_lab.board import elements
from slm_lab.board.query import EVALUATION, SPEC, Query, run_link
from slm_lab.board.refresh import PagePart
from slm_lab.charts.axis import CLOCKS
from slm_lab.charts.diff import difference_tables
from slm_lab.charts.final_returns import results, text_table
from slm_lab.charts.plot import few_seeds_notes, grouped, overlay_panel
from slm_lab.charts.trainings import read_trials
from slm_lab.core.errors import LabError
from slm_lab.core.files import stamp_of
from slm_lab.core.text import error_summary
from slm_lab.core.values import short_names, value_text
from slm_lab.metrics.row import BASE_COLUMNS
from slm_lab.records.catalog import Catalog, CatalogEntry, outermost
from slm_lab.records.overview import varied_params
from slm_lab.records.run_record import RunRecord
from slm_lab.storage.run_dir import videos

MAX_RUNS = 12
MAX_DIFFERENCES = 300
"""Ticked runs that are drawn, and keys whose differences are listed."""
ROW = 34
MOST_ROWS = 16
FEW_ROWS = 7
"""Pixels of a row; the rows that are seen without scrolling, without and with ticked
runs."""
_TEXTS: dict[str, tuple[str, int]] = {
    "run": ("run", 300),
    "final_return": ("return", 140),
    "status": ("status", 112),
    "left": ("left", 80),
    "frames": ("all frames", 116),
    "env": ("environment", 140),
    "tags": ("tags", 150),
    "changed": ("changed", 200),
    "mode": ("mode", 150),
    "frames_per_s": ("frames/s", 92),
    "bytes": ("size", 88),
    "started": ("started", 150),
}
FIT_NARROW = """(_, grids) => grids.map(columns => window.innerWidth > 600
    ? window.dash_clientside.no_update
    : columns.map(c => c.field === "run"
        ? {...c, width: 170, minWidth: 170, wrapText: true, autoHeight: true} : c))"""
"""Narrows the names of runs on a narrow screen, so that it shows their returns. They
take several lines there."""
MOST_PARAMS = 12
PARAM_WIDTH = 110
"""Columns of hyperparameters, and the pixels of one."""
_NUMBERS = ("left", "frames", "final_return", "frames_per_s", "bytes")


def layout(catalog: Catalog, query: Query) -> list[Any]:
    """The page, with the runs of now."""
    rows = _rows(catalog)
    varied = _varied(catalog)
    shown = MOST_ROWS
    if query.runs:
        shown = FEW_ROWS
    hint = "filter: part of a name, tag, environment, status …"
    field = dcc.Input(query.q, "search", 0.2, hint, id={"control": "q"})
    return [
        html.Div([field, elements.part("ticked")], className="bar"),
        dag.AgGrid(
            id={"grid": "runs"},
            columnDefs=_columns(varied),
            rowData=rows,
            getRowId="params.data.run",
            selectedRows={"ids": list(query.runs)},
            scrollTo={"rowId": query.runs[0]} if query.runs else None,
            defaultColDef={"sortable": True, "filter": True, "resizable": True},
            dashGridOptions=grid_options(query),
            style={"height": f"{ROW * (min(len(rows), shown) + 1) + 20}px"},
        ),
        *map(elements.part, ("controls", "curves", "endings", "differences", "videos")),
    ]


def grid_options(query: Query) -> dict[str, Any]:
    """The options of the grid that depend on the address, and all others."""
    return {
        "rowSelection": {
            "mode": "multiRow",
            "headerCheckbox": False,
            "enableClickSelection": False,
        },
        "quickFilterText": query.q,
        "rowHeight": ROW,
        "headerHeight": ROW,
        "suppressCellFocus": True,
    }


def grid_part(catalog: Catalog) -> PagePart:
    """The rows of the grid."""
    entries = catalog.entries().values()
    stamp = tuple((entry.stamp, entry.overview) for entry in entries)
    return PagePart(stamp, partial(_rows, catalog))


def _varied(catalog: Catalog) -> list[str]:
    """The keys that are columns."""
    overviews = [entry.overview for entry in catalog.entries().values()]
    return varied_params(overviews)[:MOST_PARAMS]


def _rows(catalog: Catalog) -> list[dict[str, Any]]:
    entries = catalog.entries()
    varied = _varied(catalog)
    return [
        _row(entry, outermost(entry, entries).overview.started, varied)
        for entry in entries.values()
    ]


def _field(path: str) -> str:
    """The field of a key in the rows of the grid, for which a dot is a level."""
    return f"param/{path.replace('.', '/')}"


def _row(
    entry: CatalogEntry, started: str, varied: Sequence[str] = ()
) -> dict[str, Any]:
    """Values to sort by, and the texts that are shown. `started` keeps a row below its
    outer run's row, and a fork below the run that it has left. The grid's sort is
    stable."""
    run = entry.overview
    outer, _, folder = entry.name.rpartition("/")
    shown_name = folder
    if outer or run.forked_from:
        shown_name = f"↳ {folder}"
    texts = {**run.cells(), "run": shown_name}
    fields = ("run", "env", "mode", *_NUMBERS[1:])
    return {
        **{name: getattr(run, name) for name in fields},
        "left": run.seconds_left,
        "tags": texts["tags"],
        "changed": entry.problem or texts["changed"],
        "started": started,
        "status": texts["status"],
        "text": texts,
        "href": run_link(entry.name),
        **{
            _field(path): _plain(run.params[path])
            for path in varied
            if path in run.params
        },
    }


def _plain(value: Any) -> Any:
    """A value that the grid sorts as a number, if it is one; else its short text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return value_text(value)


def _columns(varied: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of the grid. The columns of hyperparameters stand after "changed"."""
    names = short_names(varied)
    params = [
        {
            "field": _field(path),
            "headerName": names[path],
            "headerTooltip": path,
            "width": PARAM_WIDTH,
        }
        for path in varied
    ]
    place = list(_TEXTS).index("mode")
    columns = [_column(name) for name in _TEXTS]
    return [*columns[:place], *params, *columns[place:]]


def _column(name: str) -> dict[str, Any]:
    heading, width = _TEXTS[name]
    column: dict[str, Any] = {"field": name, "headerName": heading, "width": width}
    if name == "run":
        column |= {"cellRenderer": "RunLink", "minWidth": width, "flex": 1}
    if name == "status":
        column["cellRenderer"] = "Status"
    if name in (*_NUMBERS, "started"):
        column["valueFormatter"] = {"function": f"params.data.text.{name}"}
    if name in _NUMBERS:
        column |= {"type": "rightAligned", "filter": "agNumberColumnFilter"}
    if name == "started":
        column["sort"] = "desc"
    return column


def parts(catalog: Catalog, query: Query) -> dict[str, PagePart]:
    """The parts of the page below the table."""
    ticked = _entries(catalog, query.runs)
    entries = ticked[:MAX_RUNS]
    rows = tuple(entry.stamp for entry in entries)
    specs = stamp_of(
        [entry.run.spec_file for entry in entries if entry.run is not None]
    )
    films = stamp_of([entry.folder / "video" for entry in entries])
    return {
        "ticked": PagePart((len(ticked),), partial(_count, query, ticked)),
        "controls": PagePart(specs, partial(_controls, entries, query)),
        "curves": PagePart(rows, partial(_curves, entries, query)),
        "endings": PagePart(rows, partial(_endings, entries, query)),
        "differences": PagePart(specs, partial(_differences, entries)),
        "videos": PagePart(films, partial(_videos, catalog, entries)),
    }


def _entries(catalog: Catalog, names: Sequence[str]) -> list[CatalogEntry]:
    """The ticked runs; a comparison stands for its trainings."""
    entries: dict[str, CatalogEntry] = {}
    for name in names:
        entry = catalog.entries().get(name)
        if entry is None:
            continue
        runs = [entry]
        if entry.run is None and not entry.problem:
            runs = catalog.inside(name)
        entries |= {run.name: run for run in runs}
    return list(entries.values())


def _trials(entries: Sequence[CatalogEntry]) -> tuple[dict[str, RunRecord], list[str]]:
    """The trial of each run, by name, of a search the best one so far; why others have
    none."""
    trials = dict[str, RunRecord]()
    problems = list[str]()
    for entry in entries:
        try:
            trials[entry.name] = entry.trial()
        except LabError as error:
            problems.append(f"{entry.name}: {error_summary(error)}")
    return trials, problems


def _count(query: Query, entries: Sequence[CatalogEntry]) -> Any:
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
    columns = dict.fromkeys(["mean_return", EVALUATION, *BASE_COLUMNS])
    for trial in _trials(entries)[0].values():
        with suppress(LabError):  # damaged rows, which the curves report
            rows = trial.rows(0)
            columns |= dict.fromkeys(filter(rows.has_values, rows.columns))
    names = [name for name in {**columns, query.y: None} if name not in CLOCKS]
    options = [{"label": name.replace("_", " "), "value": name} for name in names]
    controls = [
        elements.select("y", "column", query.y, options),
        elements.select("x", "over", query.x),
        elements.select("of", "of the seeds", query.of),
        elements.select("smooth", "smoothed over", query.smooth),
        elements.select(
            "group", "a curve for each", query.group, _groups(entries, query)
        ),
    ]
    return html.Div(controls, className="controls")


def _groups(entries: Sequence[CatalogEntry], query: Query) -> list[dict[str, str]]:
    """What the runs may be grouped by: the keys in which they differ."""
    varied = varied_params([entry.overview for entry in entries])
    if query.group_by is not None:
        varied = list(dict.fromkeys([*varied, query.group_by]))
    names = short_names(varied)
    options = [{"label": names[path], "value": path} for path in varied]
    return [{"label": SPEC, "value": SPEC}, *options]


def _curves(entries: Sequence[CatalogEntry], query: Query) -> Any:
    if not entries:
        return []
    trials, problems = _trials(entries)
    with_values, without = read_trials(trials, query.x, query.axis)
    warnings = [elements.problem(text) for text in (*problems, *without)]
    if not with_values:
        return warnings
    panel, notes = overlay_panel(with_values, query.x, query.of, query.group_by)
    name = repr((query.y, query.x, query.group, query.runs))
    shown = elements.panel_graph(panel, name, height=430, legend=True)
    texts = [html.P(note, className="note") for note in notes]
    return elements.section(query.axis.label, shown, *texts, *warnings, hint=panel.hint)


def _endings(entries: Sequence[CatalogEntry], query: Query) -> Any:
    trials, _ = read_trials(_trials(entries)[0], query.x, Query().axis)
    if not trials:
        return []
    groups, _ = grouped(trials, query.x, group_by=query.group_by)
    numbers = results(groups)
    table = text_table(numbers.endings)
    notes = few_seeds_notes(numbers.endings)
    texts = [html.P(text) for text in numbers.sentences]
    texts += [html.P(note, className="note") for note in notes]
    cells = elements.rows_table(table.header, table.rows, table.words)
    return elements.section("Final returns", cells, *texts)


def _differences(entries: Sequence[CatalogEntry]) -> Any:
    trials, _ = _trials(entries)
    if len(trials) < 2:
        return []
    names = [html.A(name, href=run_link(name)) for name in trials]
    sections = []
    for title, table in difference_tables([*trials], [*trials.values()]).items():
        rows = table.rows[:MAX_DIFFERENCES]
        lines = elements.rows_table(["key", *names], rows, table.words)
        sections.append(elements.section(title, lines if rows else html.P("none")))
    return sections


def _videos(catalog: Catalog, entries: Sequence[CatalogEntry]) -> Any:
    """The newest video of each run."""
    shown = [
        html.Figure(
            [
                elements.video(catalog.root, file),
                html.Figcaption(f"{entry.name}: {file.stem}"),
            ]
        )
        for entry in entries
        for file in videos(entry.folder)[-1:]
    ]
    if shown:
        return elements.section("Videos", html.Div(shown, className="videos"))
    return []
