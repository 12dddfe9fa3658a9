"""`env.wrappers`: classes or functions of other packages that wrap each single
environment. It also finds the keyword arguments that a class or function accepts."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import gymnasium

from slm_lab.core.errors import LabError, Problem
from slm_lab.core.plugins import missing_module_message
from slm_lab.core.registry import import_failure, load_target, nearest_name, suggestion
from slm_lab.env.extras import known_warnings_ignored
from slm_lab.env.interface import Env
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.messages import FOREIGN, TYPES
from slm_lab.spec.schema.schedule import ScheduleSpec

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
    examples: tuple[Any, ...] = ()
    """Values whose types are valid with any annotation: the default, and others."""
    scope: Mapping[str, Any] = {}
    """The globals for annotations that are strings."""

    def fault(self, value: Any) -> str | None:
        """The message for an invalid `value`; None if it is valid, or if that is
        unknown. An int is valid for a float."""
        allowed = self._plain_types()
        if allowed is None or type(value) in allowed | set(map(type, self.examples)):
            return None
        if type(value) is int and float in allowed:
            return None
        message = (
            "must be "
            f"{' or '.join(words for t, words in PLAIN.items() if t in allowed)}"
        )
        if int in allowed and isinstance(value, float) and value.is_integer():
            return f"{message}; write {int(value)}"
        return message

    def takes_numbers(self) -> bool:
        """Whether a number may be valid."""
        return self.fault(0) is None or self.fault(0.5) is None

    def is_whole(self, values: Sequence[float]) -> bool:
        """Whether these values, and all values between them, must be whole numbers. The
        annotation decides. Without one they must if the default and all `values` are
        whole."""
        allowed = self._plain_types()
        if allowed is not None:
            return int in allowed and float not in allowed
        are_whole = all(float(value).is_integer() for value in values)
        return are_whole and int in set(map(type, self.examples))

    def _plain_types(self) -> set[type] | None:
        """The allowed types; None without an annotation, or if it has other types than
        PLAIN."""
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
        if len(known) == len(parts):
            return known
        return None


class Arguments(NamedTuple):
    """The keyword arguments of a class or function."""

    named: dict[str, Argument]
    open_ended: bool
    """Whether it accepts any other argument."""

    def problems(
        self,
        name: str,
        path: str,
        values: Mapping[str, Any],
        other_names: Mapping[str, str | None],
    ) -> Iterator[Problem]:
        """The problems of the arguments of `name`, with these `values`, in the block at
        `path`. `other_names` are known names of the same argument."""
        for key, value in values.items():
            argument = self.named.get(key)
            if argument is not None:
                message = argument.fault(value)
            else:
                message = None
                if not self.open_ended:
                    message = self._unknown(name, key, other_names)
            if message is not None:
                yield Problem(f"{path}.{key}", message, value)

    def accepts(self, key: str) -> bool:
        """Whether there is an argument with this name."""
        return self.open_ended or key in self.named

    def takes_numbers(self, key: str) -> bool:
        """Whether an argument that is accepted may be a number."""
        argument = self.named.get(key)
        return argument is None or argument.takes_numbers()

    def is_whole(self, key: str, schedule: ScheduleSpec) -> bool:
        """Whether the values of an argument with a schedule are whole numbers."""
        argument = self.named.get(key)
        ends = [schedule.start_val, schedule.end_val]
        return argument is not None and argument.is_whole(
            [end for end in ends if end is not None]
        )

    def _unknown(
        self, name: str, key: str, other_names: Mapping[str, str | None]
    ) -> str:
        if key in FOREIGN and key not in other_names:
            return f"{name} does not accept it; {FOREIGN[key]}"
        nearest = other_names.get(key) or nearest_name(key, sorted(self.named))
        if nearest is not None:
            return f"{name} does not accept it; did you mean {nearest}?"
        listed = ", ".join(sorted(self.named)) or "no keys"
        return f"{name} does not accept it; it accepts {listed}"


def arguments_of(creator: Callable[..., Any]) -> Arguments:
    """The keyword arguments of a class or function; of a class with **kwargs, also of
    its bases."""
    if not inspect.isclass(creator):
        return _declared(creator)
    named: dict[str, Argument] = {}
    makers = [
        vars(cls)["__init__"] for cls in creator.__mro__[:-1] if "__init__" in vars(cls)
    ]
    for maker in makers:
        declared = _declared(maker)
        declared.named.pop("self", None)
        named = declared.named | named
        if not declared.open_ended:
            return Arguments(named, False)
    return Arguments(named, bool(makers))


def _declared(function: Callable[..., Any]) -> Arguments:
    parameters = inspect.signature(function).parameters.values()
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    named = {
        p.name: Argument(p.annotation, (p.default,), scope)
        for p in parameters
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    return Arguments(named, any(p.kind is p.VAR_KEYWORD for p in parameters))


def wrap(env: Env, wrappers: Sequence[tuple[str, Mapping[str, Any]]]) -> Env:
    """`env` in these wrappers, names with arguments, the innermost first. Raises
    LabError."""
    for name, kwargs in wrappers:
        try:
            with known_warnings_ignored():
                wrapped = load_target(name)(env, **kwargs)
            if not isinstance(wrapped, gymnasium.Env):
                raise TypeError(f"it returned {wrapped!r:.60}, no environment")
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise LabError(f"the wrapper {name} cannot wrap {env}: {why}") from error
        env = wrapped
    return env


def wrapper_problems(spec: EnvSpec) -> list[Problem]:
    """The problems of the wrappers and their arguments. Imports their modules, wraps
    nothing."""
    wrappers = enumerate(spec.wrapped_by)
    return [p for i, named in wrappers for p in _problems(f"env.wrappers.{i}", *named)]


def _problems(path: str, name: str, kwargs: Mapping[str, Any]) -> Iterator[Problem]:
    try:
        with known_warnings_ignored():
            creator = load_target(name)
    except (Exception, SystemExit) as error:
        yield Problem(path, _loading_fault(name, error), name)
        return
    is_class = inspect.isclass(creator)
    is_function = callable(creator) and not is_class and not inspect.isbuiltin(creator)
    if not is_function and not (is_class and issubclass(creator, gymnasium.Wrapper)):
        allowed = (
            "a subclass of gymnasium.Wrapper, or a function that takes an environment"
        )
        yield Problem(path, f"must be {allowed} and returns one", name)
        return
    called = creator
    if is_class:
        called = creator.__init__
    arguments = arguments_of(called)
    parameters = [*inspect.signature(called).parameters.values()]
    first = 2 if is_class else 1
    for parameter in parameters[:first]:
        arguments.named.pop(parameter.name, None)
    yield from arguments.problems(name, path, kwargs, {})
    for other in parameters[first:]:
        has_name = other.kind in (other.POSITIONAL_OR_KEYWORD, other.KEYWORD_ONLY)
        if has_name and other.default is other.empty and other.name not in kwargs:
            yield Problem(f"{path}.{other.name}", f"is missing: {name} needs it")


def _loading_fault(name: str, error: BaseException) -> str:
    module, _, attribute = name.rpartition(":")
    if module in sys.modules and isinstance(error, AttributeError):
        return (
            f"{module} has no "
            f"{attribute}{suggestion(attribute, dir(sys.modules[module]))}"
        )
    why = missing_module_message(module, error)
    return why or f"the module {module} does not import: {import_failure(error)}"
