"""The trials that run at the moment, each in a process of its own."""

from collections.abc import Mapping
from multiprocessing.connection import wait
from typing import final

from slm_lab.experiment.launch.processes import TICK
from slm_lab.experiment.search.process import TrialEnd, TrialProcess, TrialTask
from slm_lab.experiment.search.room import Needs, Place, Room


@final
class Pool:
    """Starts trials where there is room, and looks after them."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._running: dict[int, TrialProcess] = {}
        self._places: dict[int, Place] = {}

    @property
    def running(self) -> Mapping[int, TrialProcess]:
        """By the number of the trial."""
        return self._running

    def start(self, trial: int, task: TrialTask, needs: Needs, among_gpus: bool = True) -> None:
        """Starts a trial. There must be room. Without `among_gpus` it runs elsewhere."""
        place = self.room.take(needs)
        gpus = place.gpus if needs.gpu and among_gpus else None
        self._places[trial] = place
        self._running[trial] = TrialProcess(task, gpus)

    def wait(self) -> None:
        """Until a trial ends, or for a moment."""
        wait([each for process in self._running.values() for each in process.waitables], TICK)

    def ends(self) -> list[tuple[int, TrialProcess, TrialEnd]]:
        """The trials that have ended since."""
        found = []
        for trial, process in list(self._running.items()):
            process.end_late()
            end = process.take_end()
            if end is not None:
                self._forget(trial)
                found.append((trial, process, end))
        return found

    def stop(self, trial: int) -> None:
        """Has one save and end."""
        self._running[trial].stop(user_waits=False)

    def stop_all(self) -> None:
        """Has all save and end, because the user wants it."""
        for process in self._running.values():
            process.stop(user_waits=True)

    def kill_all(self) -> None:
        """Ends all at once."""
        for trial, process in list(self._running.items()):
            process.kill()
            self._forget(trial)

    def _forget(self, trial: int) -> None:
        del self._running[trial]
        self.room.give_back(self._places.pop(trial))
