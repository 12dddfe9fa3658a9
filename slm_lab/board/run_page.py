"""The page of one run: what its Sessions write, what the doctor says, what to do
next."""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from dash import html

from slm_lab.board import results
from slm_lab.board.catalog import Catalog, CatalogEntry
from slm_lab.board.elements import (
    chip,
    command,
    curves_graph,
    part,
    problem,
    rows_table,
    section,
    select,
)
from slm_lab.board.query import Query, file_link, run_link
from slm_lab.board.refresh import Part
from slm_lab.board.ticked import video
from slm_lab.charts import axis
from slm_lab.charts.chart import Curve, Ink
from slm_lab.charts.curves import decimate
from slm_lab.charts.look import OKABE_ITO, colour
from slm_lab.core.errors import LabError
from slm_lab.core.files import read_object, stamp_of, tail
from slm_lab.core.recorded import value_at
from slm_lab.core.text import error_summary, significant
from slm_lab.doctor.diagnosis import findings_of
from slm_lab.metrics.reader import Rows
from slm_lab.metrics.row import COLUMNS
from slm_lab.records.run_record import RunRecord, RunStatus
from slm_lab.records.trust import command_text, named_by, resume_words
from slm_lab.storage.run_dir import PLAN_BLOCK, PLAN_FILE, RUN_BLOCK, videos

MOST_FILES = 100
MOST_VIDEOS = 6
"""Files and videos of a run that are shown."""
POINTS = 400
"""Maximum points per curve."""
FIRST = (
    "loss",
    "entropy",
    "approx_kl",
    "staleness_p50",
    "policy_lag",
    "actor_wait_share",
    "learner_wait_share",
    "sync_share",
    "fps",
)
"""The panels after those of returns; other columns follow in the order of the file."""
NOT_DRAWN = (
    *axis.CLOCKS,
    "epi",
    "opt_step",
    "total_reward",
    "total_reward_ma",
    "mean_return",
    "recent_return",
    "final_return",
    "final_return_episodes",
)
"""Columns of time and of returns, which have graphs of other forms."""


def layout(catalog: Catalog, query: Query) -> list[Any]:
    """The page, with a place for each of its parts."""
    entry = catalog.entries().get(query.run)
    if entry is None:
        return [problem(f"there is no run {query.run} in {catalog.root}")]
    if entry.run is None:  # a comparison, or a damaged folder
        return [part(name) for name in ("head", "results", "commands", "files")]
    sessions = [query.session]
    with suppress(Exception):  # a damaged spec, which the parts report
        sessions = list(map(str, range(entry.trial(query.trial).meta.num_sessions)))
    of_rows = [
        select("x", "over", query.x),
        select("smooth", "smoothed over", query.smooth),
    ]
    options = [{"label": each, "value": each} for each in sessions]
    of_log = select("session", "Session", query.session, options)
    return [
        *map(part, ("head", "findings", "results")),
        html.Div(of_rows, className="controls"),
        *map(part, ("panels", "sessions", "commands", "files")),
        html.Div(of_log, className="controls"),
        *map(part, ("log", "spec")),
    ]


def parts(catalog: Catalog, query: Query) -> dict[str, Part]:
    """The parts of the page."""
    entry = catalog.entries().get(query.run)
    if entry is None:  # it was deleted while its page was open
        return {"head": Part((), partial(problem, f"there is no run {query.run}"))}
    found = {
        "head": Part((entry.overview,), partial(_head, entry, query)),
        "files": Part(entry.stamp, partial(_files, catalog, entry)),
    }
    if entry.problem:
        return found
    found["commands"] = Part((entry.overview.status,), partial(_commands, entry, query))
    if entry.run is None:
        return {
            **found,
            "results": Part(entry.stamp, partial(results.of_comparison, entry)),
        }
    if entry.run.is_search:
        stamp = stamp_of([entry.run.event_log_file])
        found["results"] = Part(stamp, partial(results.of_search, entry))
    for name, make_part in _OF_TRIAL.items():
        found[name] = Part(entry.stamp, partial(make_part, entry, query))
    return found


def _head(entry: CatalogEntry, query: Query) -> Any:
    run = entry.overview
    frames = f"{run.frames:,}" + (
        f" of {run.budget:,} frames" if run.budget else " frames"
    )
    texts = run.cells()
    speed = ""
    if run.frames_per_s:
        speed = f"{texts['frames_per_s']} frames/s"
    left = ""
    if texts["left"]:
        left = f"{texts['left']} left"
    facts = [
        f"{run.name} on {run.env}" if run.env else "",
        run.mode,
        frames,
        speed,
        left,
    ]
    facts += [f"return {texts['final_return']}", texts["changed"], texts["bytes"]]
    shown = [html.Span(each, className="fact") for each in facts if each]
    trial = ""
    if query.trial:
        trial = f" · trial {query.trial}"
    bar: Any = ""
    if run.budget and run.status is RunStatus.TRAINING:
        bar = html.Progress(value=str(min(run.frames, run.budget)), max=str(run.budget))
    return [
        html.H1([f"{entry.name}{trial} ", chip(run.status)]),
        problem(f"damaged: {entry.problem}") if entry.problem else html.P(shown),
        bar,
    ]


def _commands(entry: CatalogEntry, query: Query) -> Any:
    """What one may do next, each as a command to copy, with `--import` for the modules
    that files of the run name; of one trial of a search if the page shows one."""
    place = str(entry.folder)
    run = entry.run
    status = entry.overview.status
    # pasted into a terminal, control characters act as keys
    if not place.isprintable():
        return problem("no commands: the name of the folder has control characters")
    target = place
    if query.trial:
        target = f"{place}:t{query.trial}"
    commands: dict[str, list[str]] = {}
    if status not in (RunStatus.TRAINING, RunStatus.DONE):
        commands["resume"] = ["compare", "--resume", place]
        if run is not None:
            blocks = read_object(run.spec_file)
            blocks.pop(RUN_BLOCK, None)
            cluster = value_at(next(iter(blocks.values()), {}), "meta.cluster")
            commands["resume"] = resume_words(run.root, run.is_search, cluster)
    if run is not None:
        if status is RunStatus.TRAINING:
            commands["watch"] = ["watch", place]
        commands["evaluate"] = ["run", f"eval@{target}"]
        commands["see it play"] = ["run", f"enjoy@{target}", "--render"]
        commands["examine"] = ["doctor", target]
    commands["draw"] = ["plot", target]
    modules: tuple[str, ...] = ()
    with suppress(LabError):  # files that cannot be read name none
        files = (
            entry.folder.glob(PLAN_FILE.format("*")) if run is None else [run.spec_file]
        )
        modules = named_by(files, PLAN_BLOCK if run is None else RUN_BLOCK)
    texts = {
        about: command_text(words, () if about in ("watch", "draw") else modules)
        for about, words in commands.items()
    }
    return section("Commands", *(command(about, text) for about, text in texts.items()))


def _files(catalog: Catalog, entry: CatalogEntry) -> Any:
    """Its offline pages, tables and videos, and the runs inside of it."""
    links = [
        html.Li(
            [
                html.A(each.folder.name, href=run_link(each.name)),
                " ",
                chip(each.overview.status),
            ]
        )
        for each in catalog.inside(entry.name)
    ]
    places = ["*.html", "graph/*.html", "*.csv"] if not entry.problem else []
    files = [file for place in places for file in sorted(entry.folder.glob(place))]
    prefix = entry.run.prefix if entry.run else entry.overview.name
    for file in files[:MOST_FILES]:
        address = file_link(file.relative_to(catalog.root).as_posix())
        text = file.stem.removeprefix(f"{prefix}_")
        links.append(html.Li(html.A(text, href=address, target="_blank")))
    films = (
        [video(catalog, file) for file in videos(entry.folder)[-MOST_VIDEOS:]]
        if places
        else []
    )
    shown = [html.Ul(links, className="files"), html.Div(films, className="videos")]
    if links or films:
        return section("Pages and files", *shown)
    return []


def _session_name(found: RunRecord, session: int) -> str:
    """ "Session 0"; "learner 0" in a mode in which only learners write rows."""
    if found.meta.mode.has_learner:
        return f"learner {session}"
    return f"Session {session}"


def _read_sessions(
    found: RunRecord,
) -> tuple[dict[int, Rows], dict[int, Rows], list[str]]:
    """The rows so far of each Session that has any, those of its evaluations, and why
    others cannot be read; a damaged file hides no other."""
    own = dict[int, Rows]()
    played = dict[int, Rows]()
    problems = list[str]()
    for session, paths in found.sessions.items():
        for file, read, into in (
            (paths.rows, found.rows, own),
            (paths.eval_rows, found.evaluation_rows, played),
        ):
            try:
                rows = read(session)
                if len(rows):
                    into[session] = rows
            except LabError as error:
                problems.append(f"{file.name}: {error_summary(str(error))}")
    return own, played, problems


def _panels(entry: CatalogEntry, query: Query) -> Any:
    """A graph for each column with a line for each Session; columns that never change
    as text."""
    found = entry.trial(query.trial)
    rows, played, problems = _read_sessions(found)
    warnings = [problem(each) for each in problems]
    if found.of_search and not query.trial:
        warnings.append(
            html.P(f"trial {found.trial}, the best so far", className="note")
        )
    if not rows:
        return [*warnings, html.P("no rows yet")]
    x = axis.x_axis(query.x, max(float(each["wall_t"][-1]) for each in rows.values()))
    shown = []
    constant = []
    for y in _axes(rows, played):
        smooth = y._replace(window_share=float(query.smooth))
        of = rows
        if y is axis.EVAL_RETURNS:
            of = played
        lines = {
            s: decimate(axis.line(each, x, smooth), POINTS) for s, each in of.items()
        }
        values = np.concatenate([each.y for each in lines.values()])
        if len(values) and np.allclose(values, values[0]) and y not in axis.RETURNS:
            constant.append(f"{y.label} {significant(float(values[0]))}")
            continue
        if not len(values):
            continue
        curves = [
            Curve(_session_name(found, s), *line, ink=_ink(s))
            for s, line in lines.items()
        ]
        meaning = ""
        if y.column in COLUMNS:
            meaning = COLUMNS[y.column].meaning
        graph = curves_graph(curves, "", f"{y.column} {query.x}")
        shown.append(html.Figure([html.Figcaption(y.label, title=meaning), graph]))
    keys = [
        html.Span(_session_name(found, s), style={"color": colour(*_ink(s))})
        for s in rows
    ]
    legend = html.P(keys if len(keys) > 1 else [], className="legend")
    text = (
        html.P(f"constant: {', '.join(constant)}", className="note") if constant else ""
    )
    return [*warnings, legend, html.Div(shown, className="panels"), text]


def _axes(rows: Mapping[int, Rows], played: Mapping[int, Rows]) -> list[axis.Axis]:
    """Returns, evaluations if any were `played`, and the columns of Sessions that have
    values."""
    names = {
        c: None for each in rows.values() for c in each.columns if each.has_values(c)
    }
    columns = [
        name for name in (*FIRST, *names) if name in names and name not in NOT_DRAWN
    ]
    of_returns = [axis.RETURNS[0], *([axis.EVAL_RETURNS] if played else [])]
    return of_returns + [axis.learner_axis(name) for name in dict.fromkeys(columns)]


def _ink(session: int) -> Ink:
    """A colour of each Session; after one turn of the palette it is paler."""
    turn, place = divmod(session, len(OKABE_ITO))
    return Ink(place, max(1.0 - 0.3 * turn, 0.4))


def _sessions(entry: CatalogEntry, query: Query) -> Any:
    found = entry.trial(query.trial)
    recorded = found.metrics.get("sessions") or []
    ends = {each.get("session"): each for each in recorded}
    lines = []
    for session, rows in _read_sessions(found)[0].items():
        last = {name: rows[name][-1] for name in rows.columns}
        end = ends.get(session, {})
        known = last.get("recent_return", np.nan)
        value = known
        if not np.isfinite(known):
            value = last.get("final_return", np.nan)
        lines.append(
            (
                _session_name(found, session),
                str(end.get("ending", "")),
                f"{last['frame']:,.0f}",
                significant(float(last.get("fps", 0.0))),
                significant(float(value)) if np.isfinite(value) else "–",
                error_summary(str(end.get("error") or "")),
            )
        )
    header = ("Session", "ended", "frame", "frames/s", "return", "reason")
    if lines:
        return section("Sessions", rows_table(header, lines, words=1))
    return []


def _findings(entry: CatalogEntry, query: Query) -> Any:
    """What the doctor finds in the rows; `slm-lab doctor` also looks at the agent."""
    found = findings_of(entry.trial(query.trial))
    if entry.overview.status is RunStatus.TRAINING and not found:
        return []
    items = [
        html.Li(
            [
                html.B(each.what),
                html.Div(f"seen: {each.evidence}"),
                html.Div(f"try: {each.advice}"),
            ]
        )
        for each in found
    ]
    return section(
        "The doctor", html.Ul(items) if items else html.P("nothing wrong found")
    )


def _log(entry: CatalogEntry, query: Query) -> Any:
    found = entry.trial(query.trial)
    file = found.run_dir.session(found.trial, int(query.session)).log
    return section(
        "Log", html.Div(html.Pre(tail(file)), className="log"), hint=file.name
    )


def _spec(entry: CatalogEntry, query: Query) -> Any:
    text = json.dumps(entry.trial(query.trial).spec, indent=2)
    return html.Details([html.Summary("The spec"), html.Pre(text)])


_OF_TRIAL = {
    "findings": _findings,
    "panels": _panels,
    "sessions": _sessions,
    "log": _log,
    "spec": _spec,
}
