"""Tasks of Sessions that train together, and processes that only simulate it."""

from dataclasses import replace

from slm_lab.parallel.fork_server import CONTEXT
from slm_lab.parallel.processes import Processes
from slm_lab.parallel.supervisor import Supervisor, replacement
from slm_lab.parallel.task import SessionTask
from slm_lab.session.status_board import StatusBoard
from slm_lab.storage.run_dir import RunDir
from tests.support import parse, ppo


def worker_tasks(folder, spec, count):
    """As of a training that is resumed in `folder`."""
    run_dir = RunDir(folder, spec.name)
    workers = range(count)
    return [
        SessionTask(
            spec=spec,
            run_dir=run_dir,
            root_seed=0,
            trial=0,
            session=s,
            num_sessions=count,
            resume=True,
            workers=workers,
        )
        for s in workers
    ]


def processes_that(acts, folder, **limits):
    """Processes of which each does one of the acts, if `act` is their target; and their
    status board."""
    status_board = StatusBoard.allocate(CONTEXT, len(acts))
    tasks = worker_tasks(folder, parse(ppo()), len(acts))
    tasks = [
        replace(t, imports=(what.__name__,))
        for t, what in zip(tasks, acts, strict=True)
    ]
    return Supervisor(
        Processes(status_board), tasks, status_board, restart=replacement, **limits
    ), status_board
