"""A vector environment of another package that returns tensors, or arrays of JAX, on a
device."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.state import SavedFields
from slm_lab.env.failure import close_all
from slm_lab.env.foreign import FINAL_OBS, GymnasiumVectorEnv, vector_step
from slm_lab.env.vector.raw import env_seeds
from slm_lab.env.vector.tensor_envs import TensorEnvs, TensorStep


@final
class ForeignTensors(SavedFields, TensorEnvs):
    """A Gymnasium vector environment in SAME_STEP mode. What it returns becomes tensors
    by DLPack, without a copy to the host. It gets actions of the kind that it returns.
    The last observations in an info cover all rows."""

    saved: ClassVar = {"steps": "_steps", "root_seed": "_root_seed"}
    optional: ClassVar = ("root_seed",)  # without it this run's seed counts

    def __init__(self, env: GymnasiumVectorEnv, seed: int) -> None:
        """Resets `env`, because only an observation shows where it computes."""
        self.num_envs = env.num_envs
        self.observation_space = env.single_observation_space
        self.action_space = env.single_action_space
        self.exact_state = False
        self._env = env
        self._root_seed = seed
        self._steps = 0
        self._first: Any = env.reset(seed=env_seeds(seed, 1)[0])[0]
        """The observations of the first reset, until that is asked for."""
        self._give = _converter_to(self._first)
        self.device = _tensor(self._first).device

    @override
    def reset(self) -> Tensor:
        obs = self._first
        self._first = None
        if obs is None:
            obs, _ = self._env.reset()
        return _tensor(obs).clone()

    @override
    def step(self, action: Tensor) -> TensorStep:
        step = vector_step(self._env, self._give(action), _tensor)
        obs = _tensor(step.obs)
        terminated = step.terminated.bool()
        truncated = step.truncated.bool()
        self._steps += 1
        done = terminated | truncated
        final = _final_obs(self._env, step.info)
        next_obs = obs
        if final is not None:
            rows = done.reshape(-1, *[1] * (obs.ndim - 1))
            next_obs = torch.where(rows, final, obs)
        return TensorStep(
            obs=obs.clone(),
            next_obs=next_obs.clone(),
            reward=step.reward.double(),
            terminated=terminated,
            truncated=truncated,
        )

    @override
    def after_load(self) -> None:
        # new episodes start with seeds that were not used before
        seed = env_seeds([self._root_seed, self._steps], 1)[0]
        self._first, _ = self._env.reset(seed=seed)

    @override
    def close(self) -> None:
        close_all([self._env.close], type(self._env).__name__)


def _tensor(values: Any) -> Tensor:
    """Values on their device, which may share the memory."""
    if isinstance(values, Tensor):
        return values
    return from_dlpack(values)


def _converter_to(values: Any) -> Callable[[Tensor], Any]:
    """The function that makes of a tensor what `values` are: by the namespace that the
    array API standard asks for."""
    if isinstance(values, Tensor):
        return lambda tensor: tensor
    convert: Callable[[Tensor], Any] = values.__array_namespace__().from_dlpack
    return convert


def _final_obs(env: object, info: Mapping[str, Any]) -> Tensor | None:
    """(N, ...) the last observations of the rows that ended; None if the info has none,
    because no row has."""
    for key in FINAL_OBS:
        if key in info:
            try:
                return _tensor(info[key])
            except (TypeError, BufferError, AttributeError) as error:
                raise LabError(
                    f"the {key} in an info of {type(env).__name__} are no array of all "
                    f"environments on its device: {error}"
                ) from error
    return None
