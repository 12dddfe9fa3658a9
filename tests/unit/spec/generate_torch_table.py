"""Writes slm_lab/spec/schema/torch_table.json from the installed torch.

    python tests/unit/spec/generate_torch_table.py

test_torch_table.py compares the file with the torch it runs on.
"""

import inspect
import json
from typing import Any

import torch

from slm_lab.spec.schema.torch_table import TABLE

FUNCTIONS = "takes functions or objects, which a spec file cannot write"
REFUSED = {
    "LBFGS": "calls the loss again and again inside one step; use GlobalAdam or "
    "another",
    "SparseAdam": "needs sparse gradients, which no net here has; use GlobalAdam",
    "LambdaLR": FUNCTIONS,
    "MultiplicativeLR": FUNCTIONS,
    "SequentialLR": FUNCTIONS,
    "ChainedScheduler": FUNCTIONS,
    "LRScheduler": "is the base class of the schedulers",
    "ReduceLROnPlateau": "follows a validation metric, and there is none during "
    "training",
    "SWALR": "belongs to weight averaging, which the lab does not do",
    "Muon": "updates matrices only, and every net here has bias vectors; use "
    "GlobalAdam",
    "BCELoss": "compares probabilities, not values",
    "BCEWithLogitsLoss": "compares probabilities, not values",
    "CrossEntropyLoss": "compares probabilities, not values",
    "KLDivLoss": "compares distributions, not values",
    "HingeEmbeddingLoss": "compares classes, not values",
    "MultiLabelSoftMarginLoss": "compares classes, not values",
    "SoftMarginLoss": "compares classes, not values",
    "MultiLabelMarginLoss": "compares classes, not values",
    "MultiMarginLoss": "compares classes, not values",
    "NLLLoss": "compares classes, not values",
    "GLU": "halves the width of its input",
    "Softmax2d": "is for images",
    "RReLU": "draws random numbers, which would not be those of random_seed",
    "dirac_": "is for convolutions",
}
BY_CHANCE = "draws from torch's global generator, which random_seed does not seed"
RECURRENT = "has a recurrent state; use RecurrentNet"
NOT_ONE = "takes or returns more than one tensor; layers of a body pass one"
ATTENTION = "needs sequences, and an observation is none"
SEVERAL_GPUS = "is for several GPUs"
REFUSED_LAYERS = {
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
"""Modules that cannot be a layer of a body."""
MORE_THAN_A_TARGET = "compares more than a prediction with its target"
OWN_SCHEDULERS = {
    "LinearToZero": {"frame": {"default": None}},
    "LinearToMin": {"frame": {"default": None}, "min_factor": {"default": 0.1}},
}
OWN_LAYERS = {
    "LazyBatchRenorm1d": {
        "eps": {"default": 1e-3},
        "momentum": {"default": 0.01},
        "warmup_steps": {"default": 100_000},
    }
}
NOT_FOR_FILES = (
    *("self", "params", "optimizer", "last_epoch", "verbose", "device", "dtype"),
    # of optimizers: for graphs that are not captured here
    *("differentiable", "capturable"),
    # of losses: the mean is the lab's to take
    *("reduction", "size_average", "reduce"),
)


def arguments(cls: type) -> dict[str, Any]:
    """{argument: {} if required, else {"default": value}}, less what a file cannot
    give."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls.__init__).parameters.items():
        if name in NOT_FOR_FILES or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        default = parameter.default
        if default is parameter.empty:
            found[name] = {}
        elif isinstance(default, torch.Tensor | type) or callable(default):
            found[name] = {"default": None}
        else:
            found[name] = {
                "default": list(default) if isinstance(default, tuple) else default
            }
    return found


def row(name: str, cls: type, refused: dict[str, str] = REFUSED) -> dict[str, Any]:
    if name in refused:
        return {"refused": refused[name]}
    return {"arguments": arguments(cls)}


def classes(module: Any, base: type) -> dict[str, type]:
    return {
        name: cls
        for name, cls in sorted(vars(module).items())
        if inspect.isclass(cls)
        and issubclass(cls, base)
        and cls is not base
        and not name.startswith("_")
    }


def optimizers() -> dict[str, Any]:
    found = {
        n: row(n, c) for n, c in classes(torch.optim, torch.optim.Optimizer).items()
    }
    return {"GlobalAdam": found["Adam"], "GlobalRMSprop": found["RMSprop"], **found}


def schedulers() -> dict[str, Any]:
    module = torch.optim.lr_scheduler
    own = {name: {"arguments": args} for name, args in OWN_SCHEDULERS.items()}
    return own | {n: row(n, c) for n, c in classes(module, module.LRScheduler).items()}


def losses() -> dict[str, Any]:
    """Those of a prediction and a target; the others are refused with this reason."""
    found: dict[str, Any] = {}
    for name, cls in classes(torch.nn, torch.nn.Module).items():
        if name.endswith("Loss"):
            inputs = len(inspect.signature(cls.forward).parameters) - 1
            needed = [key for key, argument in arguments(cls).items() if argument == {}]
            fits = inputs == 2 and not needed
            found[name] = row(name, cls) if fits else {"refused": MORE_THAN_A_TARGET}
    return found


def layers() -> dict[str, Any]:
    containers = (
        "Container",
        "Sequential",
        "ModuleList",
        "ModuleDict",
        "ParameterList",
        "ParameterDict",
    )
    own = {name: {"arguments": args} for name, args in OWN_LAYERS.items()}
    found = classes(torch.nn, torch.nn.Module)
    return own | {
        name: row(name, cls, REFUSED_LAYERS)
        for name, cls in found.items()
        if not name.endswith("Loss") and name not in containers
    }


def activations() -> dict[str, str | None]:
    """Those that need no argument: {name: None, or why it is refused}."""
    found = classes(torch.nn.modules.activation, torch.nn.Module)
    return {
        name: REFUSED.get(name)
        for name, cls in found.items()
        if not any(argument == {} for argument in arguments(cls).values())
    }


def initialisers() -> dict[str, str | None]:
    """Functions of torch.nn.init that change a tensor in place and need nothing
    else."""
    found: dict[str, str | None] = {}
    for name, function in sorted(vars(torch.nn.init).items()):
        if (
            not name.endswith("_")
            or name.startswith("_")
            or not inspect.isfunction(function)
        ):
            continue
        parameters = list(inspect.signature(function).parameters.values())[1:]
        needed = [p.name for p in parameters if p.default is p.empty]
        missing = None
        if needed:
            missing = f"needs {', '.join(needed)}, which init_fn cannot give"
        found[name] = REFUSED.get(name, missing)
    return found


def torch_table() -> dict[str, Any]:
    """The whole table, as JSON data."""
    return {
        "torch": torch.__version__.split("+")[0],
        "optimizers": optimizers(),
        "schedulers": schedulers(),
        "losses": losses(),
        "layers": layers(),
        "activations": activations(),
        "initialisers": initialisers(),
    }


def as_text(table: dict[str, Any]) -> str:
    return json.dumps(table, indent=1) + "\n"


if __name__ == "__main__":
    TABLE.write_text(as_text(torch_table()), encoding="utf-8")
