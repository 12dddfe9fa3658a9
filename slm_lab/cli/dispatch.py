"""Dispatches `slm-lab run` to the command of its mode."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from slm_lab.cli.options import RunOptions
from slm_lab.cli.shell.caller import Caller
from slm_lab.cli.shell.signals import ended_in_time, print_stop
from slm_lab.core.errors import UsageError
from slm_lab.core.plugins import import_plugins, typed_modules
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.parallel.fork_server import start_fork_server
from slm_lab.records.archive import unpacked
from slm_lab.studies.run_mode import RunMode, RunWords, Verb, parse_words

if TYPE_CHECKING:
    from slm_lab.records.init_from import Parent
    from slm_lab.records.run_source import RunSource
    from slm_lab.storage.run_dir import RunDir

PLAYING = ("eval", "enjoy")
MOST_LETTERS = 200
"""Of a name or a note."""
DEMO = ("demo", "ppo_cartpole")
"""The spec file and name of a command without any."""


def execute(options: RunOptions, caller: Caller) -> int:
    """Executes the command of the mode, and returns the exit code. Raises LabError."""
    words = parse_words(options.words)
    verb = words.mode.verb
    _reject_unused_options(options, words.mode)
    begun = None
    if options.resume:
        begun = _begun(options, verb)
    if begun is not None:
        words = words._replace(mode=RunMode(verb, str(begun.root)))
    if verb not in PLAYING:
        # it starts with the first Session, too, and there it is reported
        with suppress(OSError):
            start_fork_server()
    plays = verb in PLAYING
    named = words.mode.run
    with (
        ended_in_time(lambda: print_stop(caller.folder)) if plays else nullcontext(),
        unpacked(named) if plays and named else nullcontext(named) as run,
    ):
        with stop_signals_blocked():
            source = _source(options, words._replace(mode=RunMode(verb, run)))
            if named is not None and run != named:
                source = replace(source, archive=Path(named))
            if plays:
                caller.folder = (source.archive or Path(source.run or "")).absolute()
            import_plugins(source.imports)
            if begun is not None:
                _check_same(options, parse_words(options.words), begun)
            with importing():
                command = _command(options, verb, caller)
        return command(source)


def _begun(options: RunOptions, verb: Verb) -> "RunDir | None":
    """The run that `--name` names and `--resume` resumes; None: a new one begins."""
    from slm_lab.records.lookup import find_labelled

    assert options.label is not None
    found = find_labelled(options.label, options.data)
    if found is not None and found.is_search != (verb == "search"):
        kind, mode = ("search", "search") if found.is_search else ("run", "train")
        raise UsageError(
            f"--name {options.label}: {found.root} is a {kind}; use the mode {mode}"
        )
    return found


def _check_same(options: RunOptions, words: RunWords, begun: "RunDir") -> None:
    """Raises UsageError if the command would begin another run than the one that it
    resumes."""
    with importing():
        from slm_lab.studies.resume import check_same

        is_search = words.mode.verb == "search"
        if is_search:
            from slm_lab.studies.search.prepare import MAY_CHANGE
        else:
            from slm_lab.studies.run import MAY_CHANGE
    given = _source(replace(options, init_from=None), words)
    check_same(begun, given, MAY_CHANGE, for_search=is_search)


def _command(
    options: RunOptions, verb: Verb, caller: Caller
) -> Callable[["RunSource"], int]:
    """The command of a mode. Each has its own imports: only `evaluate` and `enjoy` need
    torch."""
    if verb in PLAYING:
        from slm_lab.cli.evaluate import enjoy, evaluate

        play = enjoy
        if verb == "eval":
            play = evaluate
        return lambda source: play(source, options)
    if verb == "search":
        from slm_lab.cli.search import search_spec

        return lambda source: search_spec(source, options.keep, caller, options.output)
    from slm_lab.cli.run import run_spec

    return lambda source: run_spec(
        source=source,
        verb=verb,
        caller=caller,
        output=options.output,
        all_metrics=options.all_metrics,
    )


def _source(options: RunOptions, words: RunWords) -> "RunSource":
    with importing():
        from slm_lab.cli.display.screen import console, print_line
        from slm_lab.recipes.recipe import named
        from slm_lab.records.lookup import find_run, find_saved, resolve_spec_name
        from slm_lab.records.run_source import RunSource
        from slm_lab.records.trust import imports_for, imports_of_file, own_imports
        from slm_lab.spec.read import find_file

    (file, name, mode) = words
    data = options.data
    trust = options.trust
    file, name = DEMO if file is None and mode.run is None else (file, name)
    sets = options.sets
    of_env = None
    if file is not None:
        asked = name
        modules = tuple(dict.fromkeys([*options.imports, *typed_modules(name or "")]))
        file, name, sets = named(file, name, sets, modules)
        if name != asked:
            of_env = asked
            options = replace(options, imports=modules)
    if mode.run is None:
        assert file is not None
        imports = imports_of_file(file, options.imports, trust)
        return RunSource(
            spec_file=file,
            spec_name=name,
            sets=sets,
            seed=options.seed,
            data_dir=data,
            imports=imports,
            label=options.label,
            is_only=options.resume,
            note=options.note,
            parent=_parent(options),
        )
    name = None if file is None else resolve_spec_name(file, name)
    if mode.verb in PLAYING:
        run_dir, trial = find_saved(mode.run, data, name, of_env)
    else:
        run_dir = find_run(
            target=mode.run,
            data_dir=data,
            spec_name=name,
            of_search=mode.verb == "search",
            env=of_env,
        )
        trial = None
    of_file = () if file is None else own_imports(find_file(file))
    imports = imports_for(run_dir, (*options.imports, *of_file), trust, data)
    if trust and imports:
        listed = ", ".join(imports)
        print_line(
            console(), f"importing {listed}, which {run_dir.root} names (--trust)"
        )
    run = str(run_dir.root) if trial is None else f"{run_dir.root}:t{trial}"
    file = file or str(run_dir.spec_file)
    name = name or run_dir.spec_name
    source = RunSource(
        spec_file=file,
        spec_name=name,
        run=run,
        sets=options.sets,
        seed=options.seed,
        data_dir=data,
        imports=imports,
    )
    return replace(source, schedules=options.schedules)


def _parent(options: RunOptions) -> "Parent | None":
    """The agent of `--init-from`, which a new run begins with."""
    if options.init_from is None:
        return None
    with importing():  # imports torch
        from slm_lab.records.init_from import find_parent
    return find_parent(
        options.init_from,
        options.init_parts,
        which=options.which,
        session=options.session,
        data_dir=options.data,
    )


def _reject_unused_options(options: RunOptions, mode: RunMode) -> None:
    """Raises UsageError for an option without effect in this mode."""
    begins = mode.run is None
    with_agent = PLAYING if options.init_from is None else (*PLAYING, mode.verb)
    of = {
        "--episodes": (options.episodes, PLAYING),
        "--which": (options.which, with_agent),
        "--session": (options.session, with_agent),
        "--render": (options.render, ("enjoy",)),
        "--video": (options.video, ("enjoy",)),
        "--save": (options.save, ("eval",)),
        "--keep": (options.keep, ("search",)),
        "--resume": (options.resume, ("train", "search")),
        "--all": (options.all_metrics, ("train", "dev")),
        "--json": (options.output == "json", ("train", "dev", "search", "eval")),
    }
    for option, (given, verbs) in of.items():
        if given is not None and given is not False and mode.verb not in verbs:
            fitting = " and ".join(
                f"{verb}@RUN" if verb in PLAYING else verb for verb in verbs
            )
            raise UsageError(f"{option} works only with {fitting}, not with {mode}")
    of_new = {
        "--name": options.label,
        "--note": options.note,
        "--init-from": options.init_from,
        "--resume": options.resume or None,
    }
    for option, value in of_new.items():
        if value is not None and not begins:
            raise UsageError(f"{option} works only where a run begins, not with {mode}")
    if options.init_parts and options.init_from is None:
        raise UsageError(
            "--init-part names what to take from a run: add --init-from RUN"
        )
    if options.resume and options.label is None:
        raise UsageError(
            "--resume needs the --name of the run; train@RUN resumes any other"
        )
    for option, text in {"--name": options.label, "--note": options.note}.items():
        if text is not None and not 0 < len(text) <= MOST_LETTERS:
            raise UsageError(f"{option}: must have 1 to {MOST_LETTERS} letters")
    may_resume = mode.verb == "train" and (mode.run is not None or options.resume)
    if options.schedules is not None and not may_resume:
        raise UsageError(
            f"--schedules works only with train@RUN or --resume, not with {mode}"
        )
    if options.label == "latest" or set("/:~@") & set(options.label or ""):
        raise UsageError(
            f"--name {options.label}: RUN could not find it; use no / : ~ @"
        )
    if options.save and (mode.run or "").endswith(".zip"):
        raise UsageError("--save works with a run folder; a shared run is not changed")
    if options.render and options.video:
        raise UsageError("--render and --video exclude each other: remove one of them")
