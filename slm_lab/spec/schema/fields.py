"""Types of values in a spec where pydantic's own are too lax, too strict, or too talkative."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from slm_lab.spec.modes import MODES
from slm_lab.spec.schema.block import spec_error
from slm_lab.spec.schema.bounds import STEPS_PER_FRAME
from slm_lab.spec.schema.messages import not_among


def _whole(value: Any) -> Any:
    """1e6 is a whole number, however it is written."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _list_as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_of(values: Sequence[object]) -> Callable[[Any], Any]:
    """Only these values and types: 0 is not false, 1 is not true."""

    def check(value: Any) -> Any:
        if not any(type(value) is type(v) and value == v for v in values):
            raise spec_error(not_among(value, values))
        return value

    return check


def _word_of_a_mode(value: Any) -> Any:
    return _one_of([False, *MODES.names()])(value)


def _sign_or_number(value: Any) -> Any:
    """true is "sign", false is null; otherwise "sign" or a number > 0."""
    if isinstance(value, bool):
        return "sign" if value else None
    if value is None or value == "sign":
        return value
    if isinstance(value, int | float) and value > 0:
        return float(value)
    raise spec_error('must be null, "sign" or a number > 0')


def _auto_or_number(value: Any) -> Any:
    if value == "auto" or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value if value == "auto" else float(value)
    raise spec_error('must be "auto" or a number')


def _spec_or_ratio(value: Any) -> Any:
    if value is None or value == "spec":
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 < value <= STEPS_PER_FRAME:
        return float(value)
    raise spec_error(f'must be "spec", a number > 0 and <= {STEPS_PER_FRAME}, or null')


Int: TypeAlias = Annotated[int, BeforeValidator(_whole)]
"""A whole number; 1e6 counts, true and 1.5 do not."""

IntList: TypeAlias = Annotated[tuple[Int, ...], BeforeValidator(_list_as_tuple)]
"""A list of whole numbers, immutable."""

AnyList: TypeAlias = Annotated[tuple[Any, ...], BeforeValidator(_list_as_tuple)]
"""A list that its block checks itself."""


class _ModeWords:
    """Editors know the words of all modes, those of installed packages too."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": [False, *MODES.names()]}


Distributed: TypeAlias = Annotated[
    Literal[False] | str, BeforeValidator(_word_of_a_mode), _ModeWords()
]
"""The mode of parallel training, in one word; see `slm_lab.spec.modes`."""

Gpu: TypeAlias = Annotated[bool | Literal["auto"], BeforeValidator(_one_of([False, True, "auto"]))]
"""Whether to train on a GPU."""

BatchNorm: TypeAlias = Annotated[
    bool | Literal["renorm"], BeforeValidator(_one_of([False, True, "renorm"]))
]
"""Whether, and which, batch normalisation."""

SignOrNumber: TypeAlias = Annotated[
    Literal["sign"] | float | None,
    BeforeValidator(_sign_or_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["sign", True, False, None]},
                {"type": "number", "exclusiveMinimum": 0},
            ]
        }
    ),
]
"""null, "sign" (also written true), or a positive number."""

AutoOrNumber: TypeAlias = Annotated[Literal["auto"] | float, BeforeValidator(_auto_or_number)]
""" "auto" or a number."""

SpecOrRatio: TypeAlias = Annotated[
    Literal["spec"] | float | None,
    BeforeValidator(_spec_or_ratio),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["spec", None]},
                {"type": "number", "exclusiveMinimum": 0, "maximum": STEPS_PER_FRAME},
            ]
        }
    ),
]
""" "spec", gradient steps per frame, or null."""
