"""Writes slm_lab/spec/schema/torch_table.json from the installed torch.

    python tests/unit/spec/generate_torch_table.py

test_torch_table.py compares the file with the torch it runs on.
"""

import inspect
import json
from pathlib import Path
from typing import Any

import torch

from slm_lab.spec.schema.torch_layers import arguments_of

TABLE = Path(__file__).parents[3] / "slm_lab" / "spec" / "schema" / "torch_table.json"

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
MORE_THAN_A_TARGET = "compares more than a prediction with its target"
OWN_SCHEDULERS = {
    "LinearToZero": {"frame": None},
    "LinearToMin": {"frame": None, "min_factor": 0.1},
}
NOT_FOR_FILES = frozenset(
    {
        *("self", "params", "optimizer", "last_epoch", "verbose", "device", "dtype"),
        # of optimizers: for graphs that are not captured here
        *("differentiable", "capturable"),
        # of losses: the mean is the lab's to take
        *("reduction", "size_average", "reduce"),
    }
)


def arguments(cls: type) -> dict[str, Any]:
    """{argument: default}, less what a file cannot give; {} stands for a required
    one."""
    found = arguments_of(cls, NOT_FOR_FILES)
    return {name: {} if value is ... else value for name, value in found.items()}


def row(name: str, cls: type) -> dict[str, Any] | str:
    """The arguments of a class, or why it is refused."""
    return REFUSED.get(name) or arguments(cls)


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
    return OWN_SCHEDULERS | {
        n: row(n, c) for n, c in classes(module, module.LRScheduler).items()
    }


def losses() -> dict[str, Any]:
    """Those of a prediction and a target; the others are refused with this reason."""
    found: dict[str, Any] = {}
    for name, cls in classes(torch.nn, torch.nn.Module).items():
        if name.endswith("Loss"):
            inputs = len(inspect.signature(cls.forward).parameters) - 1
            needed = [key for key, argument in arguments(cls).items() if argument == {}]
            fits = inputs == 2 and not needed
            found[name] = row(name, cls) if fits else MORE_THAN_A_TARGET
    return found


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
        "optimizers": optimizers(),
        "schedulers": schedulers(),
        "losses": losses(),
        "activations": activations(),
        "initialisers": initialisers(),
    }


def as_text(table: dict[str, Any]) -> str:
    """The table as JSON, with a class on each line."""
    kinds = []
    for kind, rows in table.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items()]
        joined = ",\n".join(lines)
        kinds.append(f" {json.dumps(kind)}: {{\n{joined}\n }}")
    return "{\n" + ",\n".join(kinds) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(as_text(torch_table()), encoding="utf-8")
