"""The command `slm-lab ab`: its output and exit code."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.text import Text

from slm_lab.cli.display import screen
from slm_lab.cli.display.trainings import TrainingsTable
from slm_lab.cli.shell.exit_codes import FAILED, INTERRUPTED
from slm_lab.cli.shell.parent_program import ParentProgram
from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.plugins import import_plugins
from slm_lab.core.text import error_summary, short_count, significant
from slm_lab.recipes.recipe import GAMES, recipes, resolve_words
from slm_lab.records.trust import command_text, modules_of
from slm_lab.spec.load import spec_names
from slm_lab.spec.read import find_file, read_file
from slm_lab.studies.ab.plan import AbRequest, difference_text, make_plan
from slm_lab.studies.ab.run import AbRun
from slm_lab.studies.compare.folder import allowed_imports
from slm_lab.studies.trial import stop_on_signals

SpecWords: TypeAlias = tuple[str, str | None]
"""A spec file, or an algorithm; and the name in it, or the environment."""
USAGE = "slm-lab ab A B; slm-lab ab SPEC -s KEY=VALUE; or --resume FOLDER"


def ab(request: AbRequest, caller: ParentProgram) -> int:
    """Begins or resumes a test; returns the exit code. Raises LabError."""
    run = _open(request)
    caller.begun(run.folder)
    as_json = request.a.output == "json"
    console = screen.wide_console(quiet=as_json)
    _introduce(console, run)
    _train(console, run)
    code = _conclude(console, run)
    if as_json:
        screen.print_json(
            {
                "folder": str(run.folder),
                "exit_code": code,
                **run.results.document(),
                "graphs": list(map(str, run.compare_folder.record.graphs)),
            }
        )
    return code


def specs_of(words: Sequence[str]) -> tuple[SpecWords, SpecWords]:
    """The specs that the words of the command name as A and as B. Each is FILE, FILE
    NAME or ALGO ENV; two of one file are FILE NAME NAME. A single spec is both. Raises
    UsageError, SpecError."""
    specs: list[SpecWords] = []
    rest = list(words)
    while rest:
        file = rest.pop(0)
        names: list[str] = []
        while rest and len(names) < 2 and _belongs(file, rest[0]):
            names.append(rest.pop(0))
        specs += [(file, name) for name in names] or [(file, None)]
    if not specs:
        raise UsageError(f"name what to test: {USAGE}")
    if len(specs) > 2:
        raise UsageError(f"{' '.join(words)}: these are {len(specs)} specs: {USAGE}")
    return specs[0], specs[-1]


def _belongs(file: str, word: str) -> bool:
    """Whether a word names a spec in the file before it, or the environment of an
    algorithm."""
    if _is_algorithm(file):
        return not _is_algorithm(word) and not _is_file(word)
    return word in spec_names(read_file(find_file(file)))


def _is_algorithm(word: str) -> bool:
    return word.lower() in {*recipes(), *GAMES} and not Path(word).is_file()


def _is_file(word: str) -> bool:
    try:
        find_file(word)
    except SpecError:
        return False
    return True


def _open(request: AbRequest) -> AbRun:
    if request.a.run is not None:
        _reject_beside_resume(request)
        folder = Path(request.a.run)
        imports = allowed_imports(folder, request.a.imports, request.a.trust)
        import_plugins(imports)
        return AbRun.resume(
            folder,
            imports,
            seeds=request.seeds,
            jobs=request.jobs,
        )
    resolved = request._replace(a=resolve_words(request.a), b=resolve_words(request.b))
    plan = make_plan(resolved)
    return AbRun.begin(plan, request.a.data_dir, request.jobs)


def _reject_beside_resume(request: AbRequest) -> None:
    """Raises UsageError for options that a resumed test cannot change."""
    plan = {
        "A and B": request.a.spec_file or None,
        "--set": request.b.sets or None,
        "--smallest": request.smallest,
        "--confidence": request.confidence,
        "--seed": request.a.seed,
    }
    for option, value in plan.items():
        if value is not None:
            raise UsageError(
                f"{option} cannot be used with --resume, which keeps the first plan; "
                "only --seeds may grow"
            )


def _introduce(console: Console, run: AbRun) -> None:
    plan = run.plan
    a, b = plan.specs.values()
    results = run.results
    rest = (
        f": {a.agent.algorithm.name} on {a.env.name}, at most {results.allowed} seeds "
        f"of each (from {plan.seeds[0]}), {short_count(a.env.max_frame)} total frames "
        f"each\n{difference_text(a, b)}\nfolder {run.folder}"
    )
    notes = []
    if results.settled and not results.has_ended:
        notes.append(f"so far: {results.sentence}")
    screen.print_heading(
        console=console, verb="testing", name=plan.name, rest=rest, notes=notes
    )


def _train(console: Console, run: AbRun) -> None:
    results = run.results
    display = TrainingsTable(console, run)
    shown = results.settled

    def on_tick() -> None:
        nonlocal shown
        display.update()
        is_bounded = not all(map(math.isinf, results.verdict.interval))
        if results.settled > shown and is_bounded and not results.has_ended:
            screen.print_line(console, results.progress)
        shown = results.settled

    with stop_on_signals(run.study.stop), display:
        run.study.run(on_tick)


def _conclude(console: Console, run: AbRun) -> int:
    results = run.results
    paths = results.draw()
    returns = results.paired_returns()
    pairs = zip(returns.seeds, returns.a, returns.b, strict=True)
    screen.print_table(
        console=console,
        title=run.plan.name,
        header=("seed", "A", "B", "B − A"),
        rows=[(str(seed), *map(significant, (a, b, b - a))) for seed, a, b in pairs],
    )
    for planned, why in results.failures:
        print(f"{planned.label} failed: {error_summary(why)}", file=sys.stderr)
    screen.print_line(console, f"graph {paths[0]}")
    screen.print_line(console, Text(results.sentence, "bold"))
    modules = [*run.plan.imports, *modules_of(run.plan.baseline)]
    if not results.has_ended or results.has_given_up:
        command = command_text(run.resume_words, modules)
        screen.print_line(console, f"resume with: {command}")
    return _exit_code(run)


def _exit_code(run: AbRun) -> int:
    if run.study.problem is not None:
        print(f"the test has stopped: {run.study.problem}", file=sys.stderr)
        return FAILED
    if run.study.stopping:
        return INTERRUPTED
    if run.results.failures:
        return FAILED
    return 0
