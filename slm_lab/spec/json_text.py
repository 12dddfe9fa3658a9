"""Parses the JSON of spec files: allows comments and trailing commas, rejects duplicate
keys and NaN."""

import json
import re
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.limits import JSON_VALUES, YAML_BYTES, check_extent, too_deep

STRING = r'"(?:[^"\\]++|\\.)*+"?'
"""Also matches an unterminated string, so that it is scanned once, not from each quote
in it."""
OPEN_COMMENT = r"/\*(?:[^*]++|\*(?!/))*+"
COMMENT = re.compile(
    rf"({STRING}|{OPEN_COMMENT}\Z)|//[^\r\n]*+|{OPEN_COMMENT}\*/", re.DOTALL
)
"""Its group matches what stays: strings, and a comment without an end, which is an
error there."""
TRAILING_COMMA = re.compile(rf"({STRING})|,(?=\s*+[}}\]])", re.DOTALL)


def parse_json(text: str, where: str) -> Any:
    """The content of a JSON text of the file `where`. Raises SpecError with the
    line."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise SpecError(where, [_fault(plain, where)])
        return mapping

    def no_number(_: str) -> Any:
        raise SpecError(where, [_fault(plain, where)])

    without_comments = COMMENT.sub(lambda match: match[1] or _blank(match[0]), text)
    plain = TRAILING_COMMA.sub(lambda match: match[1] or " ", without_comments)
    try:
        content = json.loads(plain, object_pairs_hook=unique, parse_constant=no_number)
    except json.JSONDecodeError as error:
        if not plain.strip():
            raise SpecError.of(where, "file", "is empty") from None
        message = f"is not JSON: {error.msg} (column {error.colno})"
        raise SpecError.of(where, f"line {error.lineno}", message) from None
    except RecursionError:
        raise too_deep(where) from None
    except ValueError:  # Python limits the digits of an int
        message = "holds a whole number of thousands of digits"
        raise SpecError.of(where, "file", message) from None
    check_extent(content, _parts, JSON_VALUES, where)
    return content


def json_value(text: str) -> Any:
    """Parses a JSON value, without NaN and Infinity. Raises ValueError."""

    def no_number(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    return json.loads(text, parse_constant=no_number)


def _blank(comment: str) -> str:
    """As many spaces and line breaks, so that later places keep their line and
    column."""
    return re.sub(r"[^\n]", " ", comment)


def _parts(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tree.values()
    if isinstance(tree, list):
        return tree
    return ()


def _fault(text: str, where: str) -> Problem:
    """The first duplicate key, NaN or Infinity. Its line is known as far as YAML may be
    read."""
    from slm_lab.spec.yaml_text import first_fault

    found = None
    if len(text) <= YAML_BYTES:
        found = first_fault(text.replace("\t", " "), where)
    return found or Problem("file", "has a key twice, or a number that is not finite")
