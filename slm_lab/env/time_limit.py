"""The step limit of an episode."""

from typing import Any, final

import gymnasium
from typing_extensions import override

from slm_lab.env.lookup import find_env
from slm_lab.env.simulators.atari import atari_keys, is_atari
from slm_lab.env.vector.raw import CONTINUES
from slm_lab.spec.schema.env import EnvSpec


def episode_limit(spec: EnvSpec) -> int | None:
    """Steps after which an episode is truncated; None: never. Raises as `make_env`."""
    entry = find_env(spec.name)
    if is_atari(entry):
        return atari_keys(spec, entry).max_steps
    return entry.max_episode_steps if spec.max_t is None else spec.max_t


@final
class TimeLimit(gymnasium.wrappers.TimeLimit[Any, Any]):
    """Gymnasium's, but for an episode that goes on after a `reset`, as a game after a lost life."""

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Counts anew where a new episode begins."""
        elapsed = self._elapsed_steps
        obs, info = super().reset(seed=seed, options=options)
        if info.get(CONTINUES, False):
            self._elapsed_steps = elapsed
        return obs, info
