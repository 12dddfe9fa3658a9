"""Parses the JSON of spec files: allows trailing commas, rejects duplicate keys and NaN."""

import json
import re
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.spec.limits import JSON_VALUES, check_extent, too_deep

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
    check_extent(content, _parts, JSON_VALUES, where)
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


def _fault(text: str) -> Problem:
    """The first duplicate key, NaN or Infinity, with its line. The text before it is valid."""
    line, last = 1, ""
    path: list[str] = []  # the key or index in each open block or list
    known: list[set[str] | None] = []  # the keys so far of each; None for a list
    for match in TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
            continue
        keys = known[-1] if known else None
        if token in "{[":
            path.append("0")
            known.append(set() if token == "{" else None)
        elif token in "}]":
            path.pop()
            known.pop()
        elif token == "," and path and keys is None:
            path[-1] = str(int(path[-1]) + 1)
        elif token == ":" and keys is not None:
            path[-1] = json.loads(last)
            if path[-1] in keys:
                return Problem(f"line {line}", f"the key {last} is given twice")
            keys.add(path[-1])
        elif token in NO_NUMBERS:
            where = ".".join(path) or "the file"
            return Problem(f"line {line}", f"{where} is {token}, and JSON has no such number")
        last = token
    return Problem("file", "a key is given twice")
