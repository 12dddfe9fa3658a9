"""One row or more for every memory and every net that is built, and the blocks of nets.

A part that is registered and has no row fails in `test_table.py`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from slm_lab.agent.memory.memory import MemoryLayout, ReplayConfig, TrainingSchedule

Data = dict[str, Any]


def decay(start: float, end: float) -> Data:
    """A schedule that ends with the run."""
    return {
        "name": "linear_decay",
        "start_val": start,
        "end_val": end,
        "start_step": 0,
        "end_step": 600,
    }


# For images of (2, 12, 12): (4, 5, 5), (6, 3, 3), 54 features.
RECURRENT: Data = {
    "fc_hid_layers": [12],
    "hid_layers_activation": "tanh",
    "rnn_hidden_size": 6,
    "seq_len": 8,
}
CONV: Data = {
    "conv_hid_layers": [[4, 4, 2], [6, 3, 1, 0, 1]],
    "fc_hid_layers": [8],
    "hid_layers_activation": "relu",
    "init_fn": "orthogonal_",
    "normalize": True,
}

TANH = {"hid_layers_activation": "tanh", "init_fn": "orthogonal_"}


def layer(name: str, **args: Any) -> Data:
    """A layer of an arc."""
    return {name: args or None}


def arc(*layers: Data) -> Data:
    """One body of these layers."""
    graph = {"input": "x", "modules": {"body": ["x"]}, "output": "body"}
    return {"modules": {"body": {"Sequential": list(layers)}}, "graph": graph}


PERCEPTRON = arc(
    layer("LazyLinear", out_features=8),
    layer("Tanh"),
    layer("LazyLinear", out_features=6),
    layer("Tanh"),
)
CONVOLUTIONS = arc(
    layer("LazyConv2d", out_channels=4, kernel_size=4, stride=2),
    layer("ReLU"),
    layer("Flatten"),
    layer("LazyLinear", out_features=8),
    layer("ReLU"),
)
RENORMALISED = arc(
    layer("LazyLinear", out_features=8),
    layer("SiLU"),
    layer("LazyBatchRenorm1d", warmup_steps=4, momentum=0.1),
    layer("LazyLinear", out_features=6),
    layer("LayerNorm", normalized_shape=[6]),
    layer("SELU"),
)


@dataclass(frozen=True)
class MemoryRow:
    """A memory block, with what an algorithm says of it."""

    block: Data
    horizon: int = 1
    num_steps: int = 1
    """n of n-step returns, of memories that are drawn from."""

    def layout(self, seed: int) -> MemoryLayout:
        """For three environments, observations (2,) and one action each."""
        schedule = TrainingSchedule(frequency=12, start=24, batches_per_event=2)
        plan = ReplayConfig(schedule, 0.9, self.num_steps, seed)
        i64, f32 = np.dtype(np.int64), np.dtype(np.float32)
        return MemoryLayout(self.horizon, 3, (2,), f32, (), i64, plan)


RING = {"batch_size": 8, "max_size": 60}

MEMORY_ROWS: dict[str, dict[str, MemoryRow]] = {
    "OnPolicyBatchReplay": {
        "steps": MemoryRow({}, horizon=5),
        "one": MemoryRow({}, horizon=1),
    },
    "OnPolicyReplay": {"episodes": MemoryRow({}, horizon=4)},
    "OnPolicyCrossEntropy": {"best_half": MemoryRow({"cross_entropy": 0.5}, horizon=4)},
    "Replay": {
        "uniform": MemoryRow(RING),
        "three_steps": MemoryRow(RING, num_steps=3),
        "combined": MemoryRow({**RING, "use_cer": True}),
    },
    "PrioritizedReplay": {
        "proportional": MemoryRow({**RING, "beta": decay(0.4, 1.0)}),
        "three_steps": MemoryRow({**RING, "use_cer": True}, num_steps=3),
    },
}
"""Each yields a batch within 40 steps, and more than once."""


@dataclass(frozen=True)
class NetRow:
    """A net block, the shape of the observations it is for, and the widths of its
    heads."""

    block: Data
    obs_shape: tuple[int, ...]
    heads: tuple[int, ...] = (3, 1)
    state_around: int = 0
    """What follows an observation: recurrent state and mark."""


IMAGE = (2, 12, 12)
# no corners, which small differences jump over
SMOOTH = {**CONV, "hid_layers_activation": "tanh"}
MLP = {**TANH, "hid_layers": [8, 6]}

NET_ROWS: dict[str, dict[str, NetRow]] = {
    "RecurrentNet": {
        "gru": NetRow(RECURRENT, (4,), state_around=7),
        "lstm_of_two_layers": NetRow(
            {**RECURRENT, "cell_type": "LSTM", "rnn_num_layers": 2},
            (4,),
            state_around=25,
        ),
        "rnn_alone": NetRow(
            {**RECURRENT, "cell_type": "RNN", "fc_hid_layers": []}, (4,), (3,), 7
        ),
    },
    "MLPNet": {
        "tanh": NetRow(MLP, (4,)),
        "relu": NetRow({"hid_layers": [16], "hid_layers_activation": "relu"}, (4,)),
        "by_autograd": NetRow({**MLP, "hid_layers_activation": "silu"}, (4,)),
        "no_hidden_layer": NetRow({**MLP, "hid_layers": []}, (4,)),
        "layer_norm": NetRow({**MLP, "layer_norm": True}, (4,)),
        "batch_norm": NetRow({**MLP, "batch_norm": True}, (4,)),
        "batch_renorm": NetRow({**MLP, "batch_norm": "renorm"}, (4,)),
    },
    "DuelingMLPNet": {
        "tanh": NetRow(MLP, (4,), heads=(3,)),
        "batch_norm": NetRow({**MLP, "batch_norm": True}, (4,), heads=(3,)),
    },
    "HydraMLPNet": {
        "alike": NetRow({**MLP, "hid_layers": [[8], [6], [5]]}, (4,)),
        "each_its_own": NetRow({**MLP, "hid_layers": [[], [6], [[], [5, 5]]]}, (4,)),
        "nothing_shared": NetRow({**MLP, "hid_layers": [[], [], [[5], [5]]]}, (4,)),
        "batch_norm": NetRow(
            {**MLP, "hid_layers": [[8], [6], [5]], "batch_norm": True}, (4,)
        ),
    },
    "ConvNet": {
        "relu": NetRow(CONV, IMAGE),
        "dilated": NetRow(
            {**CONV, "conv_hid_layers": [[4, [3, 5], 1, 2, [2, 1]]]}, IMAGE
        ),
        "no_convolution": NetRow({**CONV, "conv_hid_layers": []}, IMAGE),
        "one_channel": NetRow(SMOOTH, (1, 12, 12)),
        "layer_norm": NetRow({**SMOOTH, "layer_norm": True}, IMAGE),
        "batch_norm": NetRow({**SMOOTH, "batch_norm": True}, IMAGE),
        "batch_renorm": NetRow({**SMOOTH, "batch_norm": "renorm"}, IMAGE),
    },
    "DuelingConvNet": {"relu": NetRow(CONV, IMAGE, heads=(3,))},
    "TorchArcNet": {
        "perceptron": NetRow({"arc": PERCEPTRON}, (4,)),
        "convolutions": NetRow({"arc": CONVOLUTIONS}, IMAGE),
        "renormalised": NetRow({"arc": RENORMALISED, "init_fn": "orthogonal_"}, (4,)),
    },
}
