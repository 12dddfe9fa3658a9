"""Types of values in a spec, where pydantic's types are too lax, too strict or too
verbose. Frames may be a share of the budget, such as "16%"."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge
from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from slm_lab.spec.modes import MODES
from slm_lab.spec.schema.block import spec_error
from slm_lab.spec.schema.bounds import KEPT, LIST, STEPS_PER_FRAME, UpperBound
from slm_lab.spec.schema.messages import choice_message


def _whole(value: Any) -> Any:
    """Converts 1e6 to an int."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _list_as_tuple(value: Any) -> Any:
    message = LIST.refusal(value)
    if message:
        raise spec_error(message)
    if isinstance(value, list):
        return tuple(value)
    return value


def _bool_or_names(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    names = _list_as_tuple(value)
    are_names = isinstance(names, tuple) and all(isinstance(x, str) for x in names)
    if not are_names or not names:
        raise spec_error("must be true, false, or a list of names")
    return names


def _count_or_frames(value: Any) -> Any:
    frames = _list_as_tuple(value)
    numbers = frames if isinstance(frames, tuple) else (frames,)
    numbers = tuple(map(_whole, numbers))
    least = 1 if isinstance(frames, tuple) else 0
    if not all(type(number) is int and number >= least for number in numbers):
        raise spec_error("must be a number of checkpoints >= 0, or a list of frames")
    message = KEPT.refusal(len(numbers) if isinstance(frames, tuple) else frames)
    if message:
        raise spec_error(message)
    if isinstance(frames, tuple):
        return tuple(sorted(set(numbers)))
    return numbers[0]


def _seconds(value: Any) -> tuple[float, ...] | None:
    """A list of seconds as a tuple; None if it is none."""
    items = _list_as_tuple(value)
    if not isinstance(items, tuple):
        return None
    for item in items:
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        if not is_number or not 0 <= item < inf:
            return None
    return tuple(float(item) for item in items)


def _seconds_of_networks(value: Any) -> Any:
    if value is None:
        return None
    seconds: Any = _seconds(value)
    is_valid = seconds is not None
    if isinstance(value, Mapping):
        seconds = {name: _seconds(items) for name, items in value.items()}
        is_valid = None not in seconds.values()
    if not is_valid:
        raise spec_error(
            "must be a list of seconds >= 0, or an object with such a list for each "
            'network, as {"critic": [0.004], "actor": [0.005]}'
        )
    return seconds


def _word_of_a_mode(value: Any) -> Any:
    if value is False or (isinstance(value, str) and value in MODES.names()):
        return value
    known = choice_message(value, [False, *MODES.names()])
    if isinstance(value, str) and MODES.nearest(value) is None:
        known += (
            "; for another mode install the package that has it, or name it with "
            "--import"
        )
    raise spec_error(known)


def _bool_as_sign(value: Any) -> Any:
    """Converts true to "sign" and false to null."""
    if isinstance(value, bool):
        return {True: "sign", False: None}[value]
    return value


def _number_or(
    words: Sequence[object], allowed: str, above: float = -inf, most: float = inf
) -> BeforeValidator:
    """Allows numbers in a range, as floats, and `words`; `allowed` describes both."""

    def check(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and above < value <= most:
            return float(value)
        if value not in words:
            raise spec_error(f"must be {allowed}")
        return value

    return BeforeValidator(check)


Int: TypeAlias = Annotated[int, BeforeValidator(_whole)]
"""A whole number; 1e6 counts, true and 1.5 do not."""

Count: TypeAlias = Annotated[Int, Ge(1)]
"""A whole number >= 1."""

IntList: TypeAlias = Annotated[tuple[Int, ...], BeforeValidator(_list_as_tuple)]
"""A list of whole numbers, immutable."""

SecondsList: TypeAlias = Annotated[
    tuple[Annotated[float, Ge(0)], ...], BeforeValidator(_list_as_tuple)
]
"""A list of seconds of at least zero."""

SecondsOfNetworks: TypeAlias = Annotated[
    tuple[Annotated[float, Ge(0)], ...]
    | dict[str, tuple[Annotated[float, Ge(0)], ...]]
    | None,
    BeforeValidator(_seconds_of_networks),
]
"""A list of seconds of at least zero; or one by the name of each network; or null."""

StrList: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_list_as_tuple)]
"""A list of strings, immutable."""

BoolOrNames: TypeAlias = Annotated[
    bool | tuple[str, ...], BeforeValidator(_bool_or_names)
]
"""true, false, or a list of names that is not empty."""

CountOrFrames: TypeAlias = Annotated[
    int | tuple[int, ...], BeforeValidator(_count_or_frames)
]
"""A number of checkpoints, or an ascending list of frames."""

AnyList: TypeAlias = Annotated[tuple[Any, ...], BeforeValidator(_list_as_tuple)]
"""A list whose entries the block checks."""


def must_be_false(why: str) -> AfterValidator:
    """Refuses true for the reason `why`."""

    def check(value: bool) -> bool:
        if value:
            raise spec_error(f"must be false: {why}")
        return value

    return AfterValidator(check)


def numbers_up_to(most: UpperBound) -> WithJsonSchema:
    """The JSON Schema of a list of whole numbers."""
    return WithJsonSchema(
        {"type": "array", "items": {"type": "integer", "maximum": most.number}}
    )


class _ModeWords:
    """The JSON Schema of the words of all modes, plug-ins included."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"enum": [False, *MODES.names()]}


Distributed: TypeAlias = Annotated[
    Literal[False] | str, BeforeValidator(_word_of_a_mode), _ModeWords()
]
"""The word of a mode of parallel training, see `slm_lab.spec.modes`."""


def _positive_or(values: list[object], **bounds: float) -> WithJsonSchema:
    """The JSON Schema of these values, or a number > 0 with further `bounds`."""
    return WithJsonSchema(
        {
            "anyOf": [
                {"enum": values},
                {"type": "number", "exclusiveMinimum": 0, **bounds},
            ]
        }
    )


SignOrNumber: TypeAlias = Annotated[
    Literal["sign"] | float | None,
    _number_or([None, "sign"], 'null, "sign" or a number > 0', above=0),
    BeforeValidator(_bool_as_sign),
    _positive_or(["sign", True, False, None]),
]
"""null, "sign" (also written true), or a positive number."""

AutoOrNumber: TypeAlias = Annotated[
    Literal["auto"] | float, _number_or(["auto"], '"auto" or a number')
]
""" "auto" or a number."""

RATIO = f'"spec", a number > 0 and <= {STEPS_PER_FRAME}, or null'
SpecOrRatio: TypeAlias = Annotated[
    Literal["spec"] | float | None,
    _number_or([None, "spec"], RATIO, above=0, most=STEPS_PER_FRAME),
    _positive_or(["spec", None], maximum=STEPS_PER_FRAME),
]
""" "spec", gradient steps per frame, or null."""

PATTERN = r"^\d{1,3}(\.\d{1,30})?%$"
NO_SHARE = 'must be frames, or a share of env.max_frame > 0% and <= 100%, as "16%"'


def share_of(text: str) -> Fraction | None:
    """The share that "16%" is, exactly; None for any other text."""
    if not re.fullmatch(PATTERN, text, re.ASCII):
        return None
    share = Fraction(text.removesuffix("%")) / 100
    if 0 < share <= 1:
        return share
    return None


def _refuse_text(value: Any) -> Any:
    """Rejects text: `spec.budget` has replaced every share."""
    if isinstance(value, str):
        raise spec_error(NO_SHARE)
    return value


class _OrShare:
    """The JSON Schema of a number or a share."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = handler(schema)
        return {
            "anyOf": [number, {"title": "share", "type": "string", "pattern": PATTERN}]
        }


Frames: TypeAlias = Annotated[Int, BeforeValidator(_refuse_text), _OrShare()]
"""A whole number of frames."""

FramesOrFraction: TypeAlias = Annotated[
    float, BeforeValidator(_refuse_text), _OrShare()
]
"""A number of frames, whole or not."""
