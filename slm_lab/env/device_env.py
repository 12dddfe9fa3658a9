"""Environments whose steps stay on the device of their tensors."""

from typing import Any, NamedTuple, cast, final

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor
from typing_extensions import override

from slm_lab.core.types import StateDict
from slm_lab.env.convert.action import ActionConverter
from slm_lab.env.failure import close_all
from slm_lab.env.make import EnvFactory, conversions_of
from slm_lab.env.pool_names import is_pooled
from slm_lab.env.simulators.batched import is_batched
from slm_lab.env.simulators.torch_envs import make_batched
from slm_lab.env.vector.autoreset import (
    NATIVE_CARTPOLE,
    choose_mode,
    make_native_in_mode,
)
from slm_lab.env.vector.foreign_tensors import ForeignTensors
from slm_lab.env.vector.tensor_envs import ArraysOfTensors, TensorEnvs
from slm_lab.env.vector_env import (
    Conversions,
    FinishedEpisodes,
    Step,
    VectorEnv,
    check_num_envs,
)
from slm_lab.spec.schema.env import EnvSpec

STEPS_PER_READ = 32
"""Vector steps after which the host reads the episodes that have ended."""


def make_device_env(spec: EnvSpec, seed: int, device: str) -> "DeviceEnv | None":
    """The environments of `spec` on `device`: those that torch steps, or a native
    vector version that returns tensors there. None for others, or if a `DeviceEnv` does
    not make all the conversions. Raises as `make_env`."""
    factory = EnvFactory.of(spec)
    envs: TensorEnvs | None
    if is_batched(spec):
        envs = make_batched(
            spec=spec,
            entry=factory.entry,
            make_one=factory.make_single,
            seed=seed,
            device=device,
        )
    else:
        envs = _foreign_tensors(factory, seed)
    if envs is None:
        return None
    arrays = ArraysOfTensors(envs)
    conversions = conversions_of(factory, arrays, training=True, gamma=1.0)
    if envs.device.type != device or not fits_on_device(conversions, envs):
        envs.close()
        return None
    reward = RewardScaling(spec.reward_scale, spec.clip_reward)
    return DeviceEnv(envs, conversions, reward)


def _foreign_tensors(factory: EnvFactory, seed: int) -> TensorEnvs | None:
    """The native vector version, if it may return tensors: one of another package, in
    mode SAME_STEP."""
    spec = factory.spec
    entry = factory.entry
    is_native = factory.game is None and choose_mode(spec, entry) == "native"
    if not is_native or is_pooled(spec) or entry.vector_entry_point == NATIVE_CARTPOLE:
        return None
    made = make_native_in_mode(spec, entry)
    is_box = isinstance(made.env.single_observation_space, spaces.Box)
    if is_box and made.mode is AutoresetMode.SAME_STEP:
        try:
            return ForeignTensors(made.env, seed)
        except (AttributeError, BufferError, TypeError):
            pass  # what it returns is no array on a device
    close_all([made.env.close], entry.id)
    return None


class RewardScaling(NamedTuple):
    """The learner's reward: the sign or a multiple of the environment's, then bounded.
    None changes nothing."""

    scale: float | str | None
    clip: float | str | None

    def convert(self, reward: Tensor) -> Tensor:
        """(N,) float64 to float32."""
        if isinstance(self.scale, str):
            reward = reward.sign()
        elif self.scale is not None:
            reward = reward * self.scale
        if isinstance(self.clip, str):
            reward = reward.sign()
        elif self.clip is not None:
            reward = reward.clamp(-self.clip, self.clip)
        return reward.float()


@final
class TensorActions:
    """`ActionConverter` for tensors: (N,) int64 or (N, A) float32."""

    def __init__(self, actions: ActionConverter, device: torch.device) -> None:
        def constant(values: Any) -> Tensor:
            return torch.as_tensor(values, device=device)

        self._start: Tensor | None = None
        if actions.start is not None:
            self._start = constant(actions.start)
        self._scaling: tuple[Tensor, ...] | None = None
        if actions.scaling is not None:
            self._scaling = tuple(map(constant, actions.scaling))
        self._shape = actions.shape

    def convert(self, action: Tensor) -> Tensor:
        """Actions of the N environments, (N, *shape) in their own units."""
        if self._scaling is not None:
            half_width, middle, low, high = self._scaling
            raw = action * half_width + middle
            action = raw.clamp(low, high).to(action.dtype)
        if self._start is not None:
            action = action + self._start
        return action.reshape(len(action), *self._shape)


@final
class EpisodeLog:
    """Return and length of the episodes that have ended since the host read them, NaN
    where none has ended."""

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._rows = torch.full(
            (STEPS_PER_READ, 2, num_envs), np.nan, dtype=torch.float64, device=device
        )
        self._count = 0

    def add(self, done: Tensor, episode_return: Tensor, length: Tensor) -> None:
        """Notes the episodes that end in a step; all (N,)."""
        both = torch.stack([episode_return, length])
        self._rows[self._count] = both.masked_fill(~done, np.nan)
        self._count += 1

    def read_if_full(self) -> FinishedEpisodes | None:
        """The episodes in the order of their ends, once in `STEPS_PER_READ` steps."""
        if self._count < STEPS_PER_READ:
            return None
        self._count = 0
        rows = self._rows.cpu().numpy()
        step, index = np.nonzero(~np.isnan(rows[:, 1]))
        if len(index) == 0:
            return None
        return FinishedEpisodes(
            env_index=index,
            episode_return=rows[step, 0, index],
            episode_length=rows[step, 1, index].astype(np.int64),
            info=np.empty((len(index), 0)),
        )

    def state_dict(self) -> StateDict:
        """The rows that the host has not read."""
        return {"unread": self._rows[: self._count].cpu().numpy().copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the unread rows."""
        self._count = len(state["unread"])
        self._rows[: self._count] = torch.from_numpy(state["unread"])


def fits_on_device(conversions: Conversions, envs: TensorEnvs) -> bool:
    """Whether a `DeviceEnv` makes all of these conversions. Observations must be
    float32 vectors that are neither joined nor normalised. Actions must be a number or
    a Box, and rewards not normalised."""
    space = envs.observation_space
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 1
        and conversions.observation.space == space
        and isinstance(envs.action_space, spaces.Discrete | spaces.Box)
        and conversions.joiner is None
        and conversions.layout.mask is None
        and len(conversions.statistics) == 0
        and conversions.num_info == 0
    )


@final
class DeviceEnv(VectorEnv):
    """Tensor environments with the conversions of `HostEnv`, on their device. In a
    `Step` every array is a tensor there. `finished` is read once in `STEPS_PER_READ`
    steps, with the episodes of all of them. Nothing else is copied to the host. The
    state has the form of the state of a `HostEnv` with the same environments."""

    def __init__(
        self, envs: TensorEnvs, conversions: Conversions, reward: RewardScaling
    ) -> None:
        """The conversions fit, see `fits_on_device`."""
        super().__init__(envs.num_envs, envs.exact_state, conversions)
        self._envs = envs
        assert isinstance(conversions.action, ActionConverter), "actions with parts"
        self._actions = TensorActions(conversions.action, envs.device)
        self._reward = reward
        self._log = EpisodeLog(envs.num_envs, envs.device)
        self._obs: Tensor | None = None
        self._episode_return = torch.zeros(
            envs.num_envs, dtype=torch.float64, device=envs.device
        )
        self._episode_length = torch.zeros_like(self._episode_return)

    @property
    @override
    def obs(self) -> Any:
        assert self._obs is not None, "reset() comes first"
        return self._obs

    @property
    @override
    def raw_obs(self) -> Any:
        return self.obs

    @override
    def reset(self) -> Any:
        self._episode_return.zero_()
        self._episode_length.zero_()
        try:
            self._obs = self._envs.reset()
        except BaseException as error:
            self._fail(error)
            raise
        self.has_failed = False
        return self._obs

    @override
    def set_frame(self, frame: int) -> None: ...

    @override
    def step(self, action: Any) -> Step:
        try:
            step = self._envs.step(self._actions.convert(action))
        except BaseException as error:
            self._fail(error)
            raise
        done = step.terminated | step.truncated
        self._episode_return += step.reward
        self._episode_length += 1
        self._log.add(done, self._episode_return, self._episode_length)
        self._episode_return.masked_fill_(done, 0.0)
        self._episode_length.masked_fill_(done, 0.0)
        self._obs = step.obs
        return Step(
            obs=cast(Any, step.obs),
            next_obs=cast(Any, step.next_obs),
            reward=cast(Any, self._reward.convert(step.reward)),
            terminated=cast(Any, step.terminated),
            truncated=cast(Any, step.truncated),
            finished=self._log.read_if_full(),
        )

    @override
    def state_dict(self) -> StateDict:
        return {
            "num_envs": self.num_envs,
            "failed": self.has_failed,
            "raw": self._envs.state_dict(),
            "statistics": self.statistics.copy(),
            "reward": None,
            "episode_return": self._episode_return.cpu().numpy().copy(),
            "episode_length": self._episode_length.cpu().numpy().astype(np.int64),
            "obs": None if self._obs is None else self._obs.cpu().numpy().copy(),
            "raw_obs": None,
            **self._log.state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> bool:
        check_num_envs(state, self.num_envs)
        goes_on = state["raw"] is not None and not state.get("failed", False)
        if state["raw"] is not None:
            self._envs.load_state_dict(state["raw"])
        if not self.exact_state or not goes_on:
            self.reset()
            return False
        device = self._envs.device
        self._episode_return.copy_(torch.from_numpy(state["episode_return"]))
        self._episode_length.copy_(torch.from_numpy(state["episode_length"]))
        self._obs = None
        if state["obs"] is not None:
            self._obs = torch.from_numpy(state["obs"].copy()).to(device)
        if "unread" in state:
            self._log.load_state_dict(state)
        return True

    @override
    def close(self) -> None:
        self._envs.close()
