"""Torch's classes by name: optimizers, schedulers, losses, activations, initialisers.

A spec without an arc is checked without importing torch. So this module reads
torch_table.json, which tests/unit/spec/generate_torch_table.py generates from the
installed torch. `torch_layers` has the layers of an arc."""

import json
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from slm_lab.spec.schema.fields import NO_SHARE
from slm_lab.spec.schema.messages import unknown_name

Kind: TypeAlias = Literal["optimizers", "schedulers", "losses"]

TABLE = Path(__file__).with_name("torch_table.json")


class TorchEntry(NamedTuple):
    """A class of torch: its arguments, or the reason why a spec cannot use it."""

    arguments: Mapping[str, Any]
    """The default of each argument; `...` for a required one."""
    refused: str | None

    def json_schema(self, name: str) -> dict[str, Any]:
        """The JSON Schema of `{"name": name, argument: value, …}`."""
        keys = self.arguments.items()
        properties = {
            key: {} if value is ... else {"default": value} for key, value in keys
        }
        return {
            "type": "object",
            "properties": {"name": {"const": name}, **properties},
            "required": ["name", *(key for key, value in keys if value is ...)],
            "additionalProperties": False,
        }


_POSITIVE = (lambda x: x > 0, "must be > 0")
_AT_LEAST_0 = (lambda x: x >= 0, "must be >= 0")
_AT_LEAST_1 = (lambda x: x >= 1, "must be >= 1")
_FRACTION = (lambda x: 0 <= x <= 1, "must be between 0 and 1")
NUMBER_BOUNDS = {
    **dict.fromkeys(("lr", "delta"), _POSITIVE),
    **dict.fromkeys(
        ("eps", "weight_decay", "beta", "alpha", "warmup_steps"), _AT_LEAST_0
    ),
    **dict.fromkeys(
        ("frame", "step_size", "out_features", "out_channels"), _AT_LEAST_1
    ),
    **dict.fromkeys(("momentum", "min_factor"), _FRACTION),
}
"""Bounds of an argument of this name in any class: (holds, message)."""
COUNTS = frozenset(
    {
        "frame",
        "step_size",
        "total_iters",
        "T_max",
        "T_0",
        "T_mult",
        "total_steps",
        "epochs",
        "steps_per_epoch",
        "step_size_up",
        "step_size_down",
        "out_features",
        "out_channels",
    }
)
"""Arguments that must be whole numbers."""


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


@lru_cache(maxsize=8)
def entries(kind: Kind) -> Mapping[str, TorchEntry]:
    """Every class of one kind, by name."""
    classes = {}
    for name, row in _table()[kind].items():
        if isinstance(row, str):
            classes[name] = TorchEntry({}, refused=row)
            continue
        arguments = {key: ... if value == {} else value for key, value in row.items()}
        classes[name] = TorchEntry(arguments, refused=None)
    return classes


def refusals(kind: Literal["activations", "initialisers"]) -> Mapping[str, str | None]:
    """The activations of torch.nn, or the functions of torch.nn.init: {name: why a spec
    cannot use it, or None}."""
    return _table()[kind]


def activation_class(name: str) -> str | None:
    """The torch.nn class named "relu", "leaky_relu" or "LeakyReLU" in a spec; None if
    unknown."""
    wanted = name.lower().replace("_", "")
    return next(
        (
            candidate
            for candidate in refusals("activations")
            if candidate.lower() == wanted
        ),
        None,
    )


def with_whole_numbers(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with counts such as 1e7 converted to integers."""
    return {
        key: int(value) if key in COUNTS and isinstance(value, float) else value
        for key, value in args.items()
    }


def argument_problems(
    entry: TorchEntry, args: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Wrong arguments of `entry` with messages, in the order of `args`; then missing
    arguments."""
    for key, value in args.items():
        if key not in entry.arguments:
            yield key, unknown_name("argument", key, list(entry.arguments))
        elif message := _value_message(key, value, entry.arguments[key]):
            yield key, message
    for key, default in entry.arguments.items():
        if default is ... and key not in args:
            yield key, "is missing"


def _value_message(key: str, value: Any, default: Any) -> str:
    if value is None:
        return "" if default is None else "must not be null"
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    if key in NUMBER_BOUNDS or key in COUNTS or is_number:
        return _number_message(key, value)
    if isinstance(default, bool | str) and not isinstance(value, type(default)):
        return (
            "must be true or false" if isinstance(default, bool) else "must be a string"
        )
    if isinstance(default, list):
        return _list_message(key, value, len(default))
    if default is ...:
        numbers = value if isinstance(value, list | tuple) and value else [value]
        wrong = any(_number_message("", number) for number in numbers)
        return "must be a number or a list of numbers" if wrong else ""
    return (
        "must be finite"
        if isinstance(value, float) and not math.isfinite(value)
        else ""
    )


def _number_message(key: str, value: Any) -> str:
    if key == "lr" and isinstance(value, Mapping):
        return "must be a number; the net's lr_scheduler_spec changes it over the run"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NO_SHARE if key == "frame" else "must be a number"
    if not math.isfinite(value):
        return "must be finite"
    if key in COUNTS and value != int(value):
        return "must be a whole number"
    holds, message = NUMBER_BOUNDS.get(key, (lambda _: True, ""))
    return "" if holds(value) else message


def _list_message(key: str, value: Any, length: int) -> str:
    right = isinstance(value, list | tuple) and len(value) == length
    if not right or any(_number_message("", number) for number in value):
        return f"must be a list of {length} numbers"
    if key == "betas" and not all(0 <= item < 1 for item in value):
        return "must each be in [0, 1)"
    return ""
