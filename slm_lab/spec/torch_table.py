"""Torch's classes by name: optimizers, schedulers, losses, layers, activations, initialisers.

A spec is checked without importing torch. So this module reads torch_table.json, which
tests/unit/spec/generate_torch_table.py generates from the installed torch.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from slm_lab.spec.schema.messages import unknown_name

Kind: TypeAlias = Literal["optimizers", "schedulers", "losses", "layers"]

TABLE = Path(__file__).with_name("torch_table.json")


class Argument(NamedTuple):
    """One argument of a torch class."""

    required: bool
    default: Any


class TorchEntry(NamedTuple):
    """A class of torch: its arguments, or the reason why a spec cannot use it."""

    arguments: Mapping[str, Argument]
    refused: str | None

    def json_schema(self, name: str) -> dict[str, Any]:
        """The JSON Schema of `{"name": name, argument: value, …}`."""
        keys = self.arguments.items()
        properties = {key: {} if arg.required else {"default": arg.default} for key, arg in keys}
        return {
            "type": "object",
            "properties": {"name": {"const": name}, **properties},
            "required": ["name", *(key for key, argument in keys if argument.required)],
            "additionalProperties": False,
        }


_POSITIVE = (lambda x: x > 0, "must be > 0")
_AT_LEAST_0 = (lambda x: x >= 0, "must be >= 0")
_AT_LEAST_1 = (lambda x: x >= 1, "must be >= 1")
_FRACTION = (lambda x: 0 <= x <= 1, "must be between 0 and 1")
NUMBER_BOUNDS = {
    **dict.fromkeys(("lr", "delta"), _POSITIVE),
    **dict.fromkeys(("eps", "weight_decay", "beta", "alpha", "warmup_steps"), _AT_LEAST_0),
    **dict.fromkeys(("frame", "step_size", "out_features", "out_channels"), _AT_LEAST_1),
    **dict.fromkeys(("momentum", "min_factor"), _FRACTION),
}
"""Bounds of an argument of this name in any class: (holds, message)."""
WHOLE = frozenset(
    {"frame", "step_size", "total_iters", "T_max", "T_0", "T_mult", "total_steps", "epochs",
     "steps_per_epoch", "step_size_up", "step_size_down", "out_features", "out_channels"}
)  # fmt: skip
"""Arguments that are counts, so they must be whole numbers."""


TYPE_WORDS = {bool: "must be true or false", str: "must be a string"}


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


@lru_cache(maxsize=8)
def entries(kind: Kind) -> Mapping[str, TorchEntry]:
    """Every class of one kind, by name."""
    return {
        name: TorchEntry(
            {
                key: Argument("default" not in argument, argument.get("default"))
                for key, argument in row.get("arguments", {}).items()
            },
            row.get("refused"),
        )
        for name, row in _table()[kind].items()
    }


@lru_cache(maxsize=1)
def initialisers() -> Mapping[str, str | None]:
    """The functions of torch.nn.init: {name: why it cannot be used, or None}."""
    rows: Mapping[str, str | None] = _table()["initialisers"]
    return rows


@lru_cache(maxsize=1)
def activations() -> Mapping[str, str]:
    """The activations of torch.nn: {name in lower case without "_": name of the class}."""
    return {name.lower(): name for name in _table()["activations"]}


def activation_refusal(name: str) -> str | None:
    """Why the activation of this class cannot be used in a net; None if it can."""
    reason: str | None = _table()["activations"][name]
    return reason


def activation_class(name: str) -> str | None:
    """The torch.nn class named "relu", "leaky_relu" or "LeakyReLU" in a spec; None if unknown."""
    return activations().get(name.lower().replace("_", ""))


def with_whole_numbers(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with counts such as 1e7 converted to integers."""
    return {
        key: int(value) if key in WHOLE and isinstance(value, float) else value
        for key, value in args.items()
    }


def argument_problems(entry: TorchEntry, args: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Wrong arguments of `entry` with messages, in the order of `args`; then missing arguments."""
    for key, value in args.items():
        if key not in entry.arguments:
            message = unknown_name("argument", key, list(entry.arguments))
        else:
            message = _value_message(key, value, entry.arguments[key])
        if message:
            yield key, message
    for key, argument in entry.arguments.items():
        if argument.required and key not in args:
            yield key, "is missing"


def _value_message(key: str, value: Any, argument: Argument) -> str:
    """The problem of a value, compared with the type of torch's default; "" if none."""
    default = argument.default
    counted = key in NUMBER_BOUNDS or key in WHOLE
    if value is None:
        return "" if default is None and not argument.required else "must not be null"
    if counted or (isinstance(default, int | float) and not isinstance(default, bool)):
        return _number_message(key, value)
    if isinstance(default, bool | str):
        return "" if isinstance(value, type(default)) else TYPE_WORDS[type(default)]
    if isinstance(default, list):
        return _list_message(key, value, len(default))
    if argument.required:
        wrong = not _are_numbers(value if isinstance(value, list | tuple) and value else [value])
        return "must be a number or a list of numbers" if wrong else ""
    return "must be finite" if isinstance(value, float) and not math.isfinite(value) else ""


def _number_message(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    if not math.isfinite(value):
        return "must be finite"
    if key in WHOLE and value != int(value):
        return "must be a whole number"
    holds, message = NUMBER_BOUNDS.get(key, (lambda _: True, ""))
    return "" if holds(value) else message


def _are_numbers(values: Sequence[Any]) -> bool:
    return not any(_number_message("", value) for value in values)


def _list_message(key: str, value: Any, length: int) -> str:
    if not isinstance(value, list | tuple) or len(value) != length or not _are_numbers(value):
        return f"must be a list of {length} numbers"
    if key == "betas" and not all(0 <= item < 1 for item in value):
        return "must each be in [0, 1)"
    return ""
