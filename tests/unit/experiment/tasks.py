"""Tasks of Sessions that train together."""

from slm_lab.experiment.run_dir import RunDir
from slm_lab.experiment.worker import SessionTask


def worker_tasks(folder, spec, count):
    """As of a training that is resumed in `folder`."""
    run_dir = RunDir(folder, spec.name)
    workers = range(count)
    return [SessionTask(spec, run_dir, 0, 0, s, count, True, workers=workers) for s in workers]
