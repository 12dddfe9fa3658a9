"""The server of the board: one page for all runs, one for each."""

import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, final

from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate
from werkzeug.serving import BaseWSGIServer

from slm_lab.board import run_page, runs_page
from slm_lab.board.elements import problem
from slm_lab.board.query import Query
from slm_lab.board.refresh import Made, PagePart, Parts
from slm_lab.board.security import BoundedServer, secure
from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.text import error_summary
from slm_lab.records.catalog import Catalog

REFRESH_SECONDS = 5
HOST = "127.0.0.1"
PORT = 8050
MOST_ASKED = 1 << 20
"""The most bytes of a request."""
_ALARM = """(ticks, answered) => {
    const silent = Date.now() / 1000 - answered > 30;
    return silent ? "no answer: has the board been stopped?" : "";
}"""
PAGES = {"/": runs_page, "/run": run_page}

logger = logging.getLogger(__name__)


def make_app(data_dir: Path) -> Dash:
    """The pages about the runs in `data_dir`."""
    catalog = Catalog(data_dir)
    app = Dash(
        __name__,
        title="slm-lab board",
        update_title="",
        url_base_pathname="/",
        suppress_callback_exceptions=True,
        enable_mcp=False,
    )
    app.server.config["MAX_CONTENT_LENGTH"] = MOST_ASKED
    app.layout = partial(_frame, catalog.root)  # with the time of each visit
    _connect(app, Answers(catalog))
    secure(app.server, catalog.root, app.csp_hashes())
    return app


def _connect(app: Dash, answers: "Answers") -> None:
    """Says which part of a page each answer fills, and what asks for it."""
    app.callback(
        Output("page", "children"), Input("url", "pathname"), State("url", "search")
    )(answers.page)
    app.callback(
        Output("url", "search"),
        Output({"control": ALL}, "value"),
        Output({"grid": ALL}, "selectedRows"),
        Output({"grid": ALL}, "dashGridOptions"),
        Input("url", "search"),
        Input({"control": ALL}, "value"),
        Input({"grid": ALL}, "selectedRows"),
        State({"control": ALL}, "id"),
        prevent_initial_call=True,
    )(answers.choices)
    app.callback(
        Output({"part": ALL}, "children"),
        Output({"grid": ALL}, "rowData"),
        Output("seen", "data"),
        Output("answered", "data"),
        Input({"part": ALL}, "id"),
        Input("url", "search"),
        Input("tick", "n_intervals"),
        State({"grid": ALL}, "id"),
        State("url", "pathname"),
        State("seen", "data"),
    )(answers.changed_parts)
    app.clientside_callback(  # type: ignore[no-untyped-call]
        _ALARM,
        Output("alarm", "children"),
        Input("tick", "n_intervals"),
        State("answered", "data"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        runs_page.FIT_NARROW,
        Output({"grid": ALL}, "columnDefs"),
        Input("page", "children"),
        State({"grid": ALL}, "columnDefs"),
        prevent_initial_call=True,
    )


@final
class Answers:
    """The server's answers to a browser. Each method is called by Dash, with values of
    the page; its result fills parts of the page."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._parts = Parts()

    def page(self, pathname: str, search: str) -> Any:
        """The page at an address."""
        if pathname not in PAGES:
            return problem(f"there is no page {pathname}")
        layout = partial(PAGES[pathname].layout, self._catalog, Query.parse(search))
        return _make_or_explain(layout)

    def choices(
        self, search: str, values: list[str], grids: list[Any], ids: list[Any]
    ) -> Any:
        """The address, the values of controls, and the ticked rows and options of each
        grid. Address and controls are kept alike, whichever has changed."""
        asked = Query.parse(search)
        names = [control["control"] for control in ids]
        chosen = asked._replace(**dict(zip(names, values, strict=True)))
        for selected in grids:
            chosen = chosen._replace(runs=_merge_ticks(asked.runs, selected))
        if chosen == asked:
            raise PreventUpdate
        if ctx.triggered_id == "url":  # the browser's button back
            texts = [getattr(asked, name) for name in names]
            ticks = {"ids": list(asked.runs)}
            shown = runs_page.grid_options(asked)
            return no_update, texts, [ticks] * len(grids), [shown] * len(grids)
        options: Any = no_update
        if chosen.q != asked.q:
            options = runs_page.grid_options(chosen)
        keep = [no_update] * len(grids)
        return chosen.search, [no_update] * len(names), keep, [options] * len(grids)

    def changed_parts(
        self,
        ids: list[Any],
        search: str,
        _: int,
        grids: list[Any],
        path: str,
        seen: dict[str, str],
    ) -> Any:
        """The parts and the rows of grids that have changed since the browser last
        asked. With them come the serials of all parts and grids, and the time."""
        query = Query.parse(search)
        parts = PAGES.get(path, runs_page).parts(self._catalog, query)
        names = [place["part"] for place in ids]
        newest = {
            name: self._newest((path, query, name), parts.get(name, PagePart((), list)))
            for name in names
        }
        if grids:
            newest["grid"] = self._newest("grid", runs_page.grid_part(self._catalog))
        serials = {name: made.serial for name, made in newest.items()}
        updates = {
            name: no_update if seen.get(name) == made.serial else made.shown
            for name, made in newest.items()
        }
        children = [updates[name] for name in names]
        return children, [updates["grid"] for _ in grids], serials, time.time()

    def _newest(self, key: object, part: PagePart) -> Made:
        make = partial(_make_or_explain, part.make)
        return self._parts.get(key, PagePart(part.stamp, make))


def _frame(root: Path) -> html.Div:
    head = [html.A("slm-lab board", href="/"), html.Span(str(root)), html.B(id="alarm")]
    stores = [dcc.Store(id="seen", data={}), dcc.Store(id="answered", data=time.time())]
    clock = dcc.Interval(id="tick", interval=REFRESH_SECONDS * 1000)
    place = dcc.Location(id="url", refresh=False)
    return html.Div([place, clock, *stores, html.Header(head), html.Main(id="page")])


def _merge_ticks(before: tuple[str, ...], selected: Any) -> tuple[str, ...]:
    """The ticked runs: first the earlier ones, in their order, then the new ones."""
    if isinstance(selected, dict):
        names = list(selected["ids"])
    else:
        names = [row["run"] for row in selected or ()]
    kept = [name for name in before if name in names]
    return tuple(dict.fromkeys([*kept, *names]))


def _make_or_explain(make: Callable[[], Any]) -> Any:
    """A part of a page; if a damaged file hinders it, the reason in its place."""
    try:
        return make()
    except LabError as error:
        return problem(error_summary(error))
    except Exception as error:
        logger.exception("a part of a page")
        return problem(f"cannot be shown: {type(error).__name__}: {error}")


def make_board(data_dir: Path, port: int | None) -> tuple[BaseWSGIServer, str]:
    """The server, which `serve_forever` runs, and its address. Without a port it takes
    `PORT`, or any if that is in use. Raises UsageError."""
    if not data_dir.is_dir():
        raise UsageError(f"there is no folder {data_dir}")
    try:
        sock = socket.create_server((HOST, PORT if port is None else port))
    except (OSError, OverflowError) as error:
        if port is not None:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--port {port}: {reason}; choose another one") from None
        sock = socket.create_server((HOST, 0))
    number = sock.getsockname()[1]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    app = make_app(data_dir).server
    server = BoundedServer(HOST, number, app, fd=sock.detach())
    return server, f"http://{HOST}:{number}/"
