"""Sends the rows of a training to MLflow: `slm_lab.train(…, callbacks=["mlflow"])`.

MLflow chooses the server by the environment variable `MLFLOW_TRACKING_URI`.
"""

from typing import Any

import mlflow


class MLflow:
    """One MLflow run per training: the spec, the columns of each Session, the
    graphs."""

    def __init__(self) -> None:
        self._run_id: str | None = None

    def on_row(self, run: Any, row: dict[str, Any]) -> None:
        """Logs the columns; the first row begins the MLflow run."""
        if self._run_id is None:
            mlflow.set_experiment(run.name)
            self._run_id = mlflow.start_run(run_name=run.folder.name).info.run_id
            mlflow.log_dict(run.spec, "spec.json")
        known = {
            f"s{row['session']}/{column}": v
            for column, v in row.items()
            if v is not None
        }
        mlflow.log_metrics(known, step=int(row["frame"]), run_id=self._run_id)

    def on_end(self, run: Any) -> None:
        """Logs the result and the graphs."""
        if self._run_id is not None:
            if "final_return" in run.metrics:
                mlflow.log_metric("final_return", run.metrics["final_return"])
            for graph in run.folder.glob("*_trial_graph_*.png"):
                mlflow.log_artifact(str(graph))
            mlflow.end_run()
