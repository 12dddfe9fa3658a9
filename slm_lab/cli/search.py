"""The command `slm-lab run SPEC NAME search`: its output and exit code."""

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.text import Text

from slm_lab.charts.search_summary import confirmed_table, confirmed_text
from slm_lab.cli.display import screen
from slm_lab.cli.display.sessions import print_resume
from slm_lab.cli.display.trainings import train_shown
from slm_lab.cli.display.trials import TrialsTable, searched_names
from slm_lab.cli.shell.exit_codes import FAILED, INTERRUPTED
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.cli.track import tracked
from slm_lab.core.process import stop_on_signals
from slm_lab.core.text import count_text, error_summary, short_count
from slm_lab.metrics.trial_state import TABLE_TRIALS, Status
from slm_lab.records.overview import run_document
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import command_text, modules_of
from slm_lab.spec.schema.meta import ConfirmSpec
from slm_lab.spec.session_names import sessions_text
from slm_lab.studies.confirm import Confirmation
from slm_lab.studies.search.outcomes import draw
from slm_lab.studies.search.prepare import Prepared
from slm_lab.studies.trial import DrawTimer

CONFIRM = 'meta.confirm={"top": 2, "max_session": 3}'
NO_SCORE = (
    "no trial has a score, so none is the best: no episode of theirs has ended; raise "
    "env.max_frame, or bound the episodes with env.max_t"
)


def search_spec(source: RunSource, caller: ParentProgram) -> int:
    """Runs a search, and returns the exit code. Its plug-ins must be imported. Raises
    LabError."""
    console = screen.wide_console(quiet=source.output != "text")
    with closing(Prepared(source, source.keep)) as prepared:
        caller.begun(prepared.run_dir.root)
        _introduce(console, prepared)
        try:
            with tracked(console, source, prepared.run_dir) as trackers:
                code = _run(console, prepared)
                if prepared.search.stopping:
                    trackers.hurry()
        except KeyboardInterrupt:
            print_resume(console, "search", prepared)
            raise
    if source.output == "json":
        screen.print_json(run_document(prepared.run_dir, code))
    return code


def _run(console: Console, prepared: Prepared) -> int:
    search = prepared.search
    timer = DrawTimer()
    names = searched_names(prepared.spec.search)
    max_frame = prepared.spec.env.max_frame
    shown = TrialsTable(console, search, names, max_frame)
    with stop_on_signals(search.stop), shown as display:

        def on_tick() -> None:
            display.update()
            timer.draw_if_due(lambda: _draw(prepared))

        search.run(on_tick)
    paths = _draw(prepared)
    confirmation = None
    if not search.stopping and prepared.spec.meta.confirm is not None:
        confirmation = _confirm(console, prepared, prepared.spec.meta.confirm)
        paths += _written(confirmation.write)
    display.print_best(TABLE_TRIALS)
    _show_failures(prepared)
    _show_confirmed(console, prepared, confirmation)
    for path in paths:
        if path.suffix != ".html" or "experiment_graph" in path.name:
            kind = "table" if path.suffix == ".csv" else "graph"
            screen.print_line(console, f"{kind} {path}")
    return _conclude(console, prepared, confirmation)


def _conclude(
    console: Console, prepared: Prepared, confirmation: Confirmation | None
) -> int:
    search = prepared.search
    stopped = search.stopping
    problem = search.problem
    missing = []
    if confirmation is not None:
        stopped = stopped or confirmation.study.stopping
        problem = problem or confirmation.study.problem
        missing = confirmation.missing
    if stopped or missing:
        print_resume(console, "search", prepared)
    if problem is not None:
        print(f"the search has stopped: {problem}", file=sys.stderr)
        return FAILED
    if stopped:
        return INTERRUPTED
    if search.study_state.has_failed or missing:
        return FAILED
    _show_next(console, prepared, confirmation)
    return 0


def _show_next(
    console: Console, prepared: Prepared, confirmation: Confirmation | None
) -> None:
    """Prints two commands for the best trial: evaluate it, and train or confirm it.
    Without a score there is no best trial."""
    folder = prepared.run_dir.root
    results = prepared.search.study_state.results
    trials = prepared.search.study_state.trials.values()
    if all(trial.known_score is None for trial in trials):
        screen.print_line(console, NO_SCORE)
        return
    trained = ["run", f"search@{folder}", "-s", CONFIRM]
    purpose = "repeat the best two with three fresh seeds each"
    if confirmation is not None and results and results[0].trial in confirmation.files:
        trained = ["run", str(confirmation.files[results[0].trial])]
        purpose = "train the best spec again"
    played = ["run", f"eval@{folder}"]
    modules = [*prepared.imports, *modules_of(prepared.spec)]
    screen.print_line(console, "next:")
    for words, comment in (
        (played, "greedy episodes of the best trial"),
        (trained, purpose),
    ):
        screen.print_line(console, f"  {command_text(words, modules)}  # {comment}")


def _draw(prepared: Prepared) -> list[Path]:
    search = prepared.search
    return _written(
        lambda: draw(
            prepared.spec,
            prepared.run_dir,
            search.study_state,
            lambda: search.stopping,
        )
    )


def _written(write: Callable[[], list[Path]]) -> list[Path]:
    try:
        return write()
    except OSError as error:
        print(f"cannot write graphs and tables: {error}", file=sys.stderr)
        return []


def _introduce(console: Console, prepared: Prepared) -> None:
    spec = prepared.spec
    search = prepared.search
    meta = spec.meta
    scheduler = ""
    if meta.search_scheduler is not None:
        scheduler = f", scheduler {meta.search_scheduler.name}"
    verb = "resuming the search" if prepared.is_resumed else "searching"
    names = searched_names(spec.search).values()
    trials = count_text(search.num_trials, "trial")
    rest = (
        f": {spec.agent.algorithm.name} on {spec.env.name}, {trials} "
        f"of {sessions_text(meta)}, {short_count(spec.env.max_frame)} frames each\n"
        f"over {', '.join(names)}; searcher {meta.search_alg}{scheduler}, seed "
        f"{prepared.root_seed}\nrun folder {prepared.run_dir.root}"
    )
    screen.print_heading(
        console=console, verb=verb, name=spec.name, rest=rest, notes=prepared.notes
    )


def _confirm(
    console: Console, prepared: Prepared, settings: ConfirmSpec
) -> Confirmation:
    confirmation = Confirmation(prepared, settings)
    if not confirmation.missing:
        return confirmation
    count = len(confirmation.missing)
    fresh = count_text(settings.max_session, "fresh seed")
    text = f"confirming {count} of the best with {fresh} each"
    if count == 1:
        text = f"confirming the best with {fresh}"
    screen.print_line(console, text)
    train_shown(console, confirmation, confirmation.recent_return)
    return confirmation


def _show_failures(prepared: Prepared) -> None:
    study_state = prepared.search.study_state
    failed = study_state.of(Status.FAILED)
    for state in failed:
        print(
            f"t{state.trial} failed: {error_summary(str(state.error))}", file=sys.stderr
        )
    if failed:
        logs = prepared.run_dir.root / "log"
        counts = f"{len(failed)} of {len(study_state.trials)} trials failed"
        print(f"{counts}; see {logs}", file=sys.stderr)


def _show_confirmed(
    console: Console, prepared: Prepared, confirmation: Confirmation | None
) -> None:
    """Prints the table of confirmed specs, and the best of them as the result."""
    study_state = prepared.search.study_state
    if confirmation is None or not study_state.confirmed:
        return
    files = confirmation.files
    names = searched_names(prepared.spec.search)
    table = confirmed_table(study_state, files, names)
    screen.print_table(
        console=console,
        title="\nConfirmed with fresh seeds, ± 1 std",
        header=table.header,
        rows=table.rows,
        left=("trial", "values"),
        spare=table.spare,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold dim",
    )
    best = study_state.results[0]
    if best.mean is not None and best.trial in files:
        message = (
            f"result: t{best.trial} with {confirmed_text(best)}, {files[best.trial]}"
        )
        screen.print_line(console, Text(message, "bold"))
    for result in study_state.confirmed.values():
        if result.error is not None:
            why = error_summary(result.error)
            print(f"t{result.trial} failed with fresh seeds: {why}", file=sys.stderr)
