"""Names of parts: what a spec may say, the model of its keys, and where its class lives.

A registry never imports the class it names until `load` is called, so that a spec is checked
without torch. Other packages add parts through entry points (group `slm_lab.algorithms`,
`slm_lab.memories`, `slm_lab.nets`, `slm_lab.envs`) or by calling `register` in a module that is
imported with `--import`. The model of a plug-in's keys is the attribute `Params` of its class.
"""

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoints, entry_points
from typing import Any

from slm_lab.core.errors import LabError


@dataclass(frozen=True)
class Entry:
    """One named part. `target` is "package.module:attribute"; None: known, but not built yet."""

    name: str
    params: type[Any] | None
    target: str | None


class Registry:
    """The parts of one kind ("algorithm", "memory", "net", "env"), by the name a spec uses."""

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._entries: dict[str, Entry] = {}
        self._plug_ins: EntryPoints | None = None

    def register(
        self, name: str, params: type[Any] | None = None, target: str | None = None
    ) -> None:
        """Adds a part. A name that is taken by another target is refused."""
        entry = Entry(name, params, target)
        known = self._entries.get(name)
        if known is not None and known != entry:
            raise LabError(f'{self.kind} "{name}" is registered already, as {known.target}')
        self._entries[name] = entry

    def names(self) -> list[str]:
        """Every known name, in order of registration, those of installed plug-ins last."""
        return list(dict.fromkeys([*self._entries, *self._installed().names]))

    def get(self, name: str) -> Entry | None:
        """The entry of `name`, or None. A plug-in is imported when it is first asked for."""
        if name not in self._entries and name in self._installed().names:
            point = self._installed()[name]
            self.register(name, getattr(point.load(), "Params", None), point.value)
        return self._entries.get(name)

    def nearest(self, name: str) -> str | None:
        """The known name that looks most like `name`, or None."""
        return nearest_name(name, self.names())

    def load(self, name: str) -> Any:
        """Imports and returns the class or function that `name` stands for.

        Raises LabError when the name is unknown, not built yet, or its module does not import.
        """
        entry = self.get(name)
        if entry is None:
            raise LabError(f'there is no {self.kind} named "{name}"')
        if entry.target is None:
            raise LabError(f"{name} is not available yet")
        return load_target(entry.target)

    def _installed(self) -> EntryPoints:
        if self._plug_ins is None:
            self._plug_ins = entry_points(group=self.group)
        return self._plug_ins


def load_target(target: str) -> Callable[..., Any]:
    """Imports "package.module:attribute"."""
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    part: Callable[..., Any] = getattr(module, attribute)
    return part


def nearest_name(name: str, known: list[str]) -> str | None:
    """The name in `known` closest to `name` by edit similarity, ignoring case; or None."""
    lowered = {k.lower(): k for k in known}
    matches = difflib.get_close_matches(name.lower(), list(lowered), n=1, cutoff=0.6)
    return lowered[matches[0]] if matches else None


ALGORITHMS = Registry("algorithm", "slm_lab.algorithms")
MEMORIES = Registry("memory", "slm_lab.memories")
NETS = Registry("net", "slm_lab.nets")
ENVS = Registry("env", "slm_lab.envs")
