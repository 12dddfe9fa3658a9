"""One row or more for every memory and every net that is built, and the blocks of nets.

A part that is registered and has no row fails in `test_table.py`.
"""

from dataclasses import replace
from typing import Any

from slm_lab.testing import MemoryCase, NetCase

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


STAGES: Data = {"channels": [4, 5], "num_blocks": 1, "fc_hid_layers": [8]}
# For images of (2, 12, 12): (4, 5, 5), (6, 3, 3), 54 features.
RECURRENT: Data = {
    "fc_hid_layers": [12],
    "hid_layers_activation": "tanh",
    "rnn_hidden_size": 6,
    "seq_len": 8,
}
RESIDUAL: Data = {"width": 8, "num_blocks": 2}
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


RING: Data = {"batch_size": 8, "max_size": 60}


def memory(name: str, horizon: int = 1, num_steps: int = 1, **keys: Any) -> MemoryCase:
    """A memory with these keys."""
    return MemoryCase({"name": name, **keys}, horizon, num_steps)


MEMORY_ROWS: dict[str, dict[str, MemoryCase]] = {
    "OnPolicyBatchReplay": {
        "steps": memory("OnPolicyBatchReplay", horizon=5),
        "one": memory("OnPolicyBatchReplay", horizon=1),
    },
    "OnPolicyReplay": {"episodes": memory("OnPolicyReplay", horizon=4)},
    "OnPolicyCrossEntropy": {
        "best_half": memory("OnPolicyCrossEntropy", horizon=4, cross_entropy=0.5)
    },
    "Replay": {
        "uniform": memory("Replay", **RING),
        "three_steps": memory("Replay", num_steps=3, **RING),
        "combined": memory("Replay", **RING, use_cer=True),
    },
    "PrioritizedReplay": {
        "proportional": memory("PrioritizedReplay", **RING, beta=decay(0.4, 1.0)),
        "three_steps": memory("PrioritizedReplay", num_steps=3, **RING, use_cer=True),
    },
}
"""Each yields a batch within 40 steps, and more than once."""


def net_rows(kind: str, **rows: NetCase) -> dict[str, NetCase]:
    """Cases of a net whose blocks leave out its type."""
    return {
        variant: replace(row, block={"type": kind, **row.block})
        for variant, row in rows.items()
    }


IMAGE = (2, 12, 12)
# no corners, which small differences jump over
SMOOTH = {**CONV, "hid_layers_activation": "tanh"}
SMOOTH_STAGES = {**STAGES, "hid_layers_activation": "tanh"}
MLP = {**TANH, "hid_layers": [8, 6]}

NET_ROWS: dict[str, dict[str, NetCase]] = {
    "RecurrentNet": net_rows(
        "RecurrentNet",
        gru=NetCase(RECURRENT, (4,), state_around=7),
        lstm_of_two_layers=NetCase(
            {**RECURRENT, "cell_type": "LSTM", "rnn_num_layers": 2},
            (4,),
            state_around=25,
        ),
        rnn_alone=NetCase(
            {**RECURRENT, "cell_type": "RNN", "fc_hid_layers": []}, (4,), (3,), 7
        ),
    ),
    "MLPNet": net_rows(
        "MLPNet",
        tanh=NetCase(MLP, (4,)),
        relu=NetCase({"hid_layers": [16], "hid_layers_activation": "relu"}, (4,)),
        by_autograd=NetCase({**MLP, "hid_layers_activation": "silu"}, (4,)),
        no_hidden_layer=NetCase({**MLP, "hid_layers": []}, (4,)),
        layer_norm=NetCase({**MLP, "layer_norm": True}, (4,)),
        batch_norm=NetCase({**MLP, "batch_norm": True}, (4,)),
        batch_renorm=NetCase({**MLP, "batch_norm": "renorm"}, (4,)),
    ),
    "DuelingMLPNet": net_rows(
        "DuelingMLPNet",
        tanh=NetCase(MLP, (4,), heads=(3,)),
        batch_norm=NetCase({**MLP, "batch_norm": True}, (4,), heads=(3,)),
    ),
    "HydraMLPNet": net_rows(
        "HydraMLPNet",
        alike=NetCase({**MLP, "hid_layers": [[8], [6], [5]]}, (4,)),
        each_its_own=NetCase({**MLP, "hid_layers": [[], [6], [[], [5, 5]]]}, (4,)),
        nothing_shared=NetCase({**MLP, "hid_layers": [[], [], [[5], [5]]]}, (4,)),
        batch_norm=NetCase(
            {**MLP, "hid_layers": [[8], [6], [5]], "batch_norm": True}, (4,)
        ),
    ),
    "ConvNet": net_rows(
        "ConvNet",
        relu=NetCase(CONV, IMAGE),
        dilated=NetCase(
            {**CONV, "conv_hid_layers": [[4, [3, 5], 1, 2, [2, 1]]]}, IMAGE
        ),
        no_convolution=NetCase({**CONV, "conv_hid_layers": []}, IMAGE),
        one_channel=NetCase(SMOOTH, (1, 12, 12)),
        layer_norm=NetCase({**SMOOTH, "layer_norm": True}, IMAGE),
        batch_norm=NetCase({**SMOOTH, "batch_norm": True}, IMAGE),
        batch_renorm=NetCase({**SMOOTH, "batch_norm": "renorm"}, IMAGE),
    ),
    "DuelingConvNet": net_rows("DuelingConvNet", relu=NetCase(CONV, IMAGE, heads=(3,))),
    "ResNet": net_rows(
        "ResNet",
        of_the_paper=NetCase({"channels": [4, 6, 6], "fc_hid_layers": [8]}, IMAGE),
        smooth=NetCase(SMOOTH_STAGES, (1, 9, 12), (3,)),
        layer_norm=NetCase({**SMOOTH_STAGES, "layer_norm": True}, IMAGE),
        batch_norm=NetCase({**SMOOTH_STAGES, "batch_norm": True}, IMAGE),
        batch_renorm_after=NetCase(
            {**SMOOTH_STAGES, "batch_norm": "renorm", "norm_place": "after"}, IMAGE
        ),
    ),
    "SimBaNet": net_rows(
        "SimBaNet",
        of_the_paper=NetCase(RESIDUAL, (4,)),
        one_block=NetCase({"width": 6}, (4,)),
        smooth=NetCase(
            {**RESIDUAL, "expansion": 2, "hid_layers_activation": "silu"}, (4,), (3,)
        ),
    ),
    "TorchArcNet": net_rows(
        "TorchArcNet",
        perceptron=NetCase({"arc": PERCEPTRON}, (4,)),
        convolutions=NetCase({"arc": CONVOLUTIONS}, IMAGE),
        renormalised=NetCase({"arc": RENORMALISED, "init_fn": "orthogonal_"}, (4,)),
    ),
}
