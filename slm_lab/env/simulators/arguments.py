"""What an environment takes: the keyword arguments of its class or function, and their types."""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from slm_lab.spec.schema.messages import TYPES

PLAIN: Mapping[type, str] = {
    bool: TYPES["bool_type"],
    int: TYPES["int_type"],
    float: TYPES["float_type"],
    str: TYPES["string_type"],
    NoneType: "null",
}
"""the types of an annotation that a value is compared with, alone or in a union"""


class Argument(NamedTuple):
    """One keyword argument."""

    annotation: Any
    default: Any
    scope: Mapping[str, Any]
    """The globals that an annotation written as a string refers to."""

    def why_not(self, value: Any) -> str | None:
        """What it must be instead of `value`; None where that is good or nobody can tell.

        A value of the default's type is good whatever the annotation says, and so is a whole number
        for a float.
        """
        allowed = self._plain_types()
        if allowed is None or type(value) is type(self.default) or type(value) in allowed:
            return None
        if type(value) is int and float in allowed:
            return None
        message = f"must be {' or '.join(words for t, words in PLAIN.items() if t in allowed)}"
        if int in allowed and isinstance(value, float) and value.is_integer():
            return f"{message}; write {int(value)}"
        return message

    def _plain_types(self) -> set[type] | None:
        """The types that the annotation allows; None where it names any other or there is none."""
        annotation = self.annotation
        if isinstance(annotation, str):
            written = SimpleNamespace(__annotations__={"it": annotation})
            try:
                annotation = get_type_hints(written, dict(self.scope))["it"]
            except Exception:  # of what is only imported for type checkers, for one
                return None
        union = get_origin(annotation) in (Union, UnionType)
        parts = get_args(annotation) if union else (annotation,)
        known = {plain for plain in PLAIN for part in parts if part is plain}
        return known if len(known) == len(parts) else None


class Arguments(NamedTuple):
    """The keyword arguments of a class or function."""

    named: dict[str, Argument]
    open_ended: bool
    """Whether any other can be given."""


def arguments_of(creator: Callable[..., Any]) -> Arguments:
    """The keyword arguments that a class or function takes.

    Where a class passes **kwargs on, those of the classes above it count as well.
    """
    if not inspect.isclass(creator):
        return _declared(creator)
    named: dict[str, Argument] = {}
    initialisers = [
        vars(cls)["__init__"] for cls in creator.__mro__[:-1] if "__init__" in vars(cls)
    ]
    for initialiser in initialisers:
        declared = _declared(initialiser)
        declared.named.pop("self", None)
        named = declared.named | named
        if not declared.open_ended:
            return Arguments(named, False)
    return Arguments(named, bool(initialisers))


def _declared(function: Callable[..., Any]) -> Arguments:
    """What can be given to a function by keyword."""
    parameters = inspect.signature(function).parameters.values()
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    named = {
        p.name: Argument(p.annotation, p.default, scope)
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return Arguments(named, any(p.kind is p.VAR_KEYWORD for p in parameters))
