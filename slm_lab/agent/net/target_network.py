"""Networks that follow others."""

from typing import ClassVar, Literal, final

import torch

from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.schedule import Schedule
from slm_lab.core.state import SavedFields


@final
class TargetNetwork(SavedFields):
    """A second network that follows the online one, so that targets do not move with
    every step. At the start they are equal. "replace" copies the online network,
    "polyak" moves the target by τ: target ← τ online + (1 − τ) target. Either happens
    after the training event in which the Session's frames cross a multiple of
    `update_frequency`. With an `update_frequency` of 1, "polyak" happens after every
    gradient step."""

    saved: ClassVar = {"target": "target", "last_frame": "_last_frame"}

    def __init__(
        self,
        online: FlatParameters,
        target: FlatParameters,
        update_type: Literal["replace", "polyak"] = "replace",
        update_frequency: int = 1,
        tau: Schedule | float = 1.0,
    ) -> None:
        """τ is a number, or a schedule on the trial's clock."""
        if not isinstance(tau, Schedule):
            tau = Schedule(tau)
        self._online = online
        self.target = target
        self._frequency = update_frequency
        self._schedule = tau if update_type == "polyak" else Schedule(1.0)
        self._tau = self._schedule.at(0)
        self._every_step = update_type == "polyak" and update_frequency == 1
        self._last_frame = 0
        self.copy_online()

    def copy_online(self) -> None:
        """Makes the target equal to the online network."""
        self.target.copy_(self._online)

    def set_frame(self, frame: int) -> None:
        """Takes τ at the trial's clock `frame`."""
        self._tau = self._schedule.at(frame)

    def after_step(self) -> None:
        """Updates the target if it follows every gradient step."""
        if self._every_step:
            self._update_target()

    def update_after_event(self, frame: int) -> None:
        """Updates the target if it is due after a training event at the Session's
        frame."""
        crosses = frame // self._frequency > self._last_frame // self._frequency
        self._last_frame = frame
        if crosses and not self._every_step:
            self._update_target()

    @torch.no_grad()
    def _update_target(self) -> None:
        if self._tau == 1.0:
            self.target.copy_(self._online)
        else:
            self.target.vector.lerp_(self._online.vector, self._tau)
            self.target.statistics.lerp_(self._online.statistics, self._tau)
