"""The base of every block of a spec: strict keys, aliases, and errors in plain
words."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    ConfigDict,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    ErrorDetails,
    InitErrorDetails,
    PydanticCustomError,
)
from typing_extensions import override

from slm_lab.core.errors import Problem
from slm_lab.core.registry import nearest_name
from slm_lab.spec.schema.messages import reword
from slm_lab.spec.schema.rules import (
    Facts,
    Limit,
    Needed,
    Refused,
    RuledBlock,
    broken_rules,
)

SPEC_ERROR = "spec"
"""The error type of a message that is final."""

REFUSING = (Needed, Refused, Limit)
"""Rules whose violation is an error."""


def spec_error(message: str) -> PydanticCustomError:
    """The error to raise in a validator. Users see `message` unchanged."""
    return PydanticCustomError(SPEC_ERROR, "{message}", {"message": message})


def error_line(
    loc: tuple[int | str, ...], message: str, value: object = ...
) -> InitErrorDetails:
    """One line of a ValidationError: the key `loc` inside this block, and what is wrong
    with it. `value` is the value of the key; `...` if it is missing."""
    context = {"message": message, "missing": value is ...}
    error = PydanticCustomError(SPEC_ERROR, "{message}", context)
    return InitErrorDetails(type=error, loc=loc, input=None if value is ... else value)


def given_value(details: ErrorDetails) -> object:
    """The value that an error is about; `...` if it is missing."""
    missing = details["type"] == "missing" or details.get("ctx", {}).get(
        "missing", False
    )
    if missing:
        return ...
    return details["input"]


def problems_of(error: ValidationError, prefix: str = "") -> list[Problem]:
    """One Problem per line of an error, with dotted paths as in the file, below
    `prefix`."""
    problems = []
    for details in error.errors(include_url=False):
        path = ".".join(str(part) for part in (prefix, *details["loc"]) if part != "")
        problems.append(Problem(path or "spec", details["msg"], given_value(details)))
    return problems


def lines_of(error: ValidationError, *prefix: str) -> list[InitErrorDetails]:
    """The lines of an error of a Block, below the keys `prefix`."""
    return [
        error_line((*prefix, *details["loc"]), details["msg"], given_value(details))
        for details in error.errors(include_url=False)
    ]


def spec_errors(lines: list[InitErrorDetails]) -> ValidationError:
    """Several lines as one error."""
    return ValidationError.from_exception_data("spec", lines)


def raise_errors(lines: Iterable[InitErrorDetails]) -> None:
    """Raises the lines as one error, if there are any."""
    listed = list(lines)
    if listed:
        raise spec_errors(listed)


def key_error(key: str, message: str, value: object = ...) -> ValidationError:
    """The error of one key, see `error_line`."""
    return spec_errors([error_line((key,), message, value)])


def missing_key_error(
    key: str, message: str, block: Mapping[str, Any]
) -> ValidationError:
    """The error for a block without its naming `key`, and for misspellings of that
    key."""
    lines = [error_line((key,), message)]
    hint = f"unknown key; did you mean {key}?"
    for name, value in block.items():
        if isinstance(name, str) and nearest_name(name, [key]):
            lines.append(error_line((name,), hint, value))
    return spec_errors(lines)


class Block(RuledBlock):
    """A block of the spec file: strict and immutable; rejects unknown keys."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
    )

    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Other spellings of keys: {spelling in old files: key}."""

    LEGACY: ClassVar[Mapping[str, str]] = {}
    """Keys of old files without meaning here: {key: reason}. `legacy.py` drops them."""

    @classmethod
    def file_keys(cls) -> list[str]:
        """Every valid key of this block, aliases included."""
        return [*cls.model_fields, *cls.ALIASES]

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds aliases and legacy keys, so that editors know them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        properties = schema.get("properties", {})
        for alias, key in cls.ALIASES.items():
            properties[alias] = properties[key]
        for key, reason in cls.LEGACY.items():
            note = f"without meaning: {reason}"
            properties.setdefault(key, {"deprecated": True, "description": note})
        cls.extend_schema(schema, handler)
        return schema

    @classmethod
    def extend_schema(
        cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler
    ) -> None:
        """Adds what a kind of block accepts beside its fields."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_plain_errors(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        """Resolves aliases, and rewords pydantic's errors into the lab's."""
        spelling: Mapping[str, str] = {}
        if isinstance(data, Mapping):
            spelling = {
                key: alias for alias, key in cls.ALIASES.items() if alias in data
            }
            for key, alias in spelling.items():
                if key in data:
                    both = f"is another spelling of {key}, which is given too; keep one"
                    raise key_error(alias, both, data[alias])
            data = {cls.ALIASES.get(key, key): value for key, value in data.items()}
        try:
            block = handler(data)
        except ValidationError as error:
            errors = error.errors(include_url=False)
            lines = [cls._reworded(details, spelling) for details in errors]
            raise spec_errors(lines) from None
        raise_errors(
            error_line((problem.path.lstrip("."),), problem.message, problem.value)
            for problem in broken_rules(REFUSING, Facts("", block), alone=True)
        )
        return block

    @classmethod
    def _reworded(
        cls, details: ErrorDetails, spelling: Mapping[str, str]
    ) -> InitErrorDetails:
        loc = details["loc"]
        message = details["msg"]
        if loc and isinstance(loc[0], str):
            loc = (spelling.get(loc[0], loc[0]), *loc[1:])
        if details["type"] != SPEC_ERROR:
            message = reword(details, cls.model_fields, cls.file_keys())
        return error_line(loc, message, given_value(details))


@cache
def wrong_default(model: type[Block]) -> str | None:
    """The first default of a model that its own key would not accept; None: all are
    right."""
    try:
        model.model_validate({})
    except ValidationError as error:
        for problem in problems_of(error):
            field = model.model_fields.get(problem.path.partition(".")[0])
            if (
                field is not None
                and not field.is_required()
                and problem.value is not ...
            ):
                return str(problem)
    return None


BlockT = TypeVar("BlockT", bound=Block)


def with_further_errors(
    handler: ModelWrapValidatorHandler[BlockT],
    data: Any,
    further: list[InitErrorDetails],
) -> BlockT:
    """The block that `handler` makes of `data`. Raises its errors and the `further`
    ones."""
    try:
        block = handler(data)
    except ValidationError as error:
        further = [*lines_of(error), *further]
    raise_errors(further)
    return block
