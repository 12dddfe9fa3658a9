"""`env.wrappers`: classes or functions of other packages that wrap each single
environment."""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium

from slm_lab.core.errors import LabError, Problem
from slm_lab.core.registry import import_failure, load_target, suggestion
from slm_lab.env.interface import Env
from slm_lab.env.lookup import known_warnings_ignored, not_there
from slm_lab.env.simulators.arguments import arguments_of
from slm_lab.spec.schema.env import EnvSpec


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
        yield Problem(path, _why_not_loaded(name, error), name)
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


def _why_not_loaded(name: str, error: BaseException) -> str:
    module, _, attribute = name.rpartition(":")
    if module in sys.modules and isinstance(error, AttributeError):
        return (
            f"{module} has no "
            f"{attribute}{suggestion(attribute, dir(sys.modules[module]))}"
        )
    why = not_there(module, error)
    return why or f"the module {module} does not import: {import_failure(error)}"
