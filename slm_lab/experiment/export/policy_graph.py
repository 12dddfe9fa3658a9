"""The greedy policy as one torch module, from an environment's observations to its actions."""

import copy
import math
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.core.errors import LabError
from slm_lab.core.types import Array
from slm_lab.experiment.policy import Policy


@final
class PolicyGraph(nn.Module):
    """Observations (B, ...) → actions and the parameters of their distribution.

    It repeats the conversions of `env.convert`, the network and the most likely action in torch.
    Every number that they need is a constant of it. It works on the CPU.
    """

    def __init__(self, policy: Policy) -> None:
        """Raises LabError for a policy that has no such graph."""
        super().__init__()
        conversions, actor = policy.adapter.conversions, policy.actor
        if actor.module is None or actor.family is None:
            raise LabError("an agent without a network cannot be exported")
        if conversions.observation.resizes:
            raise LabError(
                "env.image_downsize: an image that Pillow resizes cannot be exported; resize it in "
                "the environment, as gymnasium.wrappers.ResizeObservation does"
            )
        self._module = copy.deepcopy(actor.module).cpu().requires_grad_(False)
        self._family = actor.family
        self._observation, self._joiner = conversions.observation, conversions.joiner
        self._action, self._clip = conversions.action, None
        if conversions.normalizer is not None:
            statistics, self._clip = conversions.normalizer.statistics, conversions.normalizer.clip
            self._keep(mean=statistics.mean, deviation=statistics.deviation())
        self._keep(first_column=self._observation.first_column, start=self._action.start)
        if self._action.scaling is not None:
            self._keep(**self._action.scaling._asdict())
        nets = (net for net in self._module.modules() if isinstance(net, RecurrentNet))
        net = next(nets, None)
        space = policy.adapter.flat_space
        frames = () if self._joiner is None else (self._joiner.length,)
        self.inputs: dict[str, Array] = {
            "obs": np.zeros((2, *frames, *(space.shape or ())), space.dtype)
        }
        """An example of each input, with B = 2; named as in the file."""
        self.outputs = ["action", "values"]
        """The names of the outputs."""
        if net is not None:
            self.inputs["state"] = np.zeros((2, net.state_size), np.float32)
            self.outputs.append("next_state")

    def _keep(self, **arrays: Array | None) -> None:
        """Stores the arrays that exist as buffers."""
        for name, array in arrays.items():
            if array is not None:
                self.register_buffer(name, torch.from_numpy(np.array(array)))

    @override
    def forward(self, obs: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """The action (B, *shape of an action) and the policy's first output (B, P); of a recurrent
        policy also the state (B, H) after the step. Stacked frames are (B, L, ...)."""
        features = self._policy_obs(obs)
        if state is not None:
            features = torch.cat([features, state, torch.ones_like(state[:, :1])], 1)
        params, *others = self._module(features)
        action = self._env_action(self._family(params).mode())
        return (action, params) if state is None else (action, params, others[-1])

    def _policy_obs(self, obs: Tensor) -> Tensor:
        """`PolicyAdapter.policy_obs`."""
        if self._joiner is None:
            return self._frame(obs)
        return self._frame(obs.flatten(0, 1)).reshape(-1, *(self._joiner.space.shape or ()))

    def _frame(self, obs: Tensor) -> Tensor:
        """`ObservationConverter.convert`, then `ObservationNormalizer.normalize`."""
        converter, constants = self._observation, self._buffers
        shape = converter.space.shape or ()
        if "first_column" in constants:
            first = self.get_buffer("first_column")
            columns = obs.reshape(-1, len(first)) + first
            x = (columns.unsqueeze(-1) == torch.arange(math.prod(shape))).any(1).float()
        else:
            x = obs.movedim(-1, -3) if converter.channels_last else obs
            x = x.reshape(-1, *shape).to(_torch_dtype(converter.space.dtype))
        if "mean" not in constants:
            return x
        x = (x.flatten(1) - self.get_buffer("mean")) / self.get_buffer("deviation")
        if self._clip is not None:
            x = x.clamp(-self._clip, self._clip)
        return x.float().reshape(-1, *shape)

    def _env_action(self, action: Tensor) -> Tensor:
        """`ActionConverter.convert`."""
        if "middle" in self._buffers:
            action = action.double() * self.get_buffer("half_width") + self.get_buffer("middle")
            action = action.clamp(self.get_buffer("low"), self.get_buffer("high"))
        elif "start" in self._buffers:
            action = action + self.get_buffer("start")
        return action.reshape(-1, *self._action.shape).to(_torch_dtype(self._action.dtype))


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype
