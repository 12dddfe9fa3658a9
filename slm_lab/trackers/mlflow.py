"""MLflow. Its own variables say where to. `MLFLOW_TRACKING_URI` names a server or a
database, `MLFLOW_EXPERIMENT_NAME` an experiment. By default the experiment has the
spec's name."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

from typing_extensions import override

from slm_lab.core.values import leaves
from slm_lab.storage.result import Ending
from slm_lab.trackers.tracker import About, Point, Tracker

LONGEST_PARAM = 500
"""The most letters of a value; earlier servers accept no more."""
MOST_PARAMS = 100
MOST_METRICS = 1000
"""The most entries of one request."""
STATUSES = {
    Ending.FINISHED: "FINISHED",
    Ending.INTERRUPTED: "KILLED",
    Ending.FAILED: "FAILED",
}


class _Tracked(NamedTuple):
    client: Any
    run_id: str
    key: str


@final
class MLflow(Tracker):
    """One MLflow run per Session, below the MLflow run of their Trial."""

    name: ClassVar = "mlflow"
    module: ClassVar = "mlflow"

    @override
    def open(self, about: About, known: str | None, parent: Any) -> tuple[Any, str]:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        client = MlflowClient()
        run = None
        if known is not None:
            with suppress(MlflowException):  # another server, or it was deleted
                run = client.get_run(known)
        if run is None:
            tags = {
                "slm_lab.run": about.group,
                "slm_lab.key": about.key,
                **({"mlflow.note.content": about.note} if about.note else {}),
                **({"mlflow.parentRunId": parent.run_id} if parent else {}),
            }
            run = client.create_run(
                _experiment(client, about.spec_name), run_name=about.name, tags=tags
            )
        run_id = run.info.run_id
        client.update_run(run_id, status="RUNNING")
        for tag in about.tags:
            client.set_tag(run_id, f"tag.{tag}", "true")
        _log_params(client, run_id, about.config, known=set(run.data.params))
        client.log_dict(run_id, dict(about.config), "spec.json")
        return _Tracked(client, run_id, about.key), run_id

    @override
    def log(self, tracked: Any, points: Sequence[Point]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [
            Metric(column, value, now, point.frame)
            for point in points
            for column, value in point.values.items()
        ]
        for first in range(0, len(metrics), MOST_METRICS):
            batch = metrics[first : first + MOST_METRICS]
            tracked.client.log_batch(tracked.run_id, metrics=batch)

    @override
    def summarise(self, tracked: Any, values: Mapping[str, float], frame: int) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        # MLflow shows the value of the largest step, which may be a row's
        results = [Metric(name, value, now, frame) for name, value in values.items()]
        tracked.client.log_batch(tracked.run_id, metrics=results)

    @override
    def add_image(self, tracked: Any, name: str, file: Path) -> None:
        tracked.client.log_artifact(tracked.run_id, str(file), "graphs")

    @override
    def add_agent(self, tracked: Any, file: Path) -> None:
        tracked.client.log_artifact(tracked.run_id, str(file), "agent")

    @override
    def close(self, tracked: Any, ending: Ending) -> None:
        tracked.client.set_terminated(tracked.run_id, STATUSES[ending])


def _experiment(client: Any, spec_name: str) -> str:
    """The id of the experiment, which is made if there is none."""
    from mlflow.exceptions import MlflowException

    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", spec_name)
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        with suppress(MlflowException):  # another training has just made it
            return str(client.create_experiment(name))
        experiment = client.get_experiment_by_name(name)
    return str(experiment.experiment_id)


def _log_params(
    client: Any, run_id: str, config: Mapping[str, Any], known: set[str]
) -> None:
    """Sends the leaves of the config. MLflow never changes one that it has: after a
    resume with another budget, spec.json has the new value."""
    from mlflow.entities import Param

    params = [
        Param(path[:LONGEST_PARAM], _text(value)[:LONGEST_PARAM])
        for path, value in leaves(config).items()
        if value is not None and path[:LONGEST_PARAM] not in known
    ]
    for first in range(0, len(params), MOST_PARAMS):
        client.log_batch(run_id, params=params[first : first + MOST_PARAMS])


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value)
