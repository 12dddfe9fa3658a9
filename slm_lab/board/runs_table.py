"""The table of all runs."""

from functools import partial
from typing import Any

import dash_ag_grid as dag
from dash import dcc, html

from slm_lab.board.catalog import Catalog, CatalogEntry
from slm_lab.board.elements import part
from slm_lab.board.query import Query, run_link
from slm_lab.board.refresh import Part

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
_NUMBERS = ("left", "frames", "final_return", "frames_per_s", "bytes")


def layout(catalog: Catalog, query: Query) -> list[Any]:
    """The page, with the runs of now."""
    rows = _rows(catalog)
    shown = MOST_ROWS
    if query.runs:
        shown = FEW_ROWS
    hint = "filter: part of a name, environment, status …"
    field = dcc.Input(query.q, "search", 0.2, hint, id={"control": "q"})
    return [
        html.Div([field, part("ticked")], className="bar"),
        dag.AgGrid(
            id={"grid": "runs"},
            columnDefs=[_column(name) for name in _TEXTS],
            rowData=rows,
            getRowId="params.data.run",
            selectedRows={"ids": list(query.runs)},
            scrollTo={"rowId": query.runs[0]} if query.runs else None,
            defaultColDef={"sortable": True, "filter": True, "resizable": True},
            dashGridOptions=grid_options(query),
            style={"height": f"{ROW * (min(len(rows), shown) + 1) + 20}px"},
        ),
        *(
            part(name)
            for name in ("controls", "curves", "endings", "differences", "videos")
        ),
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


def grid_part(catalog: Catalog) -> Part:
    """The rows of the grid."""
    stamp = tuple((each.stamp, each.overview) for each in catalog.entries().values())
    return Part(stamp, partial(_rows, catalog))


def _rows(catalog: Catalog) -> list[dict[str, Any]]:
    entries = catalog.entries()
    outer = {
        name: entries.get(name.rpartition("/")[0], each)
        for name, each in entries.items()
    }
    return [_row(each, outer[name].overview.started) for name, each in entries.items()]


def _row(entry: CatalogEntry, started: str) -> dict[str, Any]:
    """Values to sort by, and the texts that are shown. `started` keeps it below its
    outer run: the grid's sort is stable."""
    run = entry.overview
    folder = entry.name.rpartition("/")[2]
    texts = {**run.cells(), "run": f"↳ {folder}" if "/" in entry.name else folder}
    values = {
        name: getattr(run, name) for name in ("run", "env", "mode", *_NUMBERS[1:])
    }
    values |= {"left": run.seconds_left, "changed": entry.problem or texts["changed"]}
    values |= {"started": started, "status": texts["status"]}
    return {**values, "text": texts, "href": run_link(entry.name)}


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
