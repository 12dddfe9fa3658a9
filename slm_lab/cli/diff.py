"""The command `slm-lab diff`: its output and exit code."""

import json
from pathlib import Path

from rich.box import SIMPLE_HEAD

from slm_lab.analysis.overlay.table import improvement_text, text_table
from slm_lab.cli.display.screen import print_line, print_table, wide_console
from slm_lab.experiment.runs.diff import diff


def diff_runs(a: str, b: str, data: Path) -> int:
    """Prints the differences between two runs. Raises LabError."""
    console = wide_console()
    found = diff(a, b, data)
    names = [name if len(set(found.names)) == 2 else f"{name} " for name in found.names]
    for title, rows in (("Spec", found.spec), ("Versions and machine", found.about)):
        cells = [(path, json.dumps(old), json.dumps(new)) for path, old, new in rows]
        if cells:
            print_table(console, title, ("key", *names), cells, left=names, box=SIMPLE_HEAD)
        else:
            print_line(console, f"{title}: no differences")
    if found.endings:
        table = text_table(found.endings)
        print_table(console, "Results", table.header, table.rows, box=SIMPLE_HEAD)
    if found.improvement is not None:
        print_line(console, improvement_text(found.improvement))
    return 0
