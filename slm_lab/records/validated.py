"""Recorded JSON as typed values; or one error with file, key and fix."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from slm_lab.core.errors import Problem, UsageError
from slm_lab.spec.schema.block import given_value
from slm_lab.spec.schema.messages import reword

T = TypeVar("T")

KINDS = {
    "missing_argument": "missing",
    "unexpected_keyword_argument": "extra_forbidden",
}
"""The present words for what pydantic 2.11 says of the fields of a NamedTuple."""


class UnreadableFileError(UsageError):
    """A file of the lab is damaged, or a later version has written it."""


def validated(
    kind: type[T], content: bytes | str, file: Path, fix: str, place: str = ""
) -> T:
    """The value of type `kind` in JSON text, which `file` holds at a dotted `place`.
    Raises UnreadableFileError with the first key that is missing or wrong."""
    try:
        return TypeAdapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        raise damaged(file, _problem(error.errors()[0], place), fix) from None


def damaged(file: Path, problem: Problem | str, fix: str) -> UnreadableFileError:
    """The error of a file that holds something else than the lab has written."""
    return UnreadableFileError(f"{file} is damaged: {problem}; {fix}")


def _problem(details: ErrorDetails, place: str) -> Problem | str:
    """What is wrong, with the path of its key. A text that is no JSON has no key."""
    details["type"] = KINDS.get(details["type"], details["type"])
    message = reword(details, {}, ())
    path = ".".join(str(part) for part in (place, *details["loc"]) if part != "")
    if not path:
        return message
    return Problem(path, message, given_value(details))
