"""The command `slm-lab run SPEC NAME search`: what it prints, and the exit code it ends with."""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slm_lab.analysis.experiment import short_names, value_text
from slm_lab.cli.errors import FAILED, INTERRUPTED
from slm_lab.cli.live import short
from slm_lab.cli.naming import command_text, count_text, sessions_text
from slm_lab.cli.screen import Screen, say, wide_console
from slm_lab.cli.search_live import SearchDisplay, TrialsTable, searched_paths
from slm_lab.core.headline import headline
from slm_lab.core.numerals import significant
from slm_lab.experiment.consent import modules_of
from slm_lab.experiment.search.confirm import Confirmation
from slm_lab.experiment.search.outcomes import best_first, draw, write_confirmed
from slm_lab.experiment.search.prepare import Prepared, SearchRequest
from slm_lab.experiment.search.record import Confirmed, Status
from slm_lab.experiment.search.search import Search
from slm_lab.experiment.stopping import stop_on_signals
from slm_lab.spec.schema.meta import ConfirmSpec

SHOWN = 10
"""Trials in the table at the end."""
DRAW_INTERVAL = 30.0
"""Seconds between two drawings at least."""
DRAW_SHARE = 0.02
"""The share of the time that drawing may take."""


def search_spec(request: SearchRequest) -> int:
    """Searches, whose plug-ins are imported; returns the exit code.

    Raises LabError for what cannot be searched.
    """
    console = wide_console()
    prepared = Prepared(request)
    try:
        return _search(console, prepared)
    finally:
        prepared.close()


def _search(console: Console, prepared: Prepared) -> int:
    _introduce(console, prepared)
    try:
        return _run(console, prepared)
    except KeyboardInterrupt:
        say(console, f"go on with: {resume_command(prepared)}")
        raise


def _run(console: Console, prepared: Prepared) -> int:
    search = prepared.search
    drawing = _Drawing(prepared)
    with stop_on_signals(search.stop), SearchDisplay(console, search) as display:

        def on_tick() -> None:
            display.update()
            drawing.now_and_then()

        search.run(on_tick)
    paths = drawing.draw()
    confirmation = None
    if not search.stopping and prepared.spec.meta.confirm is not None:
        confirmation = _confirm(console, prepared, prepared.spec.meta.confirm)
        paths += drawing.write_confirmed(confirmation)
    if not display.is_live:  # else its last state stands there
        _show_trials(console, prepared)
    _show_failures(prepared)
    _show_confirmed(console, prepared, confirmation)
    for path in paths:
        if path.suffix != ".html" or "experiment_graph" in path.name:
            say(console, f"{'table' if path.suffix == '.csv' else 'graph'} {path}")
    return _conclude(console, prepared, confirmation)


def _conclude(console: Console, prepared: Prepared, confirmation: Confirmation | None) -> int:
    """How to go on if there is anything left to do; returns the exit code."""
    search = prepared.search
    stopped = search.stopping or (confirmation is not None and confirmation.stopping)
    missing = [] if confirmation is None else confirmation.missing
    if stopped or missing:
        say(console, f"go on with: {resume_command(prepared)}")
    if search.problem is not None:
        print(f"the search has stopped: {search.problem}", file=sys.stderr)
        return FAILED
    if stopped:
        return INTERRUPTED
    trials = search.standing.trials
    all_failed = len(search.standing.of(Status.FAILED)) == len(trials)
    return FAILED if all_failed or missing else 0


class _Drawing:
    """Draws while the search runs, but not too often, and at the end."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._due = time.monotonic() + DRAW_INTERVAL

    def now_and_then(self) -> None:
        if time.monotonic() < self._due:
            return
        began = time.monotonic()
        self.draw()
        now = time.monotonic()
        self._due = now + max(DRAW_INTERVAL, (now - began) / DRAW_SHARE)

    def draw(self) -> list[Path]:
        """The paths; none where the disk takes nothing, which ends no search."""
        prepared = self._prepared
        return _written(lambda: draw(prepared.spec, prepared.run_dir, prepared.search.standing))

    def write_confirmed(self, confirmation: Confirmation) -> list[Path]:
        """The same of the specs and the table of what was run again."""
        prepared = self._prepared

        def write() -> list[Path]:
            confirmation.write_specs()
            return write_confirmed(prepared.run_dir, prepared.search.standing)

        return _written(write)


def _written(write: Callable[[], list[Path]]) -> list[Path]:
    try:
        return write()
    except OSError as error:
        print(f"cannot write graphs and tables: {error}", file=sys.stderr)
        return []


def resume_command(prepared: Prepared) -> str:
    """What to type to go on: the search's own spec file needs no -s, --seed or --data."""
    run_dir = prepared.run_dir
    words = ["run", str(run_dir.spec_file), prepared.spec.name, f"search@{run_dir.root}"]
    return command_text(words, [*prepared.imports, *modules_of(prepared.spec)])


def _introduce(console: Console, prepared: Prepared) -> None:
    spec, search = prepared.spec, prepared.search
    meta = spec.meta
    scheduler = "" if meta.search_scheduler is None else f", scheduler {meta.search_scheduler.name}"
    verb = "going on with the search" if prepared.is_resumed else "searching"
    names = short_names(searched_paths(spec)).values()
    trials = count_text(search.num_trials, "trial")
    say(
        console,
        Text.assemble(
            f"{verb} ",
            (spec.name, "bold"),
            f": {spec.agent.algorithm.name} on {spec.env.name}, {trials} "
            f"of {sessions_text(meta)}, {short(spec.env.max_frame)} frames each\n"
            f"over {', '.join(names)}; engine {meta.search_alg}{scheduler}, seed "
            f"{prepared.root_seed}\nrun folder {prepared.run_dir.root}",
        ),
    )
    for note in prepared.notes:
        say(console, Text(note, "yellow"))


def _confirm(console: Console, prepared: Prepared, asked: ConfirmSpec) -> Confirmation:
    """Runs the best specs again under fresh seeds."""
    search = prepared.search
    imports, seed = prepared.imports, prepared.root_seed
    confirmation = Confirmation(search, asked, seed, imports, search.pool)
    if confirmation.missing:
        count, seeds = len(confirmation.missing), asked.max_session
        say(
            console,
            f"confirming {'the best' if count == 1 else f'{count} of the best'} with {seeds} fresh "
            f"seed{'' if seeds == 1 else 's'}{'' if count == 1 else ' each'}",
        )
    progress = _Progress(console, search, confirmation)
    with stop_on_signals(confirmation.stop), progress.screen:
        confirmation.run(progress.show)
    progress.show()
    return confirmation


class _Progress:
    """A live line per spec that is confirmed; without a terminal one when it has been."""

    def __init__(self, console: Console, search: Search, confirmation: Confirmation) -> None:
        self.screen = Screen(console)
        self._console = console
        self._standing = search.standing
        self._said = set(search.standing.confirmed)
        self._confirmation = confirmation

    def show(self) -> None:
        """Shows how things stand."""
        if not self.screen.is_live:
            self._log()
            return
        table = Table.grid(padding=(0, 2))
        for trial, process in self._confirmation.pool.running.items():
            board = process.board
            sessions = [board.read(session) for session in range(board.num_sessions)]
            known = [s.recent_return for s in sessions if s.recent_return is not None]
            mean = statistics.fmean(known) if known else None
            frames = sum(session.frame for session in sessions)
            table.add_row(f"t{trial}", f"{frames:,} frames", significant(mean))
        self.screen.show(table)

    def _log(self) -> None:
        for trial, found in self._standing.confirmed.items():
            if trial not in self._said:
                self._said.add(trial)
                say(self._console, f"t{trial} confirmed: {_mean_text(found)}")


def _show_trials(console: Console, prepared: Prepared) -> None:
    search = prepared.search
    table, best = TrialsTable(search, console.width), best_first(search.standing)
    for its in best[:SHOWN]:
        table.add(its, its.frame)
    console.print(table.table)
    if len(best) > SHOWN:
        say(console, Text(f"and {len(best) - SHOWN} more in the table", "dim"))


def _show_failures(prepared: Prepared) -> None:
    """A line for each trial that failed; the log of its Sessions has more."""
    standing = prepared.search.standing
    failed = standing.of(Status.FAILED)
    for its in failed:
        print(f"t{its.trial} failed: {headline(str(its.error))}", file=sys.stderr)
    if failed:
        logs = prepared.run_dir.root / "log"
        print(f"{len(failed)} of {len(standing.trials)} trials failed; see {logs}", file=sys.stderr)


def _show_confirmed(
    console: Console, prepared: Prepared, confirmation: Confirmation | None
) -> None:
    """The numbers that are the result."""
    standing = prepared.search.standing
    if confirmation is None or not standing.confirmed:
        return
    names, files = short_names(searched_paths(prepared.spec)), confirmation.files
    table = Table(
        title="\nConfirmed with fresh seeds, ± 1 std",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name in ("spec", "trial", "in the search", "confirmed", "seeds", "difference", "values"):
        right = name in ("in the search", "confirmed", "seeds", "difference")
        table.add_column(name, justify="right" if right else "left", header_style="dim")
    for found in standing.results:
        its = standing.trials[found.trial]
        file = files.get(found.trial)
        table.add_row(
            "" if file is None else file.name,
            f"t{its.trial}",
            significant(its.score),
            _mean_text(found),
            str(len(found.scores)),
            _difference(found, its.score),
            ", ".join(f"{names[p]} {value_text(v)}" for p, v in its.point.items()),
        )
    console.print(table)
    best = standing.results[0]
    if best.mean is not None and best.trial in files:
        told = f"result: t{best.trial} with {_mean_text(best)}, {files[best.trial]}"
        say(console, Text(told, "bold"))
    for found in standing.confirmed.values():
        if found.error is not None:
            why = headline(found.error)
            print(f"t{found.trial} failed under fresh seeds: {why}", file=sys.stderr)


def _mean_text(found: Confirmed) -> str:
    """Over the seeds, with the standard deviation where there are several."""
    scores = found.scores
    if not scores:
        return "failed"
    spread = f" ± {significant(statistics.pstdev(scores))}" if len(scores) > 1 else ""
    return f"{significant(statistics.fmean(scores))}{spread}"


def _difference(found: Confirmed, score: float | None) -> str:
    """How much more the fresh seeds score than the search's own."""
    if not found.scores or score is None:
        return ""
    more = statistics.fmean(found.scores) - score
    return f"{'+' if more > 0 else ''}{significant(more)}"
