"""What a table of runs shows of each, as text."""

import re

from slm_lab.core.text import duration_text, significant, with_spread
from slm_lab.experiment.runs.summary import RunSummary
from slm_lab.storage.run_dir import sets_env


def size_text(count: float) -> str:
    """Bytes as "12.3 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def cells(run: RunSummary) -> dict[str, str]:
    """The texts of a run; empty where they are unknown. What was set on the command line is named
    by the last parts of the keys, after the label and note."""
    changes = (re.sub(r"^[^=]*\.", "", text) for text in run.changed if not sets_env(text))
    return {
        "run": run.run,
        "env": run.env,
        "changed": ", ".join(filter(None, [run.label, run.note, *changes])),
        "mode": run.mode,
        "status": f"{run.status}{' (dev)' * run.is_dev}",
        "left": "" if run.seconds_left is None else duration_text(run.seconds_left),
        "frames": f"{run.frames:,}",
        "final_return": with_spread(run.final_return, run.final_return_std),
        "frames_per_s": "" if run.frames_per_s is None else significant(run.frames_per_s),
        "bytes": size_text(run.bytes),
        "started": run.started[:16].replace("T", " "),
    }
