"""`slm-lab`: the command line. Each command imports its own heavy modules."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Exit, Option
from typer.core import TyperGroup
from typing_extensions import override

from slm_lab import __version__
from slm_lab.cli import options
from slm_lab.cli.display.screen import console, print_line
from slm_lab.cli.shell import completion
from slm_lab.cli.shell.exit_codes import report_errors, run_guarded
from slm_lab.cli.shell.parent_program import set_log_level
from slm_lab.cli.spec import app as spec_app
from slm_lab.core.errors import LONGEST_VALUE, UsageError
from slm_lab.core.plugins import import_plugins, typed_modules
from slm_lab.core.process import importing, stop_signals_blocked
from slm_lab.records.run_source import RunSource
from slm_lab.spec.schema.messages import FOREIGN
from slm_lab.studies.run_mode import nearest_command, parse_words

_OF_RUN = {
    "track": "it is an option of slm-lab run and slm-lab fork; a benchmark and a "
    "comparison train one run after another, and keep tables and graphs of their own"
}
"""What the error says about options that benchmarks and comparisons lack."""


class _Commands(TyperGroup):
    """The commands. For a mode in place of one, the error shows the command it belongs
    to. Commands and options of SLM Lab, and words of other libraries, get the lab's
    own."""

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None:
            if word in FOREIGN:
                ctx.fail(f"No such command '{word}': {FOREIGN[word]}")
            shown = [
                name for name, command in self.commands.items() if not command.hidden
            ]
            message = f"No such command '{word:.{LONGEST_VALUE}}'."
            nearest = nearest_command(word, shown)
            if nearest:
                message = f"{message} Did you mean 'slm-lab {nearest}'?"
            ctx.fail(message)
        return super().resolve_command(ctx, args)

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if type(error).__name__ == "NoSuchOption":  # typer does not export it
                option = error.option_name  # type: ignore[attr-defined]
                context = error.ctx or ctx  # type: ignore[attr-defined]
                word = option
                if option not in FOREIGN:
                    word = option.lstrip("-").replace("-", "_")
                texts = {**FOREIGN, **_OF_RUN}
                if word in texts:
                    context.fail(f"No such option '{option}': {texts[word]}")
            raise


app = typer.Typer(
    name="slm-lab",
    cls=_Commands,
    help="Deep reinforcement learning from one JSON spec: run it, resume it, read its "
    "graphs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(spec_app, name="spec")
DEMO = ("demo", "ppo_cartpole")
"""The spec file and name of a run without any."""
LONGEST_COMMAND = 2000
"""The most letters of the command that the files of a plot hold."""
_EPILOG = (
    "Exit codes: 0 success, 1 failed, 2 bad input, 3 no such run, 130 stopped by "
    "Ctrl-C, SIGTERM or SIGHUP."
)

_saved = partial(Option, rich_help_panel="Options of eval@RUN and enjoy@RUN")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"slm-lab {__version__}")
        raise Exit


def _command(function: Callable[..., None]) -> Callable[..., None]:
    return app.command(epilog=_EPILOG)(report_errors()(function))


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", help="Show the version.", callback=_show_version)
    ] = False,
) -> None:
    pass


@app.command(epilog=_EPILOG)
def run(
    spec_file: Annotated[
        str | None,
        Argument(
            help="A JSON or YAML file, the name of a shipped one (slm-lab spec list), "
            "or an algorithm: ppo, a2c, dqn, pqn, sac, crossq. Default: the demo, or "
            "the run's own spec.",
            autocompletion=completion.run_words,
        ),
    ] = None,
    spec_name: Annotated[
        str | None,
        Argument(help=options.RUN_NAME_HELP, autocompletion=completion.run_words),
    ] = None,
    mode: Annotated[
        str | None,
        Argument(
            help="Default: train. Or dev: some training events, with checks; "
            "train@RUN: resume; search: trials over the search block; "
            "search@RUN: resume; eval@RUN: a table of greedy episodes of the "
            "saved agents; enjoy@RUN: show some. RUN is a folder, a beginning "
            "of its name, the name of a spec (its latest run), latest or "
            "latest~2; eval@ and enjoy@ also take FILE.zip.",
            autocompletion=completion.run_words,
        ),
    ] = None,
    sets: options.Sets = options.NONE,
    seed: Annotated[
        int | None, Option(min=0, help="Root seed: meta.random_seed.")
    ] = None,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    cluster: Annotated[
        str | None,
        Option(metavar="ADDRESS", help="A Ray cluster, or auto: meta.cluster."),
    ] = None,
    episodes: Annotated[
        int | None,
        _saved(min=1, help="eval@: of each Session (100); enjoy@: to show (5)."),
    ] = None,
    which: Annotated[
        Literal["best", "latest"] | None,
        _saved(help="The agent, also of --init-from. Default: best, else latest."),
    ] = None,
    session: Annotated[
        int | None,
        _saved(
            min=0,
            help="One Session. Default: all (eval@), the first (enjoy@, --init-from).",
        ),
    ] = None,
    render: Annotated[bool, _saved("--render", help="enjoy@: in a window.")] = False,
    video: Annotated[
        bool, _saved("--video", help="enjoy@: each episode as an mp4 here.")
    ] = False,
    save: Annotated[
        bool, _saved("--save", help="eval@: keep the numbers, in info/.")
    ] = False,
    keep: Annotated[
        int | None, Option(min=1, help="search: best trials that keep checkpoints.")
    ] = None,
    label: options.Label = None,
    note: options.Note = None,
    tags: options.Tags = options.NONE,
    track: options.Track = options.NONE,
    schedules: Annotated[
        Literal["stretch", "hold"] | None,
        Option(
            help="train@RUN with another env.max_frame: schedules that end before it "
            "keep their shares of it (stretch) or their frames (hold)."
        ),
    ] = None,
    init_from: Annotated[
        str | None,
        Option(
            metavar="RUN",
            help="Begin with the weights and normalisers of a run, named as for eval@.",
            autocompletion=completion.runs,
        ),
    ] = None,
    init_parts: Annotated[
        list[str],
        Option(
            "--init-part",
            metavar="PART",
            help="Take only net, net.body, critic, … of --init-from. Repeatable.",
        ),
    ] = options.NONE,
    resume: Annotated[
        bool,
        Option(
            "--resume",
            help="Resume the run that --name names; begin it if there is none.",
        ),
    ] = False,
    as_json: options.AsJson = False,
    all_metrics: options.AllMetrics = False,
    quiet: options.Quiet = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"] | None,
        Option(help="Lowest level of log lines. Default: info.", case_sensitive=False),
    ] = None,
    notify: options.Notify = None,
) -> None:
    """Train a spec, by default PPO on CartPole; or search over it; or evaluate a run's
    agents."""
    with report_errors(notify) as caller:
        from slm_lab.cli.dispatch import execute

        set_log_level(log_level)
        words = parse_words(
            [word for word in (spec_file, spec_name, mode) if word is not None]
        )
        if words.spec_file is None and words.mode.run is None:
            words = words._replace(spec_file=DEMO[0], spec_name=DEMO[1])
        if cluster:
            sets = [*sets, f"meta.cluster={cluster}"]
        source = RunSource(
            spec_file=words.spec_file or "",
            spec_name=words.spec_name,
            run=words.mode.run,
            sets=tuple(sets),
            seed=seed,
            data_dir=data,
            imports=tuple(imports),
            trust=trust,
            label=label,
            resume=resume,
            note=note,
            tags=tuple(tags),
            track=tuple(track),
            init_from=init_from,
            init_parts=tuple(init_parts),
            schedules=schedules,
            keep=keep,
            which=which,
            session=session,
            episodes=episodes,
            render=render,
            video=video,
            save=save,
            output=options.output_form(as_json, quiet),
            all_metrics=all_metrics,
        )
        raise Exit(execute(words.mode.verb, source, caller))


@app.command(epilog=_EPILOG)
def fork(
    run: Annotated[
        str,
        Argument(
            metavar="RUN",
            help="A folder, a beginning of its name, the name of a spec or of --name, "
            "latest or latest~2.",
            autocompletion=completion.runs,
        ),
    ],
    frame: Annotated[
        int | None,
        Option(
            min=0,
            help="Where the fork leaves RUN: the frame of the whole training; 0: its "
            "start. Default: the newest checkpoint.",
        ),
    ] = None,
    sets: options.Sets = options.NONE,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    label: options.Label = None,
    note: options.Note = None,
    tags: options.Tags = options.NONE,
    track: options.Track = options.NONE,
    schedules: Annotated[
        Literal["stretch", "hold"] | None,
        Option(
            help="With another env.max_frame: schedules that end before it keep their "
            "shares of it (stretch) or their frames (hold)."
        ),
    ] = None,
    as_json: options.AsJson = False,
    all_metrics: options.AllMetrics = False,
    quiet: options.Quiet = False,
    notify: options.Notify = None,
) -> None:
    """Continue a run's state from a frame in a new run, with other keys. Without a
    change the fork repeats the run."""
    with report_errors(notify) as caller:
        from slm_lab.cli.dispatch import execute

        source = RunSource(
            fork=run,
            frame=frame,
            sets=tuple(sets),
            data_dir=data,
            imports=tuple(imports),
            trust=trust,
            label=label,
            note=note,
            tags=tuple(tags),
            track=tuple(track),
            schedules=schedules,
            output=options.output_form(as_json, quiet),
            all_metrics=all_metrics,
        )
        raise Exit(execute("train", source, caller))


@_command
def new(
    env: Annotated[
        str, Argument(metavar="ENV", help="CartPole-v1, or my_env:MyEnv-v0.")
    ],
    algorithm: Annotated[
        str,
        Option(
            "--algo",
            metavar="WORD",
            help="ppo, a2c, dqn, pqn, rainbow, sac, crossq, …; ddqn for Atari.",
        ),
    ] = "ppo",
    out: Annotated[
        Path | None, Option(help="The file. Default: {algo}_{env}.yaml.")
    ] = None,
    sets: options.Sets = options.NONE,
    imports: options.Imports = options.NONE,
) -> None:
    """Check an environment, and write a commented spec for it."""
    modules = tuple(dict.fromkeys([*imports, *typed_modules(env)]))
    import_plugins(modules)
    from slm_lab.cli.new import write_new

    write_new(
        env_id=env,
        algorithm=algorithm.lower(),
        out=out,
        sets=tuple(sets),
        imports=modules,
    )


@_command
def example(
    name: Annotated[
        str | None, Argument(help="Default: list them.", metavar="NAME")
    ] = None,
    out: Annotated[Path | None, Option(help="The copy. Default: NAME here.")] = None,
) -> None:
    """Copy an example: a package that adds parts, a script, the benches."""
    from slm_lab.cli.example import copy_example, list_examples

    if name is None:
        list_examples()
    else:
        copy_example(name, out)


@app.command(epilog=_EPILOG)
def compare(
    spec_file: Annotated[
        str | None,
        Argument(
            help="A spec file, a shipped name, or an algorithm before an environment.",
            autocompletion=completion.spec_files,
        ),
    ] = None,
    spec_name: options.SpecName = None,
    modes: Annotated[
        str | None,
        Option(metavar="WORD,…", help="Modes to compare with false. Default: all."),
    ] = None,
    workers: Annotated[
        str | None,
        Option(metavar="N,…", help="Workers or actors. Default: 1, 2, 4, … cores."),
    ] = None,
    threshold: Annotated[
        float | None,
        Option(metavar="R", help="Report frames and seconds to this return."),
    ] = None,
    seeds: Annotated[
        int | None, Option(min=1, help="Seeds of each variant; 3.")
    ] = None,
    sets: options.Sets = options.NONE,
    seed: options.FirstSeed = None,
    data: Annotated[Path, Option(help="Parent folder of the comparison.")] = Path(
        "data"
    ),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    resume: Annotated[
        Path | None, Option(metavar="FOLDER", help="Resume a comparison.")
    ] = None,
    as_json: options.AsJson = False,
    notify: options.Notify = None,
) -> None:
    """Train a spec in one process and in the modes of parallel training, and compare
    them.

    Every variant has the same total of frames. Graphs and tables are in the printed
    folder."""
    with report_errors(notify) as caller:
        with stop_signals_blocked(), importing():
            from slm_lab.cli.compare import compare as execute
            from slm_lab.cli.compare import parse_counts, parse_list
            from slm_lab.studies.compare.modes import CompareRequest

        source = RunSource(
            spec_file=spec_file or "",
            spec_name=spec_name,
            run=None if resume is None else str(resume),
            sets=tuple(sets),
            seed=seed,
            data_dir=data,
            imports=tuple(imports),
            trust=trust,
            output=options.output_form(as_json),
        )
        request = CompareRequest(
            source=source,
            modes=parse_list(modes, "--modes"),
            workers=parse_counts(workers),
            seeds=seeds or 0,
            threshold=threshold,
        )
        raise Exit(execute(request, caller))


@app.command(epilog=_EPILOG)
def ab(
    words: Annotated[
        # None, as no release of click before 8.3 takes a default of several words
        list[str] | None,
        Argument(
            metavar="A B",
            help="Each a spec file or shipped name, FILE NAME, or ALGO ENV; two of one "
            "file are FILE NAME NAME. B is left out where -s makes it of A.",
            autocompletion=completion.ab_words,
        ),
    ] = None,
    sets: Annotated[
        list[str],
        options.setting("--set", "-s", help="A change of B alone. Repeatable."),
    ] = options.NONE,
    both: Annotated[
        list[str],
        options.setting(help="A change of A and of B. Repeatable."),
    ] = options.NONE,
    smallest: Annotated[
        float | None,
        Option(
            metavar="R",
            help="A difference of returns that does not matter: end once it is less.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, Option(min=1, help="The most seeds of each; 20.")
    ] = None,
    confidence: Annotated[
        float | None, Option(metavar="SHARE", help="0.95 if left out.")
    ] = None,
    seed: options.FirstSeed = None,
    data: Annotated[Path, Option(help="Parent folder of the test.")] = Path("data"),
    jobs: Annotated[
        int | None, Option(min=1, help="Cores to use. Default: all.")
    ] = None,
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    resume: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Resume a test; --seeds may allow more."),
    ] = None,
    as_json: options.AsJson = False,
    notify: options.Notify = None,
) -> None:
    """Train one more seed of A and of B until it is known which is better, and by how
    much.

    It may be looked at, stopped and resumed at any time: the answer stays right."""
    with report_errors(notify) as caller:
        with stop_signals_blocked(), importing():
            from slm_lab.cli.ab import ab as execute
            from slm_lab.studies.ab.plan import AbRequest
            from slm_lab.studies.resolve import specs_of

        of_a = RunSource(
            run=None if resume is None else str(resume),
            sets=tuple(both),
            seed=seed,
            data_dir=data,
            imports=tuple(imports),
            trust=trust,
            output=options.output_form(as_json),
        )
        of_b = replace(of_a, sets=(*both, *sets))
        if words or resume is None:
            a, b = specs_of(words or ())
            of_a = replace(of_a, spec_file=a[0], spec_name=a[1])
            of_b = replace(of_b, spec_file=b[0], spec_name=b[1])
        request = AbRequest(
            a=of_a,
            b=of_b,
            seeds=seeds,
            smallest=smallest,
            confidence=confidence,
            jobs=jobs,
        )
        raise Exit(execute(request, caller))


@app.command(epilog=_EPILOG)
def benchmark(
    suite: Annotated[
        str | None,
        Argument(help="A YAML file, or the name of a shipped suite.", metavar="SUITE"),
    ] = None,
    report: Annotated[
        bool,
        Option("--report", help="Write tables and graphs of the results in --data."),
    ] = False,
    gate: Annotated[
        bool,
        Option(
            "--gate",
            help="End with 1 if a training falls below the bound of its row. Trains a "
            "short suite afresh, or judges --data.",
        ),
    ] = False,
    data: Annotated[
        Path | None, Option(help="Folder of results. Default: benchmark.")
    ] = None,
    out: Annotated[Path, Option(help="--report: folder of tables and graphs.")] = Path(
        "report"
    ),
    runs: Annotated[Path, Option(help="Folder of run folders.")] = Path("data"),
    jobs: Annotated[
        int | None,
        Option(min=1, help="Cores to use. Default: all. Speeds need 1."),
    ] = None,
    only: Annotated[
        list[str],
        Option(metavar="TEXT", help="Rows with this in their name. Repeatable."),
    ] = options.NONE,
    sets: options.Sets = options.NONE,
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    as_json: options.AsJson = False,
    notify: options.Notify = None,
) -> None:
    """Train the rows of a suite with several seeds, and judge their results.

    The same command continues after any end: what has a result is not trained again."""
    with report_errors(notify) as caller:
        with stop_signals_blocked(), importing():
            from slm_lab.cli import benchmark as command
            from slm_lab.studies.benchmark.prepare import BenchmarkRequest

        if report and (gate or suite is not None):
            raise UsageError("--report reads all results in --data: leave out the rest")
        if (report or (gate and data)) and (only or sets or jobs):
            raise UsageError(
                "--only, --jobs and -s are about trainings, and stored results are "
                "read whole: leave them out"
            )
        results = data or Path("benchmark")
        if report:
            raise Exit(command.report(results, out, as_json))
        request = BenchmarkRequest(
            suite=suite,
            source=RunSource(
                sets=tuple(sets),
                data_dir=runs,
                imports=tuple(imports),
                trust=trust,
                output=options.output_form(as_json),
            ),
            data=results,
            jobs=jobs,
            only=tuple(only),
        )
        if gate:
            raise Exit(command.gate(request, data))
        raise Exit(command.benchmark(request, caller))


@_command
def plot(
    folders: Annotated[
        list[str],
        Argument(
            metavar="FOLDER",
            help="Run folders, or their names in --data; FOLDER:tN for one trial of a "
            "search; or the folder of a comparison, for all runs in it.",
            autocompletion=completion.runs,
        ),
    ],
    y: Annotated[
        str,
        Option(
            "--y",
            metavar="WORD",
            help="mean_returns_ma (the moving average), mean_returns, "
            "eval_mean_returns, or any column of the rows.",
        ),
    ] = "mean_returns_ma",
    x: Annotated[
        str, Option("--x", metavar="WORD", help="frames, total_frames or wall_t.")
    ] = "frames",
    statistic: Annotated[
        str,
        Option(
            metavar="WORD",
            help="Over several seeds: mean, with one standard deviation; or iqm, the "
            "interquartile mean with a 95 % bootstrap interval.",
        ),
    ] = "mean",
    out: Annotated[
        Path, Option(help="Folder for the graph, or a .pdf, .svg or .png file.")
    ] = Path("plots"),
    width: Annotated[
        str | None,
        Option(metavar="LENGTH", help="Width of a file: 3.4in, 8.6cm. Default: 5.5in."),
    ] = None,
    label: Annotated[
        list[str],
        Option(metavar="TEXT", help="The name of a curve, for each in order."),
    ] = options.NONE,
    title: Annotated[
        str | None, Option(metavar="TEXT", help='Title; "none" omits it.')
    ] = None,
    x_label: Annotated[
        str | None, Option("--xlabel", metavar="TEXT", help="The name of the x axis.")
    ] = None,
    y_label: Annotated[
        str | None, Option("--ylabel", metavar="TEXT", help="The name of the y axis.")
    ] = None,
    hline: Annotated[
        list[str], Option(metavar="[NAME=]Y", help="A dashed line.")
    ] = options.NONE,
    smooth: Annotated[
        float | None,
        Option(metavar="PERCENT", help="Window of the mean, in % of the frames."),
    ] = None,
    log_y: Annotated[bool, Option("--log-y", help="A logarithmic y axis.")] = False,
    by: Annotated[
        str | None, Option(metavar="env", help="A panel for each environment.")
    ] = None,
    group_by: Annotated[
        str | None,
        Option(
            metavar="KEY",
            help="A curve for each value of a key of the spec, such as lr: the mean "
            "of all runs with it.",
        ),
    ] = None,
    tags: Annotated[
        list[str],
        Option("--tag", metavar="TAG", help="Only runs with this tag. Repeatable."),
    ] = options.NONE,
    normalise: Annotated[
        list[str],
        Option(
            metavar="[ENV=]SCORE",
            help="Returns with 0 for the Random agent and 1 for a score; several "
            "environments are joined.",
        ),
    ] = options.NONE,
    table: Annotated[
        str | None,
        Option(metavar="FORM", help="Print only the table, as csv or latex."),
    ] = None,
    standalone: Annotated[
        bool,
        Option("--standalone", help="A page that needs no other file (5 MB), to mail."),
    ] = False,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    as_json: options.AsJson = False,
) -> None:
    """Overlay runs in one graph, finished or still training, and print their final
    returns.

    Runs whose specs differ only in the seed are seeds of one curve."""
    from slm_lab.charts.request import PlotRequest
    from slm_lab.cli.plot import plot_runs

    import_plugins(imports)
    command = shlex.join(["slm-lab", *sys.argv[1:]])
    request = PlotRequest(
        folders=tuple(folders),
        y=y,
        x=x,
        statistic=statistic,
        out=out,
        data_dir=data,
        standalone=standalone,
        width=width,
        labels=tuple(label),
        title=title,
        levels=tuple(hline),
        smooth=smooth,
        log_y=log_y,
        by=by,
        normalise=tuple(normalise),
        command=command[:LONGEST_COMMAND],
        x_label=x_label,
        y_label=y_label,
        tags=tuple(tags),
        group_by=group_by,
    )
    plot_runs(request, as_json, table)


@_command
def runs(
    patterns: Annotated[
        # None, as no release of click before 8.3 takes a default of several words
        list[str] | None,
        Argument(
            metavar="PATTERN",
            help="Part of a folder, name or environment; * stands for any text. Or "
            "paths, as a shell makes of data/*.",
        ),
    ] = None,
    sort: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="final_return, frames, env, bytes, … Default: started.",
        ),
    ] = None,
    status: Annotated[
        str | None, Option(metavar="WORD", help="done, failed, stopped, …")
    ] = None,
    tags: Annotated[
        list[str],
        Option(
            "--tag",
            metavar="[NAME=]TAG",
            help="List runs with a tag; with NAME= (any RUN), add it to that run. "
            "Repeatable.",
        ),
    ] = options.NONE,
    untag: Annotated[
        list[str],
        Option(metavar="NAME=TAG", help="Remove a tag from a run. Repeatable."),
    ] = options.NONE,
    notes: Annotated[
        list[str],
        Option(
            "--note",
            metavar="NAME=TEXT",
            help="Replace the note of a run; without TEXT, remove it. Repeatable.",
        ),
    ] = options.NONE,
    data: options.Data = Path("data"),
    as_json: options.AsJson = False,
) -> None:
    """List runs: what was changed, status, frames and returns; or tag them."""
    from slm_lab.cli.runs import change_annotations, list_runs

    added = [text for text in tags if "=" in text]
    if added or untag or notes:
        if patterns or sort or status or as_json or len(added) < len(tags):
            raise UsageError(
                "--tag NAME=TAG, --untag and --note change runs: list them in a "
                "second command"
            )
        change_annotations(added, untag, notes, data)
        return
    list_runs(
        patterns=tuple(patterns or ()),
        sort=sort,
        status=status,
        tags=tuple(tags),
        data=data,
        as_json=as_json,
    )


for _word in ("list", "plot-list"):  # the words of SLM Lab
    app.command(_word, hidden=True)(runs)


@_command
def diff(
    a: options.SavedRunName, b: options.SavedRunName, data: options.Data = Path("data")
) -> None:
    """Compare two runs: their specs, versions, machines and results."""
    from slm_lab.cli.runs import diff_runs

    diff_runs(a, b, data)


@_command
def tidy(
    dev: Annotated[bool, Option("--dev", help="Select runs of the mode dev.")] = False,
    failed: Annotated[bool, Option("--failed", help="Select failed runs.")] = False,
    older: Annotated[
        str | None, Option(metavar="AGE", help="Older than 12h, 30d, 8w.")
    ] = None,
    yes: Annotated[bool, Option("--yes", help="Delete the selected runs.")] = False,
    data: options.Data = Path("data"),
) -> None:
    """Show runs to delete; with --yes, delete them. Never touches a run that is
    training."""
    from slm_lab.cli.runs import tidy_runs

    raise Exit(tidy_runs(data=data, dev=dev, failed=failed, older=older, yes=yes))


@_command
def watch(
    run: options.SavedRunName = "latest", data: options.Data = Path("data")
) -> None:
    """Show the live table of a run that another process trains. Ctrl-C does not stop
    the run."""
    from slm_lab.cli.watch import watch as execute

    raise Exit(execute(run, data))


@_command
def board(
    data: Annotated[
        Path, Argument(metavar="DATA", help="Folder of run folders.")
    ] = Path("data"),
    port: Annotated[
        int | None, Option(metavar="N", help="Default: 8050, or a free one.")
    ] = None,
    no_open: Annotated[bool, Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Show all runs on one live page in the browser. Ctrl-C ends it. It never changes a
    run."""
    from slm_lab.cli.board import show_board

    show_board(data, port, no_open)


@app.command(epilog=_EPILOG)
def doctor(
    run: Annotated[
        str | None,
        Argument(
            metavar="RUN",
            help="A run; without one, this machine.",
            autocompletion=completion.runs,
        ),
    ] = None,
    treat: Annotated[
        bool,
        Option(
            "--treat",
            help="Try each remedy in a short fork of the run, and report what cures "
            "it.",
        ),
    ] = False,
    frames: Annotated[
        int | None,
        Option(
            min=1,
            help="--treat: total frames of each remedy. Default: half of the run's, "
            "at least 10,000.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, Option(min=1, help="--treat: cores to use. Default: all.")
    ] = None,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    as_json: options.AsJson = False,
) -> None:
    """Diagnose a run: problems, evidence, one thing to try. Without a run, examine the
    machine."""
    with report_errors() as caller:
        if not treat:
            if frames is not None or jobs is not None:
                raise UsageError("--frames and --jobs work only with --treat")
            from slm_lab.cli.doctor import examine_machine, examine_run

            if run is None:
                examine_machine(data, as_json)
            else:
                examine_run(
                    run=run, data=data, imports=imports, trust=trust, as_json=as_json
                )
            return
        if run is None:
            raise UsageError("--treat needs a run: slm-lab doctor RUN --treat")
        with stop_signals_blocked(), importing():
            from slm_lab.cli import treat as command
            from slm_lab.studies.treat.plan import TreatRequest

        source = RunSource(
            fork=run,
            data_dir=data,
            imports=tuple(imports),
            trust=trust,
            output=options.output_form(as_json),
        )
        raise Exit(command.treat(TreatRequest(source, frames, jobs), caller))


@_command
def probe(
    spec_file: options.SpecFile,
    spec_name: options.SpecName = None,
    sets: options.Sets = options.NONE,
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
    as_json: options.AsJson = False,
) -> None:
    """Show where the time of a training goes, and which keys make it faster on this
    machine.

    Takes one to four minutes of short runs of the spec and of changes. Close other
    programs."""
    from slm_lab.cli.probe import probe as execute

    execute(
        RunSource(
            spec_file=spec_file,
            spec_name=spec_name,
            sets=tuple(sets),
            imports=tuple(imports),
            trust=trust,
            output=options.output_form(as_json),
        )
    )


@_command
def export(
    run: options.SavedRunName,
    to: Annotated[
        Literal["onnx", "pt2", "zip"],
        Option(
            help="ONNX, a program of torch.export, or a run to share: eval@FILE.zip."
        ),
    ],
    out: Annotated[
        Path | None,
        Option(help="The file. Default: named after the run, in this folder."),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="Replace a file that exists.")
    ] = False,
    which: options.WhichAgent = None,
    session: options.OneSession = None,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
) -> None:
    """Write the agent of a run to one file: a graph for programs without this lab, or
    an archive.

    A graph holds normalisation and action scales, and is compared with the agent
    first."""
    from slm_lab.export.export import export_agent, file_name
    from slm_lab.records.playable_run import find_agent

    saved, agent = find_agent(
        run=run,
        which=which,
        session=session,
        data_dir=data,
        imports=imports,
        trust=trust,
    )
    path = out or Path(file_name(saved, agent, to))
    if path.suffix != f".{to}":
        raise UsageError(f"--out {path}: must end in .{to}")
    difference = export_agent(saved, agent, path, force)
    screen = console()
    kind = f"{saved.spec.agent.algorithm.name} on {saved.spec.env.name}"
    place = f"{agent.which} at frame {agent.frame:,}"
    print_line(screen, f"{kind}, Session {agent.session}, {place}: {path}")
    if difference is not None:
        gaps = f"actions {difference.action:.2g}, of values {difference.values:.2g}"
        print_line(
            screen,
            f"{difference.observations} observations: largest difference of {gaps}",
        )


@_command
def push(
    run: options.SavedRunName,
    repo: options.Repository,
    private: Annotated[
        bool, Option("--private", help="Visible to its members only.")
    ] = False,
    which: options.WhichAgent = None,
    session: options.OneSession = None,
    data: options.Data = Path("data"),
    imports: options.Imports = options.NONE,
    trust: options.Trust = False,
) -> None:
    """Share the agent of a run on the Hugging Face Hub, as export --to zip writes
    it."""
    from slm_lab.export.hub import push as upload
    from slm_lab.records.playable_run import find_agent

    saved, agent = find_agent(
        run=run,
        which=which,
        session=session,
        data_dir=data,
        imports=imports,
        trust=trust,
    )
    print_line(console(), upload(saved, agent, repo, private))


@_command
def pull(
    repo: options.Repository,
    out: Annotated[Path | None, Option(help="The file. Default: NAME.zip.")] = None,
) -> None:
    """Download a shared run from the Hugging Face Hub, for eval@FILE.zip and
    enjoy@FILE.zip."""
    from slm_lab.export.hub import pull as download

    path = download(repo, out)
    print_line(console(), f"{path}: slm-lab run eval@{path}")


def main() -> None:
    """The entry point of `slm-lab`."""
    run_guarded(app)


def run_lab() -> None:
    """The entry point of `run_lab.py`, SLM Lab's name for `slm-lab run`."""
    run_guarded(lambda: app(["run", *sys.argv[1:]], prog_name="run_lab.py"))


def retro() -> None:
    """The entry point of `slm-retro`, a command of SLM Lab."""
    sys.exit(f"slm-retro: {FOREIGN['slm-retro']}")
