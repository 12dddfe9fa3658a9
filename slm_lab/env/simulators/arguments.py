"""The keyword arguments of an environment's class or function, with their types."""

import inspect
from collections.abc import Callable, Collection, Mapping
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from slm_lab.core.registry import nearest_name
from slm_lab.spec.schema.messages import TYPES

PLAIN: Mapping[type, str] = {
    bool: TYPES["bool_type"],
    int: TYPES["int_type"],
    float: TYPES["float_type"],
    str: TYPES["string_type"],
    NoneType: "null",
}
"""The types in annotations that values are checked against, alone or in a union."""


class Argument(NamedTuple):
    """One keyword argument."""

    annotation: Any
    default: Any
    scope: Mapping[str, Any]
    """The globals for annotations that are strings."""

    def why_not(self, value: Any) -> str | None:
        """The message for an invalid `value`; None if it is valid, or if that is unknown. A value
        of the default's type is valid with any annotation; an int is valid for a float."""
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
        """The allowed types; None without an annotation, or if it has other types than PLAIN."""
        annotation = self.annotation
        if isinstance(annotation, str):
            written = SimpleNamespace(__annotations__={"it": annotation})
            try:
                annotation = get_type_hints(written, dict(self.scope))["it"]
            except Exception:  # e.g. a name that is imported only for type checkers
                return None
        union = get_origin(annotation) in (Union, UnionType)
        parts = get_args(annotation) if union else (annotation,)
        known = {plain for plain in PLAIN for part in parts if part is plain}
        return known if len(known) == len(parts) else None


class Arguments(NamedTuple):
    """The keyword arguments of a class or function."""

    named: dict[str, Argument]
    open_ended: bool
    """Whether it accepts any other argument."""


def arguments_of(creator: Callable[..., Any]) -> Arguments:
    """The keyword arguments of a class or function. If a class has **kwargs, the arguments of its
    base classes count too."""
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


def not_accepted(name: str, key: str, accepted: Collection[str], own: str | None = None) -> str:
    """The message for an argument that `name` does not accept, with the nearest that it does; `own`
    is the known name of the same argument."""
    message, nearest = f"{name} does not accept it", own or nearest_name(key, sorted(accepted))
    if nearest is not None:
        return f"{message}; did you mean {nearest}?"
    return f"{message}; it accepts {', '.join(sorted(accepted)) or 'no keys'}"


def _declared(function: Callable[..., Any]) -> Arguments:
    """The keyword arguments of a function."""
    parameters = inspect.signature(function).parameters.values()
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    named = {
        p.name: Argument(p.annotation, p.default, scope)
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return Arguments(named, any(p.kind is p.VAR_KEYWORD for p in parameters))
