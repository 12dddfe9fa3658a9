"""The result of a command as one JSON document, for scripts."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from slm_lab.experiment.runs.summary import summary_of
from slm_lab.storage.maybe_damaged import trial_metrics
from slm_lab.storage.run_dir import RunDir


def run_document(run: RunDir, code: int) -> dict[str, Any]:
    """A run or search: what `slm-lab runs --json` has of it, its metrics, graphs and exit code."""
    metrics = {f"t{trial}": trial_metrics(run, trial) for trial in run.trials}
    known = {trial: each for trial, each in metrics.items() if each}
    return {
        **asdict(summary_of(run)),
        "folder": str(run.root),
        "exit_code": code,
        **({"trials": known} if run.is_search else {"metrics": known.get("t0", {})}),
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
