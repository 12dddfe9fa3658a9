"""What every block of a spec has in common: strictness, aliases, and errors in plain words."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import override

from slm_lab.core.registry import nearest_name
from slm_lab.spec.schema.messages import reword

SPEC_ERROR = "spec"
"""The error type of a message that is in its final words already."""


def spec_error(message: str) -> PydanticCustomError:
    """The error to raise in a validator: `message` reaches the user as it stands."""
    return PydanticCustomError(SPEC_ERROR, "{message}", {"message": message})


def error_line(
    loc: tuple[int | str, ...], message: str, given: object, missing: bool = False
) -> InitErrorDetails:
    """One line of a ValidationError: the key `loc` inside this block, and what is wrong with it.

    With `missing` there is no given value to show.
    """
    context = {"message": message, "missing": missing}
    error = PydanticCustomError(SPEC_ERROR, "{message}", context)
    return InitErrorDetails(type=error, loc=loc, input=given)


def spec_errors(title: str, refusals: list[InitErrorDetails]) -> ValidationError:
    """Several refusals as one error."""
    return ValidationError.from_exception_data(title, refusals)


def missing_key_error(key: str, message: str, block: Mapping[str, Any]) -> ValidationError:
    """The error for a block without the `key` that says what it is, and for a misspelt one."""
    lines = [error_line((key,), message, None, missing=True)]
    for given, value in block.items():
        if isinstance(given, str) and nearest_name(given, [key]):
            lines.append(error_line((given,), f"unknown key; did you mean {key}?", value))
    return spec_errors("Block", lines)


class Block(BaseModel):
    """A block of the spec file: strict, immutable, and closed to unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Other spellings of keys: {spelling in old files: key}."""

    LEGACY: ClassVar[Mapping[str, str]] = {}
    """Keys of old files that mean nothing here, and why: {key: reason}. `legacy.py` drops them."""

    @classmethod
    def file_keys(cls) -> list[str]:
        """Every key this block understands, aliases included."""
        return [*cls.model_fields, *cls.ALIASES]

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Aliases and legacy keys are known to editors too."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        properties = schema.get("properties", {})
        for alias, key in cls.ALIASES.items():
            properties[alias] = properties[key]
        for key, reason in cls.LEGACY.items():
            note = f"without meaning: {reason}"
            properties.setdefault(key, {"deprecated": True, "description": note})
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _speak_plainly(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Resolves aliases, and rewords pydantic's errors into the lab's."""
        if not isinstance(data, Mapping):
            return _validated(cls, data, handler, {})
        spelling = {key: alias for alias, key in cls.ALIASES.items() if alias in data}
        for key, alias in spelling.items():
            if key in data:
                both = f"is another spelling of {key}, which is given too; keep one"
                raise spec_errors(cls.__name__, [error_line((alias,), both, data[alias])])
        renamed = {cls.ALIASES.get(key, key): value for key, value in data.items()}
        return _validated(cls, renamed, handler, spelling)


B = TypeVar("B", bound=Block)


def _validated(
    cls: type[B], data: Any, handler: ModelWrapValidatorHandler[B], spelling: Mapping[str, str]
) -> B:
    try:
        return handler(data)
    except ValidationError as error:
        lines = [_line(cls, details, spelling) for details in error.errors(include_url=False)]
    raise spec_errors(cls.__name__, lines)


def _line(cls: type[Block], details: ErrorDetails, spelling: Mapping[str, str]) -> InitErrorDetails:
    loc = details["loc"]
    if loc and isinstance(loc[0], str):
        loc = (spelling.get(loc[0], loc[0]), *loc[1:])
    if details["type"] == SPEC_ERROR:
        missing = bool(details.get("ctx", {}).get("missing", False))
        return error_line(loc, details["msg"], details["input"], missing)
    message = reword(details, cls.model_fields, cls.file_keys())
    return error_line(loc, message, details["input"], details["type"] == "missing")
