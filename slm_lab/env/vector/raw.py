"""N environments in their own units: the layer below the converters.

The interface has no autoreset modes. A step that ends an episode returns both the final
observation and the first observation of the next episode."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import Any, NamedTuple, final

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.state import HasState
from slm_lab.core.types import Array, BoolArray, FloatArray, IntArray
from slm_lab.env.interface import Env

CONTINUES = "episode_goes_on"
"""A key in the info of a single environment's `reset`. It is True if the last
`terminated` ended the episode only for the learner, as a lost life does. Then the
observation is the last one."""


NUMBERS = "slm_lab.last_numbers"
"""A key in the last info of an episode, see `LastInfo`."""


RESETTING = 1
STEPPING = 2
"""The marks of a copy while its `reset` or `step` runs; a step is marked only in a
worker process. Otherwise the mark is 0."""


class CopyMarks(NamedTuple):
    """The marks of copies in shared memory, one byte each, by which another process
    sees what they do. It must pickle."""

    raw: Any
    offset: int
    copies: int


def marks_in(marks: CopyMarks | None, num_envs: int) -> Array:
    """(N,) uint8: a view of the shared marks, or a private array."""
    if marks is None or marks.copies < num_envs:
        return np.zeros(num_envs, np.uint8)
    return np.frombuffer(marks.raw, np.uint8, num_envs, marks.offset)


class RawStep(NamedTuple):
    """A step after which K of the N rows are done. The next step may reuse `reward`."""

    obs: Array
    """(N, ...) new; after the end of an episode, the first observation of the next
    one"""
    reward: FloatArray
    """(N,) float64"""
    terminated: BoolArray
    truncated: BoolArray
    done_index: IntArray | None = None
    """(K,) the terminated or truncated rows, ascending; None if there are none"""
    final_obs: Array | None = None
    """(K, ...) their last observations"""
    over: BoolArray | None = None
    """(K,) whether the environment has started a new episode; None: all have. Otherwise
    the episode continues from `final_obs`, as a game does after a lost life."""
    info: FloatArray | None = None
    """(K, I) float64: the numbers of `LastInfo`; None without one"""

    def ended(self) -> tuple[IntArray, Array, FloatArray]:
        """(R,) the rows with a new episode; of the old one (R, ...) the last
        observations, and (R, I) the numbers of the last info."""
        assert self.done_index is not None
        assert self.final_obs is not None
        info = self.info
        if info is None:
            info = np.empty((len(self.done_index), 0))
        over = slice(None) if self.over is None else self.over
        return self.done_index[over], self.final_obs[over], info[over]


class RawEnvs(HasState):
    """N environments of one kind, with their original spaces and units. Their state is
    the state of the generators, and with `exact_state` of the running episodes. Without
    it, call `reset` after a load."""

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    exact_state: bool
    agents: tuple[str, ...] = ()
    """The names of the agents of one copy. Each has a row, copy after copy. Empty where
    each row is a copy."""
    absent: BoolArray | None = None
    """(N,) the rows whose agent does not act in the next step: it has left, or has not
    joined yet. None: all act. Their actions are ignored, and their numbers are 0."""
    begun: BoolArray | None = None
    """(N,) the rows of copies that began a new episode after the last step. None where
    each row is a copy."""

    @abstractmethod
    def reset(self) -> Array:
        """Starts new episodes everywhere. Only the first call seeds the
        environments."""

    @abstractmethod
    def step(self, action: Any) -> RawStep:
        """Takes one action per environment, in the environment's own units. They are an
        array (N, …), or dicts and tuples of arrays, as in Gymnasium's vector
        environments."""

    def set_frame(self, frame: int) -> None:
        """Takes the trial's clock, by which arguments of single environments change:
        each takes its values at its next reset."""

    @abstractmethod
    def close(self) -> None:
        """Frees all resources."""


def env_seeds(seed: int | Sequence[int], num_envs: int) -> list[int]:
    """One independent seed per environment; the i-th does not depend on `num_envs`.
    Seeds have 31 bits, because some simulators store them in a C int."""
    words = np.random.SeedSequence(seed).generate_state(num_envs, np.uint32)
    return [int(word) >> 1 for word in words]


def seeds_after(
    restored: Sequence[bool], root: Sequence[int]
) -> list[int | None] | None:
    """The seeds of the first `reset` after a load. They are new, from `root`, where no
    generator was restored. None if all were restored."""
    if all(restored):
        return None
    fresh = env_seeds(root, len(restored))
    return [None if done else seed for done, seed in zip(restored, fresh, strict=True)]


def step_failure_note(name: str, index: int, num_envs: int, action: Any) -> str:
    """The note for an exception of an environment's step, with its `action`."""
    return (
        f"in step() of environment {index} of {num_envs} ({name}), "
        f"with action {_plain(action)}"
    )


def _plain(action: Any) -> Any:
    """An action as Python's own numbers, in lists, dicts and tuples."""
    if isinstance(action, Mapping):
        return {key: _plain(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return tuple(map(_plain, action))
    return np.asarray(action).tolist()


def reset_failure_note(name: str, index: int) -> str:
    """The note for an exception of an environment's reset."""
    return f"in reset() of environment {index} ({name})"


def check_actions(name: str, action: Array, space: gymnasium.Space[Any]) -> None:
    """Raises IndexError for an action outside of a discrete space; a native library
    accepts it."""
    if not isinstance(space, gymnasium.spaces.Discrete):
        return
    unknown = (action < 0) | (action >= space.n)
    if np.count_nonzero(unknown):
        error = IndexError(f"there are {space.n} actions")
        index = int(unknown.argmax())
        note = step_failure_note(name, index, len(action), action[index])
        error.add_note(note)
        raise error


@final
class TimeLimit(gymnasium.wrappers.TimeLimit[Any, Any]):
    """Gymnasium's TimeLimit, which also counts on if `reset` continues an episode
    (`CONTINUES`)."""

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        elapsed = self._elapsed_steps
        obs, info = super().reset(seed=seed, options=options)
        if info.get(CONTINUES, False):
            self._elapsed_steps = elapsed
        return obs, info


@final
class ResetOptions(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Gives `options` to every reset that is called without any."""

    def __init__(self, env: Env, options: Mapping[str, Any]) -> None:
        RecordConstructorArgs.__init__(self, options=options)
        super().__init__(env)
        self._options = options

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        reset_options = options
        if reset_options is None:
            reset_options = dict(self._options)
        return self.env.reset(seed=seed, options=reset_options)


@final
class LastInfo(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds `NUMBERS` to an episode's last info: (I,) float64 under `keys`, NaN if not
    finite."""

    def __init__(self, env: Env, keys: Sequence[str]) -> None:
        RecordConstructorArgs.__init__(self, keys=keys)
        super().__init__(env)
        self._keys = keys

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {
                **info,
                NUMBERS: np.array([_number(info, key) for key in self._keys]),
            }
        return obs, reward, terminated, truncated, info


def _number(info: Mapping[str, Any], key: str) -> float:
    """The finite number under `key`, or else under the path that it is; NaN if there is
    none."""
    value: Any = info
    for part in [key] if key in info else key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if not isinstance(value, bool | int | float | np.generic | np.ndarray):
        return nan
    array = np.asarray(value)
    number = nan
    if array.size == 1 and array.dtype.kind in "biuf":
        number = float(array.item())
    if isfinite(number):
        return number
    return nan
