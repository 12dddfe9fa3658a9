"""The page of one run: what its Sessions write, what the doctor says, what to do
next."""

import json
from contextlib import suppress
from functools import partial
from typing import Any

from dash import html

from slm_lab.board import elements
from slm_lab.board.query import Query, file_link, run_link
from slm_lab.board.refresh import PagePart
from slm_lab.charts.columns import column_panels
from slm_lab.charts.look import colour
from slm_lab.charts.overlay import ink_of
from slm_lab.charts.search_summary import (
    point_texts,
    status_text,
)
from slm_lab.core.errors import LabError
from slm_lab.core.files import stamp_of, tail
from slm_lab.core.text import duration_text, error_summary, significant
from slm_lab.core.values import number_text
from slm_lab.doctor.diagnosis import findings_of
from slm_lab.metrics.row import COLUMNS
from slm_lab.metrics.trial_state import ranked
from slm_lab.records.catalog import Catalog, CatalogEntry
from slm_lab.records.comparison import PLAN_BLOCK
from slm_lab.records.run_record import RunRecord, RunStatus
from slm_lab.records.trust import command_text, named_by, resume_words
from slm_lab.storage.run_dir import RUN_BLOCK, videos
from slm_lab.studies.search.outcomes import summarise

MOST_FILES = 100
MOST_VIDEOS = 6
MOST_TRIALS = 200
"""Files, videos and trials of a run that are shown."""
WITHOUT_IMPORTS = ("watch", "draw")
"""The purposes of commands that import no module of the run."""


def layout(catalog: Catalog, query: Query) -> list[Any]:
    """The page, with a place for each of its parts."""
    entry = catalog.entries().get(query.run)
    if entry is None:
        return [elements.problem(f"there is no run {query.run} in {catalog.root}")]
    if entry.run is None:  # a comparison, or a damaged folder
        return [
            elements.part(name) for name in ("head", "results", "commands", "files")
        ]
    sessions = [query.session]
    with suppress(Exception):  # a damaged spec, which the parts report
        sessions = list(map(str, range(entry.trial(query.trial).meta.num_sessions)))
    of_rows = [
        elements.select("x", "over", query.x),
        elements.select("smooth", "smoothed over", query.smooth),
    ]
    options = [{"label": session, "value": session} for session in sessions]
    of_log = elements.select("session", "Session", query.session, options)
    return [
        *map(elements.part, ("head", "findings", "results")),
        html.Div(of_rows, className="controls"),
        *map(elements.part, ("panels", "sessions", "commands", "files")),
        html.Div(of_log, className="controls"),
        *map(elements.part, ("log", "spec")),
    ]


def parts(catalog: Catalog, query: Query) -> dict[str, PagePart]:
    """The parts of the page."""
    entry = catalog.entries().get(query.run)
    if entry is None:  # it was deleted while its page was open
        return {
            "head": PagePart(
                (), partial(elements.problem, f"there is no run {query.run}")
            )
        }
    pages = {
        "head": PagePart((entry.overview,), partial(_head, entry, query)),
        "files": PagePart(entry.stamp, partial(_files, catalog, entry)),
    }
    if entry.problem:
        return pages
    pages["commands"] = PagePart(
        (entry.overview.status,), partial(_commands, entry, query)
    )
    if entry.run is None:
        pages["results"] = PagePart(entry.stamp, partial(_comparison, catalog, entry))
        return pages
    if entry.run.is_search:
        stamp = stamp_of([entry.run.event_log_file, *entry.pages])
        pages["results"] = PagePart(stamp, partial(_search, catalog, entry))
    for name, make_part in _OF_TRIAL.items():
        pages[name] = PagePart(entry.stamp, partial(make_part, entry, query))
    return pages


def _head(entry: CatalogEntry, query: Query) -> Any:
    run = entry.overview
    texts = run.cells()
    frames = f"{run.frames:,} frames"
    if run.budget:
        frames = f"{run.frames:,} of {run.budget:,} frames"
    facts = [run.mode, frames]
    if run.env:
        facts.insert(0, f"{run.name} on {run.env}")
    if run.frames_per_s:
        facts.append(f"{texts['frames_per_s']} frames/s")
    if texts["left"]:
        facts.append(f"{texts['left']} left")
    facts += [f"return {texts['final_return']}", texts["tags"], texts["changed"]]
    facts.append(texts["bytes"])
    shown = html.P([html.Span(fact, className="fact") for fact in facts if fact])
    if entry.problem:
        shown = elements.problem(f"damaged: {entry.problem}")
    title = entry.name
    if query.trial:
        title = f"{entry.name} · trial {query.trial}"
    head = [html.H1([f"{title} ", elements.chip(run.status)]), shown]
    if run.budget and run.status is RunStatus.TRAINING:
        frames_so_far = str(min(run.frames, run.budget))
        head.append(html.Progress(value=frames_so_far, max=str(run.budget)))
    return head


def _search(catalog: Catalog, entry: CatalogEntry) -> Any:
    """The trials, and the page of the search."""
    assert entry.run is not None
    summary = summarise(RunRecord(entry.run))
    names = summary.names
    lines = [
        (
            html.A(f"t{trial.trial}", href=run_link(entry.name, trial.trial)),
            elements.chip(trial.status),
            ", ".join(point_texts(trial, names)),
            number_text(trial.known_score, 4),
            f"{trial.frame:,}",
            duration_text(trial.seconds),
            error_summary(trial.error or trial.last_failure or ""),
        )
        for trial in ranked(summary.trials)[:MOST_TRIALS]
    ]
    header = ("trial", "status", "values", "score", "frame", "time", "error")
    table = elements.rows_table(header, lines, words=2)
    trials = elements.section("Trials", table, hint=status_text(summary.trials))
    return [trials, *elements.pages(catalog.root, entry.pages)]


def _comparison(catalog: Catalog, entry: CatalogEntry) -> Any:
    """The page of the trainings that have finished; and why the log of them all cannot
    be read, if it cannot."""
    assert entry.comparison is not None
    pages = elements.pages(catalog.root, entry.pages)
    problem = entry.comparison.log_problem
    if problem:
        return [elements.problem(problem), *pages]
    return pages


def _commands(entry: CatalogEntry, query: Query) -> Any:
    """Commands to copy for what a user may do next. They name one trial of a search if
    the page shows one."""
    # pasted into a terminal, control characters act as keys
    if not str(entry.folder).isprintable():
        return elements.problem(
            "no commands: the name of the folder has control characters"
        )
    commands = _next_commands(entry, query.trial)
    return elements.section(
        "Commands", *(elements.command(*text) for text in commands.items())
    )


def _next_commands(entry: CatalogEntry, trial: str) -> dict[str, str]:
    """Commands by their purpose, for a run, a search or a comparison. If a `trial` of a
    search is named, they are about that trial. They have `--import` for the modules
    that files of the run name."""
    place = str(entry.folder)
    target = place
    if trial:
        target = f"{place}:t{trial}"
    run = entry.run
    status = entry.overview.status
    may_resume = status not in (RunStatus.TRAINING, RunStatus.DONE)
    commands: dict[str, list[str]] = {}
    if run is None:
        assert entry.comparison is not None
        block = PLAN_BLOCK
        files = [entry.comparison.plan_file]
        if may_resume:
            commands["resume"] = entry.comparison.resume_words
    else:
        block = RUN_BLOCK
        files = [run.spec_file]
        if may_resume:
            cluster = RunRecord(run).cluster
            commands["resume"] = resume_words(run.root, run.is_search, cluster)
        if status is RunStatus.TRAINING:
            commands["watch"] = ["watch", place]
        commands["evaluate"] = ["run", f"eval@{target}"]
        commands["see it play"] = ["run", f"enjoy@{target}", "--render"]
        commands["examine"] = ["doctor", target]
    commands["draw"] = ["plot", target]
    modules: tuple[str, ...] = ()
    with suppress(LabError):  # files that cannot be read name none
        modules = named_by(files, block)
    return {
        purpose: command_text(words, () if purpose in WITHOUT_IMPORTS else modules)
        for purpose, words in commands.items()
    }


def _files(catalog: Catalog, entry: CatalogEntry) -> Any:
    """Links to the offline pages, tables, videos and runs inside of a run."""
    links = [
        html.Li(
            [
                html.A(run.folder.name, href=run_link(run.name)),
                " ",
                elements.chip(run.overview.status),
            ]
        )
        for run in catalog.inside(entry.name)
    ]
    prefix = entry.run.prefix if entry.run else entry.overview.name
    for file in entry.offline_files[:MOST_FILES]:
        text = file.stem.removeprefix(f"{prefix}_")
        address = file_link(catalog.root, file)
        links.append(html.Li(html.A(text, href=address, target="_blank")))
    films = []
    if not entry.problem:
        newest = videos(entry.folder)[-MOST_VIDEOS:]
        films = [elements.video(catalog.root, file) for file in newest]
    if not links and not films:
        return []
    return elements.section(
        "Pages and files",
        html.Ul(links, className="files"),
        html.Div(films, className="videos"),
    )


def _names(record: RunRecord) -> dict[int, str]:
    """ "Session 0"; "learner 0" in a mode in which only learners write rows."""
    noun = "Session"
    if record.meta.mode.has_learner:
        noun = "learner"
    return {session: f"{noun} {session}" for session in record.sessions}


def _panels(entry: CatalogEntry, query: Query) -> Any:
    """A graph for each column with a line for each Session; columns that never change
    as text."""
    record = entry.trial(query.trial)
    rows, evaluations, problems = record.readable_rows()
    warnings: list[Any] = [elements.problem(text) for text in problems]
    if record.is_trial_of_search and not query.trial:
        note = f"trial {record.trial}, the best so far"
        warnings.append(html.P(note, className="note"))
    if not rows:
        return [*warnings, html.P("no rows yet")]
    names = _names(record)
    panels, constant = column_panels(
        rows, evaluations, names, x=query.x, window_share=float(query.smooth)
    )
    figures = []
    for y, panel in panels.items():
        meaning = ""
        if y.column in COLUMNS:
            meaning = COLUMNS[y.column].meaning
        graph = elements.panel_graph(panel, f"{y.column} {query.x}", height=200)
        figures.append(html.Figure([html.Figcaption(y.label, title=meaning), graph]))
    keys = [
        html.Span(names[session], style={"color": colour(*ink_of(session))})
        for session in rows
    ]
    parts = [*warnings, html.P(keys if len(keys) > 1 else [], className="legend")]
    parts.append(html.Div(figures, className="panels"))
    if constant:
        parts.append(html.P(f"constant: {', '.join(constant)}", className="note"))
    return parts


def _sessions(entry: CatalogEntry, query: Query) -> Any:
    record = entry.trial(query.trial)
    names = _names(record)
    lines = [
        (
            names[session],
            state.ending,
            f"{state.frame:,.0f}",
            significant(state.frames_per_s),
            significant(state.newest_return),
            error_summary(state.error),
        )
        for session, state in record.session_states().items()
    ]
    header = ("Session", "ended", "frame", "frames/s", "return", "reason")
    if lines:
        return elements.section("Sessions", elements.rows_table(header, lines, words=1))
    return []


def _findings(entry: CatalogEntry, query: Query) -> Any:
    """The doctor's findings about the rows; `slm-lab doctor` also looks at the
    agent."""
    findings = findings_of(entry.trial(query.trial))
    if findings:
        items = [
            html.Li(
                [
                    html.B(finding.what),
                    html.Div(f"seen: {finding.evidence}"),
                    html.Div(f"try: {finding.advice}"),
                ]
            )
            for finding in findings
        ]
        return elements.section("The doctor", html.Ul(items))
    if entry.overview.status is RunStatus.TRAINING:
        return []
    return elements.section("The doctor", html.P("nothing wrong found"))


def _log(entry: CatalogEntry, query: Query) -> Any:
    record = entry.trial(query.trial)
    file = record.run_dir.session(record.trial, int(query.session)).log
    text = html.Div(html.Pre(tail(file)), className="log")
    return elements.section("Log", text, hint=file.name)


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
