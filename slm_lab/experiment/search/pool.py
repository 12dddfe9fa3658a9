"""The running trials, each in its own process."""

from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import final

from slm_lab.experiment.search.resources import Allocation, Request, Resources
from slm_lab.experiment.search.trial_process import TrialEnd, TrialProcess, TrialTask
from slm_lab.parallel.supervisor import TICK


@final
class Pool:
    """Starts, stops and collects the processes of trials."""

    def __init__(self, room: Resources) -> None:
        self.room = room
        self._running: dict[int, TrialProcess] = {}
        self._allocations: dict[int, Allocation] = {}

    @property
    def running(self) -> Mapping[int, TrialProcess]:
        """The running processes, by trial."""
        return self._running

    def start(self, trial: int, task: TrialTask, request: Request, among_gpus: bool = True) -> None:
        """Starts a trial. There must be room.

        `among_gpus` restricts it to its share of this machine's GPUs; False for a cluster.
        """
        allocation = self.room.take(request)
        gpus = allocation.gpus if request.gpu and among_gpus else None
        self._allocations[trial] = allocation
        self._running[trial] = TrialProcess(task, gpus)

    def wait(self) -> None:
        """Waits until a trial ends, for at most `TICK` seconds."""
        wait([each for process in self._running.values() for each in process.waitables], TICK)

    def ends(self) -> list[tuple[int, TrialProcess, TrialEnd]]:
        """The trials that ended since the last call."""
        found = []
        for trial, process in list(self._running.items()):
            process.end_late()
            end = process.take_end()
            if end is not None:
                self._forget(trial)
                found.append((trial, process, end))
        return found

    def stop(self, trial: int) -> None:
        """Makes a trial save and end."""
        self._running[trial].stop(user_waits=False)

    def stop_all(self) -> None:
        """Makes all trials save and end, at the user's request."""
        for process in self._running.values():
            process.stop(user_waits=True)

    def kill_all(self) -> None:
        """Kills all trials."""
        for trial, process in list(self._running.items()):
            process.kill()
            self._forget(trial)

    def _forget(self, trial: int) -> None:
        del self._running[trial]
        self.room.give_back(self._allocations.pop(trial))
