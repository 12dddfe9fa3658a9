"""The command `slm-lab probe`: its output."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console

from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import usable_cores
from slm_lab.core.text import count_text, significant
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import command_text
from slm_lab.studies.probe import (
    AS_IS,
    WORTH,
    Change,
    Probe,
    ProbeResult,
    Rate,
    ratios,
)
from slm_lab.studies.requirements import check_machine, check_spaces
from slm_lab.studies.resolve import resolve_names

HEADER = ("change", "frames/s", "ratio", "learns")
LEFT = ("change", "learns")
LEAST = 0.005
"""The smallest share that is shown."""


def probe(asked: RunSource) -> None:
    """Prints where the time of a training goes, and what makes it faster. Raises
    LabError."""
    source = resolve_names(asked)
    import_plugins(source.imports)
    as_json = source.output == "json"
    console = wide_console(quiet=as_json)
    with tempfile.TemporaryDirectory() as folder:
        study = Probe(source, Path(folder))
        spec = study.spec
        check_spaces(source.where(spec), spec)
        check_machine(source.where(spec), spec)
        what = f"{spec.name} and {count_text(len(study.changes), 'change')} of it"
        print_line(console, f"{what}: up to {study.most_runs} short runs …")
        result = _measure(console, study)
    best = result.best
    keys = {text.partition("=")[0]: text for text in (*source.sets, *best.sets)}
    options = [word for text in keys.values() for word in ("-s", text)]
    words = ["run", source.spec_file, spec.name, "train", *options]
    command = command_text(words, source.imports)
    _print_advice(console, best, command)
    if as_json:
        print_json(result.document())


def _measure(console: Console, study: Probe) -> ProbeResult:
    """Runs the probe, and prints what each part of it shows."""
    with console.status("") as status:
        speeds = study.survey(
            lambda number: status.update(f"run {number} of {study.most_runs}")
        )
    result = ProbeResult(study.spec, speeds)
    _print_base(console, result)
    _print_speeds(console, "Predicted", result.predicted)
    late = [change.text for change in study.changes if change not in speeds]
    if late:
        print_line(console, f"without a result in time: {'; '.join(late)}")
    promising = result.promising
    if not promising:
        return result
    with console.status(f"{len(promising) + 2} longer runs"):
        result = replace(result, verified=study.verify(promising))
    _print_speeds(console, "Measured", result.measured)
    return result


def _print_base(console: Console, result: ProbeResult) -> None:
    """Prints the speed of the spec as it is, and where its time goes."""
    base = result.speeds[AS_IS]
    sessions = count_text(result.spec.meta.num_sessions, "Session")
    cores = count_text(usable_cores(), "core")
    speed = f"{significant(base.frames_per_s)} frames/s"
    print_line(console, f"{speed}, {sessions} on {cores}; bound by {result.bound}")
    shares = sorted(base.shares.items(), key=lambda item: -item[1])
    shown = [f"{part} {share:.0%}" for part, share in shares if share >= LEAST]
    if shown:
        print_line(console, ", ".join(shown))


def _print_advice(console: Console, best: Change, command: str) -> None:
    if best == AS_IS:
        line = f"nothing to gain: no change is faster by {WORTH - 1:.0%}"
        print_line(console, line, "yellow")
        return
    mark = ""
    if not best.is_equivalent:
        mark = " (the agent learns differently)"
    print_line(console, f"try{mark}: {command}", "green")


def _print_speeds(console: Console, title: str, rates: Sequence[Rate]) -> None:
    rows = [
        (
            change.text,
            significant(frames_per_s),
            f"{ratio:.2f}",
            change.learns,
        )
        for (change, frames_per_s), ratio in zip(rates, ratios(rates), strict=True)
    ]
    print_table(
        console=console,
        title=title,
        header=HEADER,
        rows=rows,
        left=LEFT,
        box=SIMPLE_HEAD,
    )
