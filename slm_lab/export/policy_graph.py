"""The greedy policy as one torch module, from an environment's observations to its
actions."""

import copy
import math
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from slm_lab.agent.net.recurrent import RecurrentNet
from slm_lab.core.errors import LabError
from slm_lab.records.policy import Policy


@final
class PolicyGraph(nn.Module):
    """Observations (B, ...) → actions and the parameters of their distribution. It
    repeats the conversions of `env.convert`, the network and the most likely action in
    torch, on the CPU. All numbers that they need are constants of it."""

    def __init__(self, policy: Policy) -> None:
        """Raises LabError for a policy that has no such graph."""
        super().__init__()
        conversions = policy.adapter.conversions
        actor = policy.actor
        self._observation = conversions.observation
        self._action = conversions.action
        self._joiner = conversions.joiner
        normalizer = conversions.normalizer
        if actor.module is None or actor.family is None:
            raise LabError("an agent without a network cannot be exported")
        if self._observation.resizes:
            raise LabError(
                "env.image_downsize: an image that Pillow resizes cannot be exported; "
                "resize it in the environment, as "
                "gymnasium.wrappers.ResizeObservation does"
            )
        self._module = copy.deepcopy(actor.module).cpu().requires_grad_(False)
        self._family = actor.family
        self._clip = math.inf
        constants = {
            "first": self._observation.first_column,
            "start": self._action.start,
        }
        if normalizer is not None:
            self._clip = math.inf if normalizer.clip is None else normalizer.clip
            constants |= {"mean": normalizer.statistics.mean}
            constants |= {"deviation": normalizer.statistics.deviation()}
        if self._action.scaling is not None:
            constants |= self._action.scaling._asdict()
        for name, array in constants.items():
            if array is not None:  # torch.export stumbles over a buffer of None
                self.register_buffer(name, torch.from_numpy(array.copy()))
        space = policy.adapter.flat_space
        frames = () if self._joiner is None else (self._joiner.length,)
        self.inputs = {"obs": np.zeros((2, *frames, *(space.shape or ())), space.dtype)}
        """An example of each input, with B = 2; named as in the file."""
        self.outputs = ["action", "values"]
        for net in self._module.modules():
            if isinstance(net, RecurrentNet):
                self.inputs["state"] = np.zeros((2, net.state_size), np.float32)
                self.outputs.append("next_state")
        batch = torch.export.Dim("batch")
        self.shapes = {name: {0: batch} for name in self.inputs}
        """The axes of any size."""
        self.example = tuple(map(torch.from_numpy, self.inputs.values()))

    @override
    def forward(self, obs: Tensor, state: Tensor | None = None) -> tuple[Tensor, ...]:
        """The action (B, *shape of an action) and the policy's first output (B, P); of
        a recurrent policy also the state (B, H) after the step. Stacked frames are (B,
        L, ...)."""
        if self._joiner is None:
            x = self._frame(obs)
        else:
            x = self._frame(obs.flatten(0, 1)).reshape(
                -1, *(self._joiner.space.shape or ())
            )
        if state is not None:
            x = torch.cat([x, state, torch.ones_like(state[:, :1])], 1)
        params, *others = self._module(x)
        action = self._env_action(self._family(params).mode())
        if state is None:
            return (action, params)
        return (action, params, others[-1])

    def _frame(self, obs: Tensor) -> Tensor:
        converter = self._observation
        first = self._constant("first")
        mean = self._constant("mean")
        shape = converter.space.shape or ()
        if first is None:
            x = obs
            if converter.channels_last:
                x = obs.movedim(-1, -3)
            x = x.reshape(-1, *shape).to(_torch_dtype(converter.space.dtype))
        else:
            columns = obs.reshape(-1, len(first), 1) + first[:, None]
            x = (columns == torch.arange(math.prod(shape))).any(1).float()
        if mean is None:
            return x
        x = (x.flatten(1) - mean) / self.get_buffer("deviation")
        return x.clamp(-self._clip, self._clip).float().reshape(-1, *shape)

    def _env_action(self, action: Tensor) -> Tensor:
        half_width = self._constant("half_width")
        start = self._constant("start")
        if half_width is not None:
            action = action.double() * half_width + self.get_buffer("middle")
            action = action.clamp(self.get_buffer("low"), self.get_buffer("high"))
        elif start is not None:
            action = action + start
        return action.reshape(-1, *self._action.shape).to(
            _torch_dtype(self._action.dtype)
        )

    def _constant(self, name: str) -> Tensor | None:
        return self._buffers.get(name)


def _torch_dtype(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.zeros(1, dtype)).dtype
