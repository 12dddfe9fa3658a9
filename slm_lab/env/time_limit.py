"""The step limit of an episode."""

from typing import Any, final

import gymnasium

from slm_lab.env.raw import GOES_ON


@final
class TimeLimit(gymnasium.wrappers.TimeLimit[Any, Any]):
    """Gymnasium's, but for an episode that goes on after a `reset`, as a game after a lost life."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Counts anew where a new episode begins."""
        elapsed = self._elapsed_steps
        obs, info = super().reset(seed=seed, options=options)
        if info.get(GOES_ON, False):
            self._elapsed_steps = elapsed
        return obs, info
