"""The command `slm-lab run SPEC NAME search`: its output and exit code."""

import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console

from slm_lab.charts.search_summary import confirmed_table, confirmed_text
from slm_lab.cli.display import screen
from slm_lab.cli.display.live import run_shown
from slm_lab.cli.display.sessions import print_resume
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.display.trials import TrialsTable, searched_names
from slm_lab.cli.shell.exit_codes import code_of_study
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.cli.track import tracked
from slm_lab.core.text import count_text, error_summary, short_count
from slm_lab.metrics.trial_state import TABLE_TRIALS, Status
from slm_lab.records.overview import run_document
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import command_text, modules_of
from slm_lab.spec.session_names import sessions_text
from slm_lab.studies.search.confirm import Confirmation
from slm_lab.studies.search.run import SearchRun

CONFIRM = 'meta.confirm={"top": 2, "max_session": 3}'
NO_SCORE = (
    "no trial has a score, so none is the best: no episode of theirs has ended; raise "
    "env.max_frame, or bound the episodes with env.max_t"
)


def search_spec(source: RunSource, caller: ParentProgram) -> int:
    """Runs a search, and returns the exit code. Its plug-ins must be imported. Raises
    LabError."""
    console = screen.wide_console(quiet=source.output != "text")
    with closing(SearchRun(source)) as run:
        caller.begun(run.folder)
        _introduce(console, run)
        try:
            with tracked(console, source, run.run_dir) as trackers:
                code = _conclude(console, run, _train(console, run))
                if run.study.stopping:
                    trackers.hurry()
        except KeyboardInterrupt:
            print_resume(console, "search", run)
            raise
    if source.output == "json":
        screen.print_json(run_document(run.run_dir, code))
    return code


def _train(console: Console, run: SearchRun) -> list[Path]:
    """Runs the search below live tables. Returns the paths of its graphs and tables."""
    names = searched_names(run.spec.search)
    display = TrialsTable(console, run.search, names, run.spec.env.max_frame)

    def confirms(confirmation: Confirmation) -> None:
        count = len(confirmation.missing)
        fresh = count_text(confirmation.asked.max_session, "fresh seed")
        text = f"confirming {count} of the best with {fresh} each"
        if count == 1:
            text = f"confirming the best with {fresh}"
        screen.print_line(console, text)
        table = TrainingsTable(console, confirmation, confirmation.recent_return)
        run_shown(confirmation.study, table)

    paths = run.run(partial(run_shown, run.search, display), confirms)
    display.print_best(TABLE_TRIALS)
    return paths


def _conclude(console: Console, run: SearchRun, paths: list[Path]) -> int:
    _show_failures(run)
    _show_confirmed(console, run)
    for path in paths:
        if path.suffix != ".html" or "experiment_graph" in path.name:
            kind = "table" if path.suffix == ".csv" else "graph"
            screen.print_line(console, f"{kind} {path}")
    unconfirmed = run.unconfirmed
    if run.study.stopping or unconfirmed:
        print_resume(console, "search", run)
    has_failed = run.search.study_state.has_failed or bool(unconfirmed)
    code = code_of_study("search", run.study, has_failed)
    if code == 0:
        _show_next(console, run)
    return code


def _show_next(console: Console, run: SearchRun) -> None:
    """Prints two commands for the best trial: evaluate it, and train or confirm it.
    Without a score there is no best trial."""
    folder = run.folder
    confirmation = run.confirmation
    results = run.search.study_state.results
    trials = run.search.study_state.trials.values()
    if all(trial.known_score is None for trial in trials):
        screen.print_line(console, NO_SCORE)
        return
    trained = ["run", f"search@{folder}", "-s", CONFIRM]
    purpose = "repeat the best two with three fresh seeds each"
    if confirmation is not None and results and results[0].trial in confirmation.files:
        trained = ["run", str(confirmation.files[results[0].trial])]
        purpose = "train the best spec again"
    played = ["run", f"eval@{folder}"]
    modules = [*run.imports, *modules_of(run.spec)]
    screen.print_line(console, "next:")
    for words, comment in (
        (played, "greedy episodes of the best trial"),
        (trained, purpose),
    ):
        screen.print_line(console, f"  {command_text(words, modules)}  # {comment}")


def _introduce(console: Console, run: SearchRun) -> None:
    spec = run.spec
    search = run.search
    meta = spec.meta
    scheduler = ""
    if meta.search_scheduler is not None:
        scheduler = f", scheduler {meta.search_scheduler.name}"
    verb = "resuming the search" if run.is_resumed else "searching"
    names = searched_names(spec.search).values()
    trials = count_text(search.num_trials, "trial")
    rest = (
        f": {spec.agent.algorithm.name} on {spec.env.name}, {trials} "
        f"of {sessions_text(meta)}, {short_count(spec.env.max_frame)} frames each\n"
        f"over {', '.join(names)}; searcher {meta.search_alg}{scheduler}, seed "
        f"{run.root_seed}\nrun folder {run.folder}"
    )
    screen.print_heading(
        console=console, verb=verb, name=spec.name, rest=rest, notes=run.notes
    )


def _show_failures(run: SearchRun) -> None:
    study_state = run.search.study_state
    failed = study_state.of(Status.FAILED)
    for state in failed:
        print(f"t{state.trial} failed: {error_summary(state.error)}", file=sys.stderr)
    if failed:
        logs = run.folder / "log"
        counts = f"{len(failed)} of {len(study_state.trials)} trials failed"
        print(f"{counts}; see {logs}", file=sys.stderr)


def _show_confirmed(console: Console, run: SearchRun) -> None:
    """Prints the table of confirmed specs, and the best of them as the result."""
    study_state = run.search.study_state
    confirmation = run.confirmation
    if confirmation is None or not study_state.confirmed:
        return
    files = confirmation.files
    names = searched_names(run.spec.search)
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
        screen.print_line(console, message, "bold")
    for result in study_state.confirmed.values():
        if result.error is not None:
            why = error_summary(result.error)
            print(f"t{result.trial} failed with fresh seeds: {why}", file=sys.stderr)
