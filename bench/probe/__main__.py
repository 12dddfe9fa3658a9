"""Where the time of a training goes, and which keys make it faster on this machine.

python -m bench.probe SPEC [NAME] [-s KEY=VALUE]… [--import MODULE] [--json]

Takes one to three minutes. Trains in short turns, predicts what changes of keys would give, and
runs the best three. Close other programs before.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from bench.probe.changes import AS_IS, Change
from bench.probe.measurement import Probe, best, fastest
from slm_lab.analysis.table import count_text
from slm_lab.cli.display.screen import print_json, print_line, print_table, wide_console
from slm_lab.cli.options import AsJson, Imports, Sets, SpecName
from slm_lab.cli.shell.exit_codes import report_errors
from slm_lab.cli.shell.signals import sigterm_as_ctrl_c
from slm_lab.core.plugins import import_plugins
from slm_lab.core.process import usable_cores
from slm_lab.core.text import significant
from slm_lab.experiment.run import check_place, check_spaces
from slm_lab.experiment.source import RunSource
from slm_lab.experiment.trust import imports_of_file

if TYPE_CHECKING:
    from bench.probe.rehearsal import Times

HEADER = ("change", "frames/s", "ratio", "learns")


def probe(
    file: str, name: str | None, sets: Sequence[str], imports: Sequence[str], as_json: bool
) -> None:
    """Prints where the time of a training goes, and what makes it faster. Raises LabError."""
    modules = imports_of_file(file, imports, trust=False)
    import_plugins(modules)
    console = wide_console(quiet=as_json)
    with sigterm_as_ctrl_c(), tempfile.TemporaryDirectory() as folder:
        found = Probe(RunSource(file, name, sets=tuple(sets), imports=modules), Path(folder))
        spec = found.spec
        check_spaces(spec.name, spec)
        check_place(spec.name, spec)
        print_line(console, f"{spec.name} and {count_text(found.num_changes, 'change')} of it …")
        times = found.rehearse()
        base = found.run(AS_IS)
        _print_shares(console, base, times, base / found.rehearsed(AS_IS))
        predictions = found.predictions(base)
        rows = [
            (each.text, significant(speed), f"{speed / base:.2f}", each.learns)
            for each, speed in predictions.items()
        ]
        print_table(console, "Predicted", HEADER, rows, HEADER[::3], box=SIMPLE_HEAD)
        runs: dict[Change, float] = {}
        for each in best(predictions, base):
            runs[each] = found.run(each)
            ratio = f"{runs[each] / base:.2f}"
            print_line(console, f"measured {significant(runs[each])}, {ratio} times: {each.text}")
    chosen = fastest(runs, base)
    if chosen is None:
        print_line(console, Text("nothing to gain: no change is faster", "yellow"))
    else:
        command = f"slm-lab run {file} {spec.name} train {chosen.options}"
        print_line(console, Text(f"try: {command}", "green"))
    if as_json:
        print_json(
            {
                "frames_per_s": base,
                "shares": times[0].shares,
                "bound": times[0].bound,
                "changes": [
                    {
                        "set": each.sets,
                        "predicted": speed,
                        "measured": runs.get(each),
                        "learns": each.learns,
                    }
                    for each, speed in predictions.items()
                ],
                "set": () if chosen is None else chosen.sets,
            }
        )


def _print_shares(
    console: Console, frames_per_s: float, times: Sequence["Times"], efficiency: float
) -> None:
    workers, cores = count_text(len(times), "worker"), count_text(usable_cores(), "core")
    print_line(console, f"{significant(frames_per_s)} frames/s, {workers} on {cores}")
    shares = ", ".join(f"{part} {share:.0%}" for part, share in times[0].shares.items())
    print_line(console, f"a worker's loop: {shares}; bound by {times[0].bound}")
    print_line(console, f"rows, checkpoints, exchange, waiting: {max(1 - efficiency, 0):.0%} more")


def main(
    spec: str, name: SpecName = None, sets: Sets = None, imports: Imports = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Show where the time of a training goes, and which keys make it faster on this machine."""
    with report_errors():
        probe(spec, name, sets or (), imports or (), as_json)


if __name__ == "__main__":
    typer.run(main)
