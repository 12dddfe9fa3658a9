"""Rewords pydantic's errors for users: what is allowed, and the nearest valid name.

foreign_words.json has the words of SB3, CleanRL, RLlib and Gymnasium, and the lab's
own: docs/coming_from.md as data."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from slm_lab.core.registry import nearest_name
from slm_lab.spec.schema.bounds import UpperBound

if TYPE_CHECKING:  # pydantic would slow the start of every command
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

WORDS_BY_SUBJECT: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_name("foreign_words.json").read_text(encoding="utf-8")
)
FOREIGN: Mapping[str, str] = {
    word: text
    for texts in WORDS_BY_SUBJECT.values()
    for words, text in texts.items()
    for word in words.split()
}
"""The end of the error about an unknown key: "unknown key; use env.num_envs"."""

TYPES = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a block {…}",
    "model_type": "a block {…}",
    "model_attributes_type": "a block {…}",
}
BOUNDS = {
    "greater_than": (">", "gt"),
    "greater_than_equal": (">=", "ge"),
    "less_than": ("<", "lt"),
    "less_than_equal": ("<=", "le"),
}


def reword(
    details: "ErrorDetails", fields: Mapping[str, "FieldInfo"], file_keys: Sequence[str]
) -> str:
    """The message for a pydantic error in a block with `fields` and the valid keys
    `file_keys`."""
    kind = details["type"]
    loc = details["loc"]
    key = ""
    if loc:
        key = str(loc[0])
    field = fields.get(key)
    if kind == "missing":
        description = None
        if field and len(loc) == 1:
            description = field.description
        return f"is missing: {description}" if description else "is missing"
    if kind == "extra_forbidden":
        return unknown_name("key", key, file_keys)
    if kind == "literal_error" and field is not None:
        return choice_message(details["input"], _literal_values(field.annotation))
    if kind in TYPES:
        nullable = field is not None and type(None) in get_args(field.annotation)
        or_null = " or null" if nullable and len(loc) == 1 else ""
        return f"must be {TYPES[kind]}{or_null}{_json_hint(kind, details['input'])}"
    for bound in () if field is None else field.metadata:
        if kind == "less_than_equal" and isinstance(bound, UpperBound):
            return bound.refusal(details["input"]) or ""
    message = details["msg"]
    if kind == "none_required" and field is not None and field.description:
        message = field.description  # "must be null: …"
    return _bound(kind, details.get("ctx", {})) or message


def _json_hint(kind: str, value: object) -> str:
    """How to write a list or block that `-s` has taken as a string, because it is no
    JSON."""
    opening = {"a list": "[", "a block {…}": "{"}.get(TYPES[kind])
    if opening and isinstance(value, str) and value.startswith(opening):
        return ", in JSON: words have double quotes"
    return ""


def _bound(kind: str, context: Mapping[str, Any]) -> str:
    """The violated bound of a number, a string or a list; "" for any other error."""
    if kind in BOUNDS:
        sign, bound = BOUNDS[kind]
        return f"must be {sign} {context[bound]:g}"
    plain = {
        "finite_number": "must be a finite number",
        "string_too_short": "must not be empty",
        "string_too_long": f"must have at most {context.get('max_length')} characters",
        "too_short": f"must have at least {context.get('min_length')} entries",
    }
    return plain.get(kind, "")


def unknown_name(
    kind: str, name: str, known: Sequence[str], all_of_them: str = ""
) -> str:
    """ "unknown key; did you mean gamma?", or the list of known names. `all_of_them`
    describes a list that is too long; then only the nearest names are listed. A key of
    another library is translated."""
    if kind == "key" and name in FOREIGN:
        return f"unknown key; {FOREIGN[name]}"
    nearest = nearest_name(name, list(known))
    if nearest:
        return f"unknown {kind}; did you mean {nearest}?"
    if not known:
        return f"unknown {kind}; none is known here"
    if all_of_them:
        close = get_close_matches(name, known, n=5, cutoff=0.0)
        return (
            f"unknown {kind}; the nearest are {', '.join(close)}; known: {all_of_them}"
        )
    return f"unknown {kind}; known: {', '.join(known)}"


def choice_message(written: object, allowed: Sequence[object]) -> str:
    """ "must be one of …", with the nearest allowed word if there is one."""
    words = [value for value in allowed if isinstance(value, str)]
    nearest = None
    if isinstance(written, str):
        nearest = nearest_name(written, words)
    hint = ""
    if nearest:
        hint = f'; did you mean "{nearest}"?'
    listed = ", ".join(show(value) for value in allowed)
    if len(allowed) > 1:
        return f"must be one of {listed}{hint}"
    return f"must be {listed}{hint}"


def show(value: object) -> str:
    """A value as in a spec file."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value)


def _literal_values(annotation: object) -> list[object]:
    args = [
        literal for arg in get_args(annotation) for literal in get_args(arg) or (arg,)
    ]
    return [None if arg is type(None) else arg for arg in args]
