"""Registries of named parts: the name in a spec, the model of its keys, and its class.

A registry never imports a class of this package before `load` is called, so that specs
are checked without torch. docs/extending.md says how other packages add parts. A faulty
plug-in stays registered, with a description of its fault. Only specs that name it are
rejected."""

import difflib
import importlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

from slm_lab.core.errors import LabError
from slm_lab.core.process import running_import_of

ModelT = TypeVar("ModelT")


@dataclass(frozen=True)
class Entry:
    """One named part. `target` is "package.module:attribute"."""

    name: str
    params: type[Any] | None
    target: str
    fault: str | None = None
    """Why a plug-in cannot be used; None if it can."""


class Registry:
    """The parts of one kind ("algorithm", "memory", "net", "env", "mode"), by their
    names in specs. `built_by` is the class method that builds a part; None: the part is
    called. Parts that are not classes have a `check`, which returns the fault of one,
    or None."""

    def __init__(
        self,
        kind: str,
        group: str,
        built_by: str | None = None,
        check: Callable[[object], str | None] | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self.built_by = built_by
        self._check = check
        self._entries: dict[str, Entry] = {}
        self._offers: dict[str, list[EntryPoint]] | None = None
        self._plug_ins: dict[str, Entry] = {}

    def register(self, name: str, params: type[Any] | None, target: str) -> None:
        """Adds a part; with `params` None it has the keys that all parts of its kind
        have. Raises LabError for a name that is taken by another."""
        entry = Entry(name, params, target)
        known = self._entries.get(name)
        if known is not None and known != entry:
            raise LabError(
                f'{self.kind} "{name}" is registered already, as {known.target}; '
                f"give {target} another name"
            )
        self._entries[name] = entry

    def offer(self, name: str, target: str) -> None:
        """Adds a part as an entry point does: when a spec names it, it is imported for
        its keys."""
        _add(self._installed(), EntryPoint(name, target, self.group))

    def names(self) -> list[str]:
        """Every known name in order of registration; installed plug-ins come last."""
        return list(dict.fromkeys([*self._entries, *self._installed()]))

    def get(self, name: str) -> Entry | None:
        """The entry of `name`, or None. The first call for a plug-in imports it."""
        offers = self._installed().get(name)
        if offers is None:
            return self._entries.get(name)
        if name not in self._plug_ins:
            self._plug_ins[name] = self._plug_in(name, offers)
        return self._plug_ins[name]

    def models(self, base: type[ModelT]) -> dict[str, type[ModelT]]:
        """The models of keys that derive from `base`, by the names of their parts."""
        entries = {
            name: entry
            for name in self.names()
            if (entry := self.get(name)) is not None
        }
        params = {
            name: e.params
            for name, e in entries.items()
            if e.params and e.fault is None
        }
        return {
            name: model for name, model in params.items() if issubclass(model, base)
        }

    def nearest(self, name: str) -> str | None:
        """The known name most similar to `name`, or None."""
        return nearest_name(name, self.names())

    def load(self, name: str) -> Any:
        """Imports and returns the class or function named `name`. Raises LabError if
        the name is unknown, or its part does not import or cannot be built."""
        entry = self.get(name)
        if entry is None:
            nearest = self.nearest(name)
            known = ", ".join(self.names()) or "none"
            hint = (
                f"there is {known}" if nearest is None else f"did you mean {nearest}?"
            )
            raise LabError(f'there is no {self.kind} named "{name}"; {hint}')
        part, fault = self._loaded(entry.target)
        if entry.fault is not None or fault is not None:
            raise LabError(f'{self.kind} "{name}" {entry.fault or fault}')
        return part

    def package(self, name: str) -> str | None:
        """The installed package that offers a part, with its version. None for a part
        of the lab, of an imported module, or without a name."""
        for point in self._installed().get(name, ()):
            if point.dist is not None:
                return f"{point.dist.name} {point.dist.version}"
        return None

    def _installed(self) -> dict[str, list[EntryPoint]]:
        """Entry points of installed packages by name; several for one name are a
        conflict."""
        if self._offers is None:
            self._offers = {}
            for point in entry_points(group=self.group):
                _add(self._offers, point)
        return self._offers

    def _plug_in(self, name: str, offers: Sequence[EntryPoint]) -> Entry:
        target = offers[0].value
        if len(offers) > 1:
            both = " and by ".join(_origin(point) for point in offers)
            return Entry(
                name, None, target, f"is offered by {both}; uninstall one of them"
            )
        known = self._entries.get(name)
        if known is not None and known.target != target:
            owner = known.target.partition(".")[0]
            taken = f"is the name of a part of {owner} and is offered by"
            fix = "one of the two needs another name"
            return Entry(
                name, known.params, known.target, f"{taken} {_origin(offers[0])}; {fix}"
            )
        part, fault = self._loaded(target)
        params = getattr(part, "Params", None)
        if fault is None and params is not None and not isinstance(params, type):
            fault = f"cannot be used: its Params is not a class but {params!r}"
            params = None
        if fault is not None:
            fault += f"; it is offered by {_origin(offers[0])}"
        return Entry(name, params, target, fault)

    def _loaded(self, target: str) -> tuple[Any, str | None]:
        """The object named by `target`, and its fault, if any."""
        try:
            part = load_target(target)
        except (Exception, SystemExit) as error:  # a module may even call sys.exit
            return (
                None,
                f"cannot be used: {target} does not import: {import_failure(error)}",
            )
        if self._check is not None:
            wrong = self._check(part)
            return part, None if wrong is None else f"cannot be used: {target} {wrong}"
        if self.built_by is None and not callable(part):
            return part, f"cannot be used: {target} is not a class"
        if self.built_by is not None and not inspect.ismethod(
            getattr(part, self.built_by, None)
        ):
            return part, f"cannot be used: {target} has no class method {self.built_by}"
        missing = sorted(getattr(part, "__abstractmethods__", ()))
        if missing:
            return part, f"cannot be used: {target} lacks {', '.join(missing)}"
        return part, None


def _add(offers: dict[str, list[EntryPoint]], point: EntryPoint) -> None:
    same_name = offers.setdefault(point.name, [])
    if point.value not in [other.value for other in same_name]:
        same_name.append(point)


def load_target(target: str) -> Any:
    """Imports and returns "package.module:attribute"; without an attribute, the
    module."""
    module_name, _, attribute = target.partition(":")
    with running_import_of(module_name):
        part: Any = importlib.import_module(module_name)
    for name in filter(None, attribute.split(".")):
        part = getattr(part, name)
    return part


def import_failure(error: BaseException) -> str:
    """Why an external module does not import, with its file and line, in one line of
    text."""
    if isinstance(error, LabError):
        return str(error)
    text = (
        str(error)
        if isinstance(error, ImportError)
        else f"{type(error).__name__}: {error}"
    )
    every = traceback.extract_tb(error.__traceback__)
    if not str(error) and every:  # an assertion without a message
        text += str(every[-1].line)
    text = " ".join(text.split())
    here = str(Path(__file__).parent)
    frames = [
        frame
        for frame in every
        if "importlib" not in frame.filename and not frame.filename.startswith(here)
    ]
    # a SyntaxError names its own place
    if not frames or isinstance(error, SyntaxError):
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"


def nearest_name(name: str, known: list[str], likeness: float = 0.6) -> str | None:
    """The most similar name in `known`, ignoring case; None if all are below
    `likeness`, 0 to 1."""
    lowered = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(
        name.lower(), list(lowered), n=1, cutoff=likeness
    )
    if matches:
        return lowered[matches[0]]
    return None


def suggestion(name: str, known: Iterable[str]) -> str:
    """ "; did you mean x?" for the nearest known name, or an empty string."""
    nearest = nearest_name(name, list(known))
    if nearest:
        return f"; did you mean {nearest}?"
    return ""


def _origin(point: EntryPoint) -> str:
    package = "a package"
    if point.dist:
        package = f"the package {point.dist.name} {point.dist.version}"
    return f"{package} ({point.value})"


ALGORITHMS = Registry("algorithm", "slm_lab.algorithms", built_by="build")
MEMORIES = Registry("memory", "slm_lab.memories", built_by="build")
NETS = Registry("net", "slm_lab.nets")
ENVS = Registry("env", "slm_lab.envs")
