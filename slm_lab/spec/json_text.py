"""Parses the JSON of spec files: allows trailing commas, rejects duplicate keys and NaN."""

import json
import re
from dataclasses import dataclass
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.limits import JSON_LIMITS, check_extent, too_deep

STRING = r'"(?:[^"\\]++|\\.)*+"?'
"""Also matches an unterminated string, so that it is scanned once, not from each quote in it."""
TRAILING_COMMA = re.compile(rf"({STRING})|,(?=\s*+[}}\]])", re.DOTALL)
TOKEN = re.compile(rf"{STRING}|[{{}}\[\],:]|\n|-?[A-Za-z]++", re.DOTALL)
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""Numbers that Python's json module accepts, but JSON does not have."""


def parse_json(text: str, where: str) -> Any:
    """The content of a JSON text of the file `where`. Raises SpecError with the line."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            raise SpecError(where, [_fault(plain)])
        return mapping

    def no_number(_: str) -> Any:
        raise SpecError(where, [_fault(plain)])

    plain = TRAILING_COMMA.sub(lambda match: match[1] or " ", text)
    try:
        content = json.loads(plain, object_pairs_hook=unique, parse_constant=no_number)
    except json.JSONDecodeError as error:
        message = f"is not JSON: {error.msg} (column {error.colno})"
        raise SpecError(where, [Problem(f"line {error.lineno}", message)]) from None
    except RecursionError:
        raise too_deep(where) from None
    except ValueError:  # Python limits the digits of an int
        message = "holds a whole number of thousands of digits"
        raise SpecError(where, [Problem("file", message)]) from None
    check_extent(content, _parts, JSON_LIMITS.values, where)
    return content


def json_value(text: str) -> Any:
    """Parses a JSON value, without NaN and Infinity. Raises ValueError."""

    def no_number(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    return json.loads(text, parse_constant=no_number)


def _parts(tree: Any) -> Any:
    if isinstance(tree, dict):
        return tree.values()
    return tree if isinstance(tree, list) else ()


@dataclass
class _Open:
    """An open block or list during the scan."""

    keys: set[str] | None
    """the keys so far; None for a list"""
    at: str = "0"
    """the key or index of the next value"""


def _fault(text: str) -> Problem:
    """The first duplicate key, NaN or Infinity, with its line. The text before it is valid."""
    line, last, opened = 1, "", list[_Open]()
    for match in TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            continue
        inmost = opened[-1] if opened else None
        if token in "{[":
            opened.append(_Open(set() if token == "{" else None))
        elif token in "}]":
            opened.pop()
        elif token == "," and inmost is not None and inmost.keys is None:
            inmost.at = str(int(inmost.at) + 1)
        elif token == ":" and inmost is not None and inmost.keys is not None:
            inmost.at = json.loads(last)
            if inmost.at in inmost.keys:
                return Problem(f"line {line}", f"the key {last} is given twice")
            inmost.keys.add(inmost.at)
        elif token in NO_NUMBERS:
            path = ".".join(block.at for block in opened) or "the file"
            return Problem(f"line {line}", f"{path} is {token}, and JSON has no such number")
        last = token
    return Problem("file", "a key is given twice")
