"""The environments as the rest of the lab sees them."""

from abc import ABC, abstractmethod
from typing import Any

import gymnasium

from slm_lab.core.normalization import Normalization
from slm_lab.core.types import Array, FloatArray, StateDict
from slm_lab.env.step import Step


class VectorEnv(ABC):
    """N environments of one kind, stepped together; an ended episode is reset in the same step.

    `observation_space` and `action_space` are those of ONE environment, as the agent sees it:
    observations float32 (images uint8), bounded continuous actions in [-1, 1]^A.
    """

    num_envs: int
    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    exact_state: bool
    """Whether `load_state_dict` continues the very episodes that were saved, bit for bit.
    Where False it begins fresh episodes; generators and statistics are restored all the same."""
    statistics: FloatArray
    """The normalisers' running statistics, one flat float64 vector (empty without normalisers).
    It is live: assigning into it, as in `evaluation.statistics[:] = training.statistics`,
    changes how the next observation is normalised."""

    moments: tuple[slice, ...]
    """Where in `statistics` running moments are, [count, mean (D), M2 (D)] each."""

    normalization: Normalization | None
    """How observations and rewards are normalised by the statistics of now; None: they are not."""

    frame_stack: int
    """How many of the last frames an observation consists of, in equal parts of its first axis,
    the newest last; within an episode each observation is the one before, moved on by one frame."""

    @property
    @abstractmethod
    def obs(self) -> Array:
        """(N, ...) what to act on next: of the last `reset`, `step` or `load_state_dict`."""

    @property
    @abstractmethod
    def raw_obs(self) -> Array:
        """(N, ...) `obs` before it was normalised; the same object where it is not."""

    @abstractmethod
    def reset(self) -> Array:
        """Begins a new episode in every environment and returns its first observations (N, ...).

        The first call seeds the environments; later ones go on with their generators.
        """

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Takes one action per environment: (N,) for Discrete, (N, A) otherwise.

        An exception inside an environment comes out as it is, with a note that names the
        environment and its action.
        """

    @abstractmethod
    def state_dict(self) -> StateDict:
        """All that a resume needs, as nested dicts and lists of arrays, numbers, strings, None."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Continues from `state_dict`, see `exact_state`. Raises CheckpointError on a misfit."""

    @abstractmethod
    def close(self) -> None:
        """Frees windows, simulators and worker processes. Closing twice is allowed."""
