"""A recurrent net.

It sees packed rows: an observation, the recurrent state of the actor before it, and a
mark. A row whose mark is not zero starts a sequence from that state; any other
continues the row before it. So a batch defines its sequences by the order of its rows.
Each row of an actor starts one."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from typing_extensions import override

from slm_lab.agent.net.body import BodyNet
from slm_lab.agent.net.layers import Empty, as_floats
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.agent.recurrent_state import obs_columns
from slm_lab.core.observation import BYTE, FLOAT32
from slm_lab.core.types import Shape


class EmptyGRU(Empty, nn.GRU):
    """Layers without values, which `init_recurrent` fills."""


class EmptyLSTM(Empty, nn.LSTM):
    """Layers without values, which `init_recurrent` fills."""


class EmptyRNN(Empty, nn.RNN):
    """Layers without values, which `init_recurrent` fills."""


CELLS: dict[str, Callable[..., nn.RNNBase]] = {
    "GRU": EmptyGRU,
    "LSTM": EmptyLSTM,
    "RNN": EmptyRNN,
}


class RecurrentNet(nn.Module):
    """Hidden layers, recurrent ones, and a net with the outputs. The cell takes the
    last features of `body`, as many as it has inputs; others pass beside it. Gradients
    flow over `seq_len` steps; of a replayed sequence the first `burn_in` are not
    learned from."""

    def __init__(
        self,
        body: MLPNet | BodyNet,
        cell: nn.RNNBase,
        tail: nn.Module,
        *,
        obs_shape: Shape,
        obs_dtype: np.dtype[np.generic] = FLOAT32,
        seq_len: int = 4,
        burn_in: int = 0,
    ) -> None:
        super().__init__()
        self.body = body
        self.cell = cell
        self.tail = tail
        self._gates = 2 if isinstance(cell, nn.LSTM) else 1
        self.state_size = self._gates * cell.num_layers * cell.hidden_size
        self.seq_len = seq_len
        self.burn_in = burn_in
        self._obs_shape = obs_shape
        self._num_numbers = math.prod(obs_shape)
        self._in_bytes = obs_dtype == BYTE
        self._state_start = obs_columns(self._num_numbers, obs_dtype)
        self.offset_state(0)

    def offset_state(self, first: int) -> None:
        """Sets where its part of a row's state starts: other nets may have parts there,
        too."""
        columns = FLOAT32.itemsize if self._in_bytes else 1
        start = self._state_start + first * columns
        self._state_at = slice(start, start + self.state_size * columns)

    @override
    def forward(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Packed rows (B, ...) to one (B, head_dim) per head. While it learns with
        burn-in, B is a multiple of L: each L rows are a replayed sequence."""
        beside, x = self._features(self._obs(rows))
        state = self._state(rows)
        starts = rows[:, -1] != 0
        if self.burn_in and torch.is_grad_enabled():
            return self._outputs(beside, self._burnt_in(x, state, starts))
        features, _ = self._over_rows(x, state, starts)
        return self._outputs(beside, features)

    def step(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Outputs for rows that each start a sequence, and the state (B, H) after
        each."""
        return self.advance(self._obs(rows), self._state(rows))

    def advance(
        self, obs: Tensor | Mapping[str, Tensor], state: Tensor
    ) -> tuple[Tensor, ...]:
        """The outputs for observations, or for their parts by name, and the state after
        each. Each observation starts a sequence from its state in `state` (B, H)."""
        hidden = self._as_hidden(state)
        beside, x = self._features(obs)
        features, hidden = self.cell(x.unsqueeze(1), hidden)
        outputs = self._outputs(beside, features.squeeze(1))
        return (*outputs, self._as_state(hidden))

    def _obs(self, rows: Tensor) -> Tensor:
        numbers = rows[:, : self._num_numbers]
        return numbers.reshape(-1, *self._obs_shape)

    def _features(self, obs: Tensor | Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """The features that pass beside the cell, and those that it takes."""
        if isinstance(self.body, BodyNet):
            features = self.body.features(obs)
        else:
            assert isinstance(obs, Tensor), "parts have a body that encodes them"
            features = self.body.features(as_floats(obs))
        num_beside = features.shape[-1] - self.cell.input_size
        return features[:, :num_beside], features[:, num_beside:]

    def _outputs(self, beside: Tensor, remembered: Tensor) -> tuple[Tensor, ...]:
        """The outputs for features beside the cell, and those that it puts out."""
        features = remembered
        if beside.shape[-1] > 0:
            features = torch.cat([beside, remembered], -1)
        outputs: tuple[Tensor, ...] = self.tail.forward(features)
        return outputs

    def _state(self, rows: Tensor) -> Tensor:
        state = rows[:, self._state_at]
        if self._in_bytes:
            return state.view(torch.float32)
        return state

    def _burnt_in(self, x: Tensor, state: Tensor, starts: Tensor) -> Tensor:
        """The output of the last recurrent layer, (B, W), over sequences of L rows. The
        first rows of each only update the state, without a gradient. This is burn-in,
        section 3 of Kapturowski et al., "R2D2" (2019)."""
        rows = x, state, starts
        x, state, starts = (
            part.view(-1, self.seq_len, *part.shape[1:]) for part in rows
        )
        before = slice(0, self.burn_in)
        after = slice(self.burn_in, None)
        starts = starts.clone()
        starts[:, 0] = True
        with torch.no_grad():
            burnt, ends = self._over_rows(
                *(p[:, before].flatten(0, 1) for p in (x, state, starts))
            )
        # an episode may start within a sequence
        last = starts[:, before].sum(1).cumsum(0) - 1
        state = state[:, after].clone()
        starts = starts[:, after]
        state[:, 0] = torch.where(starts[:, :1], state[:, 0], ends[last])
        starts = starts.clone()
        starts[:, 0] = True
        learned, _ = self._over_rows(
            *(p.flatten(0, 1) for p in (x[:, after], state, starts))
        )
        parts = (
            burnt.view(len(x), -1, burnt.shape[-1]),
            learned.view(len(x), -1, burnt.shape[-1]),
        )
        return torch.cat(parts, 1).flatten(0, 1)

    def _over_rows(
        self, x: Tensor, state: Tensor, starts: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The output of the last recurrent layer, (B, W), and the state (S, H) after
        each sequence. A sequence starts where `starts` (B,) is true, from `state` (B,
        H) there."""
        starts = starts.clone()
        starts[0] = True
        (start,) = starts.nonzero(as_tuple=True)
        lengths = torch.diff(start, append=start.new_tensor([len(x)])).tolist()
        features, hidden = self._unroll(x, lengths, self._as_hidden(state[start]))
        return features, self._as_state(hidden)

    def _unroll(self, x: Tensor, lengths: list[int], hidden: Any) -> tuple[Tensor, Any]:
        """The output of the last recurrent layer, (B, W), and the final hidden
        states."""
        longest = max(lengths)
        if longest == min(lengths):  # a view: nothing has to be packed
            features, hidden = self.cell(x.view(-1, longest, x.shape[-1]), hidden)
            return features.flatten(0, 1), hidden
        packed = pack_sequence(list(torch.split(x, lengths)), enforce_sorted=False)
        features, hidden = self.cell(packed, hidden)
        padded, _ = pad_packed_sequence(features, batch_first=True)
        steps = torch.arange(longest, device=x.device)
        return padded[steps < torch.tensor(lengths, device=x.device)[:, None]], hidden

    def _as_hidden(self, state: Tensor) -> Any:
        """(S, H) to the cell's input: (layers, S, W), or a pair of them for an LSTM."""
        layers = self.cell.num_layers
        size = self.cell.hidden_size
        parts = state.reshape(-1, self._gates, layers, size)
        parts = parts.permute(1, 2, 0, 3).contiguous()
        if len(parts) == 2:
            return (parts[0], parts[1])
        return parts[0]

    def _as_state(self, hidden: Any) -> Tensor:
        parts = (
            torch.stack(hidden) if isinstance(hidden, tuple) else hidden.unsqueeze(0)
        )
        return parts.permute(2, 0, 1, 3).flatten(1)
