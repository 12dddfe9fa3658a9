"""Environments whose arguments change while an agent trains."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, final

import gymnasium
import numpy as np
from gymnasium import spaces
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.schedule import Schedule
from slm_lab.core.types import StateDict
from slm_lab.env.interface import AnySpace, Env

Numbers: TypeAlias = Mapping[str, float]
"""The values of arguments, by name."""


class ArgumentSchedule(NamedTuple):
    """The values of one argument."""

    schedule: Schedule
    is_whole: bool
    """Whether they are rounded to whole numbers."""

    def at(self, frame: int) -> float:
        """The value at a frame of the trial's clock."""
        value = self.schedule.at(frame)
        if self.is_whole:
            return round(value)
        return value


@dataclass
class FrameClock:
    """The trial's clock, as copies of an environment read it."""

    value: int = 0


@final
class ChangingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Makes an environment anew at a reset if its arguments have other values than
    before. The new one is seeded by a generator, which the first seed of a reset seeds.
    So a run with the same seed repeats."""

    def __init__(
        self,
        name: str,
        make: Callable[[Numbers], Env],
        schedules: Mapping[str, ArgumentSchedule],
    ) -> None:
        self._name = name
        self._make = make
        self._schedules = schedules
        self._numbers = self.numbers_at(0)
        self._seeds = np.random.default_rng()
        self.clock = FrameClock()
        super().__init__(make(self._numbers))

    def numbers_at(self, frame: int) -> Numbers:
        """The values of the arguments at a frame."""
        return {key: schedule.at(frame) for key, schedule in self._schedules.items()}

    def change(self, numbers: Numbers) -> bool:
        """Makes the environment anew if the arguments have other values; returns
        whether they have. Raises LabError if it cannot be made with these, or if a
        space changes with them."""
        if numbers == self._numbers:
            return False
        before = self.env
        before.close()
        try:
            self.env = self._make(numbers)
        except Exception as error:
            message = f"{self._name} cannot be made with {dict(numbers)}"
            why = f"{type(error).__name__}: {error}"
            raise LabError(f"{message}: {why}") from error
        self._check_space(
            "observation_space",
            numbers,
            before.observation_space,
            self.env.observation_space,
        )
        self._check_space(
            "action_space", numbers, before.action_space, self.env.action_space
        )
        self._numbers = numbers
        return True

    def _check_space(
        self, what: str, numbers: Numbers, before: AnySpace, now: AnySpace
    ) -> None:
        """Raises LabError if a space has changed. The bounds of observations may."""
        is_same = before == now
        if what == "observation_space" and isinstance(before, spaces.Box):
            is_same = (before.shape, before.dtype) == (now.shape, now.dtype)
        if not is_same:
            raise LabError(
                f"{self._name} with {dict(numbers)} has another {what} than with "
                f"{dict(self._numbers)}: {now}, not {before}; an agent has one, so "
                "these arguments cannot change while it trains"
            )

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        is_new = self.change(self.numbers_at(self.clock.value))
        if is_new and seed is None:
            seed = int(self._seeds.integers(2**31))
        return self.env.reset(seed=seed, options=options)

    def state_dict(self) -> StateDict:
        """The values of the arguments, and the generator of seeds."""
        return {
            "numbers": dict(self._numbers),
            "seeds": self._seeds.bit_generator.state,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Makes the environment with the saved values."""
        self._seeds.bit_generator.state = state["seeds"]
        self.change(state["numbers"])


def changing_env(env: Env) -> ChangingEnv | None:
    """The ChangingEnv among an environment and its wrappers, if there is one."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, ChangingEnv):
            return env
        env = env.env
    return None


def follow_clock(env: Env, clock: FrameClock) -> None:
    """Lets the arguments of an environment change by this clock."""
    changing = changing_env(env)
    if changing is not None:
        changing.clock = clock
