"""The command `slm-lab probe`: its output."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.text import Text

from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.cli.shell.signals import stopped_like_ctrl_c
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import usable_cores
from slm_lab.core.text import count_text, significant
from slm_lab.experiment.probe import AS_IS, BEST, LONG_SECONDS, Probe, bound, gains, in_order
from slm_lab.experiment.run import check_machine, check_spaces
from slm_lab.experiment.run_source import RunSource
from slm_lab.experiment.trust import command_text, imports_of_file

HEADER = ("change", "frames/s", "ratio", "learns")


def probe(
    file: str,
    name: str | None,
    sets: Sequence[str],
    imports: Sequence[str],
    trust: bool,
    as_json: bool,
) -> None:
    """Prints where the time of a training goes, and what makes it faster. Raises LabError."""
    modules = imports_of_file(file, imports, trust)
    import_plugins(modules)
    console = wide_console(quiet=as_json)
    with stopped_like_ctrl_c(), tempfile.TemporaryDirectory() as folder:
        source = RunSource(file, name, sets=tuple(sets), imports=modules)
        found = Probe(source, Path(folder))
        spec, runs = found.spec, len(found.changes) + 2
        check_spaces(source.where(spec), spec)
        check_machine(source.where(spec), spec)
        what = f"{spec.name} and {count_text(len(found.changes), 'change')} of it"
        print_line(console, f"{what}: {runs} short runs …")
        with console.status("") as status:
            speeds = found.survey(lambda number: status.update(f"run {number} of {runs}"))
        base, held_by = speeds[AS_IS], bound(spec, speeds)
        sessions = count_text(spec.meta.num_sessions, "Session")
        on = f"{sessions} on {count_text(usable_cores(), 'core')}"
        print_line(console, f"{significant(base.frames_per_s)} frames/s, {on}; bound by {held_by}")
        shares = sorted(base.shares.items(), key=lambda each: -each[1])
        if shares:
            print_line(console, ", ".join(f"{part} {share:.0%}" for part, share in shares))
        predicted = in_order(speeds)
        rows = [
            (each.text, significant(speed), f"{speed / base.frames_per_s:.2f}", each.learns)
            for each, speed in predicted
        ]
        print_table(console, "Predicted", HEADER, rows, HEADER[::3], box=SIMPLE_HEAD)
        measured = {}
        faster = gains(predicted, base.frames_per_s)[:BEST]
        for each in [AS_IS, *faster] if faster else ():  # an environment may get slower meanwhile
            measured[each] = found.run(each, LONG_SECONDS)
            speed = measured[each].frames_per_s
            what = f"{speed / measured[AS_IS].frames_per_s:.2f} times: {each.text or 'as it is'}"
            print_line(console, f"measured {significant(speed)}, {what}")
    reference = measured.get(AS_IS, base).frames_per_s
    best = next(iter(gains(in_order(measured), reference)), AS_IS)
    if best == AS_IS:
        print_line(console, Text("nothing to gain: no change is faster", "yellow"))
    else:
        keys = {each.partition("=")[0]: each for each in (*sets, *best.sets)}
        options = [word for each in keys.values() for word in ("-s", each)]
        command = command_text(["run", file, spec.name, "train", *options], modules)
        print_line(console, Text(f"try: {command}", "green"))
    if as_json:
        rates = {each: run.frames_per_s for each, run in measured.items()}
        changes = [
            {"set": it.sets, "predicted": speed, "measured": rates.get(it), "learns": it.learns}
            for it, speed in predicted
        ]
        about = {**base._asdict(), "measured": rates.get(AS_IS), "bound": held_by}
        print_json({**about, "changes": changes, "set": best.sets})
