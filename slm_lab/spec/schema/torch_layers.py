"""The layers of an arc, by torch's own signatures.

Only a spec with an arc needs them, so only that one imports torch, when it is
checked."""

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from slm_lab.core.process import importing
from slm_lab.spec.schema.torch_table import TorchEntry

BY_CHANCE = "draws from torch's global generator, which random_seed does not seed"
RECURRENT = "has a recurrent state; use RecurrentNet"
NOT_ONE = "takes or returns more than one tensor; layers of a body pass one"
ATTENTION = "needs sequences, and an observation is none"
SEVERAL_GPUS = "is for several GPUs"
REFUSED = {
    **dict.fromkeys(
        (
            "Dropout",
            "Dropout1d",
            "Dropout2d",
            "Dropout3d",
            "AlphaDropout",
            "FeatureAlphaDropout",
            "RReLU",
            "FractionalMaxPool2d",
            "FractionalMaxPool3d",
        ),
        BY_CHANCE,
    ),
    **dict.fromkeys(
        (
            "GRU",
            "GRUCell",
            "LSTM",
            "LSTMCell",
            "RNN",
            "RNNBase",
            "RNNCell",
            "RNNCellBase",
        ),
        RECURRENT,
    ),
    **dict.fromkeys(
        (
            "Bilinear",
            "CosineSimilarity",
            "PairwiseDistance",
            "MaxUnpool1d",
            "MaxUnpool2d",
            "MaxUnpool3d",
            "NLLLoss2d",
        ),
        NOT_ONE,
    ),
    **dict.fromkeys(
        (
            "MultiheadAttention",
            "Transformer",
            "TransformerDecoder",
            "TransformerDecoderLayer",
            "TransformerEncoder",
            "TransformerEncoderLayer",
        ),
        ATTENTION,
    ),
    **dict.fromkeys(
        ("Embedding", "EmbeddingBag"), "takes indices, and observations are floats"
    ),
    **dict.fromkeys(("DataParallel", "SyncBatchNorm"), SEVERAL_GPUS),
}
"""Modules of torch.nn that cannot be a layer of a body, with the reason."""
CONTAINERS = (
    "Container",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
)
"""Modules of torch.nn that have other modules or parameters, and do nothing else."""
OWN = {
    "LazyBatchRenorm1d": TorchEntry(
        {"eps": 1e-3, "momentum": 0.01, "warmup_steps": 100_000}, None
    )
}
"""Layers that the lab adds to torch's."""
NOT_FOR_FILES = frozenset({"self", "device", "dtype"})


@lru_cache(maxsize=1)
def layers() -> Mapping[str, TorchEntry]:
    """Every class of layers by its name; losses and containers are none."""
    with importing():
        from torch import nn
    entries = dict(OWN)
    for name, cls in sorted(vars(nn).items()):
        is_module = inspect.isclass(cls) and issubclass(cls, nn.Module)
        if not is_module or cls is nn.Module or name.startswith("_"):
            continue
        if name.endswith("Loss") or name in CONTAINERS:
            continue
        reason = REFUSED.get(name)
        arguments = {} if reason else arguments_of(cls, NOT_FOR_FILES)
        entries[name] = TorchEntry(arguments, reason)
    return entries


def arguments_of(cls: type, left_out: frozenset[str]) -> dict[str, Any]:
    """The arguments of a class of torch with their defaults as a file has them; `...`
    for a required one."""
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        is_named = parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if is_named and name not in left_out:
            arguments[name] = _as_in_a_file(parameter.default)
    return arguments


def _as_in_a_file(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return ...
    if isinstance(default, tuple):
        return list(default)
    if callable(default):  # a function or a class, which a file cannot name
        return None
    return default
