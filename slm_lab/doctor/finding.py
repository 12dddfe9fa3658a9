"""Findings, and the changes of a spec that may cure what they found."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from slm_lab.core.recorded import value_at

Change: TypeAlias = tuple[str, Any]
"""The dotted path of a key, and a new value."""


class Remedy(NamedTuple):
    """Changes of a spec that may cure an illness, tried together."""

    changes: tuple[Change, ...]

    @property
    def settings(self) -> tuple[str, ...]:
        """The changes as `-s` takes them."""
        return tuple(f"{path}={json.dumps(value)}" for path, value in self.changes)


class Finding(NamedTuple):
    """Something that is wrong."""

    what: str
    evidence: str
    """The numbers that show it."""
    advice: str
    """One thing to try."""
    remedies: tuple[Remedy, ...] = ()
    """What the advice means in numbers."""
    since: int = 0
    """The total frame until which all was well; 0: it is ill from its start."""

    def document(self) -> dict[str, Any]:
        """The finding as a dict for JSON."""
        remedies = [list(remedy.settings) for remedy in self.remedies]
        return {**self._asdict(), "remedies": remedies}


def advising(
    what: str,
    evidence: str,
    spec: Mapping[str, Any],
    *options: "Option",
    words: str = "",
    otherwise: str = "",
    since: float = 0.0,
) -> Finding:
    """A finding whose advice are the options that fit the spec. `words` follow them;
    without a fitting option the advice is `otherwise`."""
    fitting = [text for option in options if (text := option.advice(spec))]
    return Finding(
        what=what,
        evidence=evidence,
        advice=f"{', or '.join(fitting) or otherwise}{words}",
        remedies=tuple(
            remedy for option in options for remedy in option.remedies(spec)
        ),
        since=int(since) if np.isfinite(since) else 0,
    )


class Option(NamedTuple):
    """A kind of change that may help, as advice names it. It fits a spec that has one
    of its keys."""

    verb: Literal["lower", "raise", "set"]
    paths: tuple[str, ...]
    """Keys that change together; advice names the first that a spec has."""
    values_from: Callable[[Any], Sequence[Any]]
    """The new values to try, from the present one."""
    words: str = ""
    """More words of the advice, after the key."""

    def advice(self, spec: Mapping[str, Any]) -> str:
        """The advice as text; empty if the option does not fit the spec."""
        for path in self.paths:
            if self._fits(spec, path):
                return f"{self.verb} {path}{self.words}"
        return ""

    def remedies(self, spec: Mapping[str, Any]) -> Iterator[Remedy]:
        """One remedy for each value to try."""
        present = [
            (path, value_at(spec, path))
            for path in self.paths
            if self._fits(spec, path)
        ]
        tried = [self.values_from(value) for _, value in present]
        for values in zip(*tried, strict=True):
            changes = tuple(
                (path, value)
                for (path, before), value in zip(present, values, strict=True)
                if value != before
            )
            if changes:
                yield Remedy(changes)

    def _fits(self, spec: Mapping[str, Any], path: str) -> bool:
        *parents, name = path.split(".")
        block = value_at(spec, ".".join(parents))
        if not isinstance(block, Mapping) or name not in block:
            return False
        value = block[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_least = value == 0 or (isinstance(value, int) and value <= 1)
        return self.verb == "set" or (
            is_number and not (self.verb == "lower" and is_least)
        )


def lower(
    path: str, *others: str, by: Sequence[float] = (10,), most: float = np.inf
) -> Option:
    """Divides numbers by each of the factors `by`. The last new value is at most
    `most`."""

    def values(present: float) -> list[float]:
        *first, last = (_scaled(present, 1 / factor) for factor in by)
        return [*first, min(last, most)]

    return Option("lower", (path, *others), values)


def higher(
    path: str,
    *others: str,
    by: Sequence[float] = (10,),
    least: float = 0.0,
    words: str = "",
) -> Option:
    """Multiplies numbers by each of the factors `by`. The last new value is at least
    `least`."""

    def values(present: float) -> list[float]:
        *first, last = (_scaled(present, factor) for factor in by)
        return [*first, max(last, least)]

    return Option("raise", (path, *others), values, words)


def set_to(path: str, *values: Any, words: str = "") -> Option:
    """Sets a key to each of the values. Without one the advice has no remedy."""
    return Option("set", (path,), lambda present: values, words)


def _scaled(number: float, factor: float) -> float:
    """A whole number stays one, of at least 1; others have three digits."""
    if isinstance(number, int):
        return max(1, round(number * factor))
    return float(f"{number * factor:.3g}")
