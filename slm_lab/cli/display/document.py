"""The result of a command as one JSON document, for scripts."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slm_lab.experiment.runs.summary import summary_of
from slm_lab.storage.run_dir import RunDir


def print_json(document: object) -> None:
    """Prints a document; numbers that are not finite become null."""
    print(json.dumps(_finite(document), indent=1, allow_nan=False))


def run_document(run: RunDir, code: int) -> dict[str, Any]:
    """A run or search: what `slm-lab runs --json` has of it, its metrics, graphs and exit code."""
    metrics = {
        f"t{trial}": json.loads(file.read_text())
        for trial in run.trials
        if (file := run.trial_metrics_file(trial)).is_file()
    }
    return {
        **summary_of(run).to_json(),
        "folder": str(run.root),
        "exit_code": code,
        "trials" if run.is_search else "metrics": (
            metrics if run.is_search else metrics.get("t0", {})
        ),
        "graphs": [str(graph) for graph in sorted(run.root.glob("*_graph_*.png"))],
    }


def compare_document(folder: Path, code: int) -> dict[str, Any]:
    """A comparison: its tables, graphs and exit code."""
    import pandas as pd

    return {
        "folder": str(folder),
        "exit_code": code,
        **{
            key: pd.read_csv(file).to_dict("records")
            for key, end in (("variants", "_compare_df"), ("trainings", "_trainings_df"))
            for file in folder.glob(f"*{end}.csv")
        },
        "graphs": [str(graph) for graph in sorted(folder.glob("*_compare_*.png"))],
    }


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
