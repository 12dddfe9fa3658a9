"""pydantic's errors in the words of a spec file: what is allowed, and the nearest valid name."""

from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from slm_lab.core.registry import nearest_name

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


def reword(details: ErrorDetails, fields: Mapping[str, FieldInfo], file_keys: Sequence[str]) -> str:
    """The message for one pydantic error in a block that has `fields` and knows `file_keys`."""
    kind, loc, context = details["type"], details["loc"], details.get("ctx", {})
    key = str(loc[0]) if loc else ""
    field = fields.get(key)
    if kind == "missing":
        return f"is missing: {field.description}" if field and len(loc) == 1 else "is missing"
    if kind == "extra_forbidden":
        return unknown_name("key", key, file_keys)
    if kind in TYPES:
        return f"must be {TYPES[kind]}{_or_null(field, loc)}"
    if kind in BOUNDS:
        sign, bound = BOUNDS[kind]
        return f"must be {sign} {context[bound]:g}"
    if kind == "finite_number":
        return "must be a finite number"
    if kind == "literal_error" and field is not None:
        return not_among(details["input"], _literal_values(field.annotation))
    if kind in ("too_short", "too_long"):
        end, bound = (
            ("at least", "min_length") if kind == "too_short" else ("at most", "max_length")
        )
        return f"must have {end} {context[bound]} entries"
    if kind == "string_too_short":
        return "must not be empty"
    return details["msg"][:1].lower() + details["msg"][1:]


def unknown_name(kind: str, name: str, known: Sequence[str]) -> str:
    """ "unknown key; did you mean gamma?", or the list of what there is."""
    nearest = nearest_name(name, list(known))
    if nearest:
        return f"unknown {kind}; did you mean {nearest}?"
    if not known:
        return f"unknown {kind}; none is known here"
    return f"unknown {kind}; known: {', '.join(known)}"


def not_among(given: object, allowed: Sequence[object]) -> str:
    """ "must be one of …", with the nearest allowed word if there is one."""
    words = [value for value in allowed if isinstance(value, str)]
    nearest = nearest_name(given, words) if isinstance(given, str) else None
    hint = f'; did you mean "{nearest}"?' if nearest else ""
    listed = ", ".join(show(value) for value in allowed)
    return f"must be one of {listed}{hint}" if len(allowed) > 1 else f"must be {listed}{hint}"


def show(value: object) -> str:
    """A value as a spec file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "null"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _or_null(field: FieldInfo | None, loc: tuple[int | str, ...]) -> str:
    nullable = field is not None and type(None) in get_args(field.annotation)
    return " or null" if nullable and len(loc) == 1 else ""


def _literal_values(annotation: object) -> list[object]:
    """The allowed values of Literal[…] or Literal[…] | None."""
    values: list[object] = []
    for arg in get_args(annotation):
        if arg is type(None):
            values.append(None)
        elif get_args(arg):
            values.extend(get_args(arg))
        else:
            values.append(arg)
    return values
