"""The command `slm-lab probe`: its output."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.core.plugins import import_plugins, typed_modules
from slm_lab.core.process import usable_cores
from slm_lab.core.text import count_text, significant
from slm_lab.recipes.recipe import named
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import command_text, imports_of_file
from slm_lab.studies.probe import (
    AS_IS,
    BEST,
    WORTH,
    Change,
    Probe,
    bound,
    gains,
    in_order,
)
from slm_lab.studies.run import check_machine, check_spaces

HEADER, LEFT = ("change", "frames/s", "ratio", "learns"), ("change", "learns")
LEAST = 0.005
"""The smallest share that is shown."""


def probe(
    file: str,
    name: str | None,
    sets: Sequence[str],
    imports: Sequence[str],
    trust: bool,
    as_json: bool,
) -> None:
    """Prints where the time of a training goes, and what makes it faster. Raises
    LabError."""
    typed = (*imports, *typed_modules(name or ""))
    file, name, sets = named(file, name, sets, typed)
    modules = imports_of_file(file, typed, trust)
    import_plugins(modules)
    console = wide_console(quiet=as_json)
    with tempfile.TemporaryDirectory() as folder:
        source = RunSource(file, name, sets=tuple(sets), imports=modules)
        found = Probe(source, Path(folder))
        spec, count = found.spec, len(found.changes)
        most = count + 2 + min(count, BEST)
        check_spaces(source.where(spec), spec)
        check_machine(source.where(spec), spec)
        what = f"{spec.name} and {count_text(count, 'change')} of it"
        print_line(console, f"{what}: up to {most} short runs …")
        with console.status("") as status:
            speeds = found.survey(
                lambda number: status.update(f"run {number} of {most}")
            )
        base, held_by = speeds[AS_IS], bound(spec, speeds)
        sessions = count_text(spec.meta.num_sessions, "Session")
        on = f"{sessions} on {count_text(usable_cores(), 'core')}"
        print_line(
            console,
            f"{significant(base.frames_per_s)} frames/s, {on}; bound by {held_by}",
        )
        shares = sorted(base.shares.items(), key=lambda each: -each[1])
        if shown := [f"{part} {share:.0%}" for part, share in shares if share >= LEAST]:
            print_line(console, ", ".join(shown))
        predicted = in_order(speeds)
        _print_speeds(console, "Predicted", predicted)
        if left := [each.text for each in found.changes if each not in speeds]:
            print_line(console, f"without a result in time: {'; '.join(left)}")
        faster, measured = gains(predicted)[:BEST], predicted[:1]
        if faster:
            with console.status(f"{len(faster) + 2} longer runs"):
                measured = in_order(found.verify(faster))
            _print_speeds(console, "Measured", measured)
    best = next(iter(gains(measured)), AS_IS)
    if best == AS_IS:
        line = f"nothing to gain: no change is faster by {WORTH - 1:.0%}"
        print_line(console, Text(line, "yellow"))
    else:
        keys = {each.partition("=")[0]: each for each in (*sets, *best.sets)}
        options = [word for each in keys.values() for word in ("-s", each)]
        command = command_text(["run", file, spec.name, "train", *options], modules)
        mark = "" if best.learns == "alike" else " (the agent learns differently)"
        print_line(console, Text(f"try{mark}: {command}", "green"))
    if as_json:
        rates = dict(measured) if faster else {}
        changes = [
            {
                "set": it.sets,
                "predicted": speed,
                "measured": rates.get(it),
                "learns": it.learns,
            }
            for it, speed in predicted[1:]
        ]
        about = {**base._asdict(), "measured": rates.get(AS_IS), "bound": held_by}
        print_json(
            {**about, "changes": changes, "set": best.sets, "learns": best.learns}
        )


def _print_speeds(
    console: Console, title: str, found: Sequence[tuple[Change, float]]
) -> None:
    base = found[0][1]
    rows = [
        (it.text, significant(rate), f"{rate / base:.2f}", it.learns)
        for it, rate in found
    ]
    print_table(console, title, HEADER, rows, LEFT, box=SIMPLE_HEAD)
