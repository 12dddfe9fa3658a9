"""Rules between keys, declared beside a key in its model.

A rule names facts by path. A path without a dot is a key or a property of the same
block. "env.max_frame" is one of another block, "blocks.is_recurrent" one of
`spec.blocks.Blocks`. Rules about the same block alone hold whenever it is validated.
The others are checked with the whole spec. They are skipped if a block that they name
is missing or has problems."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from string import Formatter
from typing import Any, Literal, TypeAlias, TypeVar, final

from pydantic import BaseModel
from typing_extensions import override

from slm_lab.core.errors import Problem

Paths: TypeAlias = str | tuple[str, ...]

CHANGED = object()
"""Any value but the default."""
ANY = object()
"""Any value, the default included."""

OF_AGENT = ("algorithm", "memory", "net", "critic_net")

T = TypeVar("T")


class RuledBlock(BaseModel):
    """A block whose keys may have rules."""

    def changed(self, key: str) -> Iterator[str]:
        """The keys of the file that set `key` to another value than its default."""
        if getattr(self, key) != type(self).model_fields[key].default:
            yield key

    def value_of(self, file_key: str) -> object:
        """The value of a key of the file."""
        return getattr(self, file_key)


class UnknownBlockError(Exception):
    """A block that a check asks for is missing, or has problems."""


def known(block: T | None) -> T:
    """The block. Raises UnknownBlockError for None."""
    if block is None:
        raise UnknownBlockError
    return block


@final
@dataclass(frozen=True)
class Facts:
    """The facts that rules of the block `own` at `path` may name. `blocks` has all
    blocks of the spec; None while a block is validated alone."""

    path: str
    own: RuledBlock
    blocks: Any = None

    def __getitem__(self, name: str) -> Any:
        """The block of a name, for the text of a rule."""
        if name == "own":
            return self.own
        blocks = known(self.blocks)
        return blocks if name == "blocks" else known(getattr(blocks, name))

    def of(self, path: str) -> Any:
        """The fact at `path`. Raises UnknownBlockError."""
        block, *names = path.split(".") if "." in path else ("own", path)
        fact = self[block]
        for name in names:
            fact = getattr(fact, name)
        return fact

    def label(self, path: str) -> str:
        """The path as in the file."""
        is_of_agent = path.split(".", maxsplit=1)[0] in OF_AGENT and "." in path
        if is_of_agent:
            return f"agent.{path}"
        return path


@dataclass(frozen=True)
class Rule:
    """A rule of a key. It applies to `value`, when all facts of `when` hold and none of
    `unless`. With `at` it applies only in the block at this path, or below it. `text`
    may name blocks and their keys, as "{env.max_frame}" and "{own.name}"."""

    text: str
    when: Paths = ()
    unless: Paths = ()
    value: object = CHANGED
    at: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every fact that it names."""
        return (*_listed(self.when), *_listed(self.unless))

    @property
    def names_other_blocks(self) -> bool:
        """Whether it needs more than its own block."""
        fields = (field for _, field, *_ in Formatter().parse(self.text) if field)
        in_text = any(field.partition(".")[0] != "own" for field in fields)
        return in_text or any("." in path for path in self.paths)

    def broken(self, key: str, facts: Facts) -> Iterator[Problem]:
        """The problems of the key; none if the rule does not apply. Raises
        UnknownBlockError."""
        if not is_within(facts.path, self.at) or not self._concerns(key, facts):
            return
        if not all(map(facts.of, _listed(self.when))):
            return
        if not any(map(facts.of, _listed(self.unless))):
            yield from self._problems(key, facts)

    def _concerns(self, key: str, facts: Facts) -> bool:
        """Whether the rule is about the value that the key has."""
        if self.value is CHANGED:
            return any(facts.own.changed(key))
        return self.value is ANY or getattr(facts.own, key) == self.value

    def _problems(self, key: str, facts: Facts) -> Iterator[Problem]:
        """The problems of a key that breaks the rule."""
        message = self.text.format_map(facts)
        keys = [key]
        if self.value is CHANGED:
            keys = list(facts.own.changed(key))
        for file_key in keys:
            value = facts.own.value_of(file_key)
            if isinstance(value, RuledBlock):
                value = ...
            yield Problem(f"{facts.path}.{file_key}", message, value)


@final
@dataclass(frozen=True)
class NoEffect(Rule):
    """The key changes nothing; `text` says why."""

    @override
    def _problems(self, key: str, facts: Facts) -> Iterator[Problem]:
        message = self.text.format_map(facts)
        for changed in facts.own.changed(key):
            yield Problem(f"{facts.path}.{changed}", message)


@final
@dataclass(frozen=True)
class Refused(Rule):
    """The key must not have this value; `text` says why."""


@final
@dataclass(frozen=True)
class Suspicious(Rule):
    """The key is probably not meant to have this value; `text` says why."""


@final
@dataclass(frozen=True)
class Needed(Rule):
    """The key must not be null; `text` says what needs it."""

    value: object = None

    @override
    def _problems(self, key: str, facts: Facts) -> Iterator[Problem]:
        message = f"is missing: {self.text.format_map(facts)}"
        yield Problem(f"{facts.path}.{key}", message)


@final
@dataclass(frozen=True, kw_only=True)
class Limit(Rule):
    """The key must keep to the number at `of`, or to the product of several; null is no
    number. `text` follows it in the message. "%" asks for a multiple."""

    text: str = ""
    value: object = ANY
    sign: Literal["<", "<=", ">", ">=", "=", "%"]
    of: Paths | int
    called: str = ""
    """What a message calls the number, as `text` names blocks; "": its path."""

    @property
    @override
    def paths(self) -> tuple[str, ...]:
        limits = () if isinstance(self.of, int) else _listed(self.of)
        return (*super().paths, *limits)

    @override
    def _problems(self, key: str, facts: Facts) -> Iterator[Problem]:
        value = getattr(facts.own, key)
        if value is None:
            return
        limit, label = self._limit(facts)
        if limit is None or _keeps(value, self.sign, limit):
            return
        sign = {"=": "", "%": "a multiple of "}.get(self.sign, f"{self.sign} ")
        message = f"must be {sign}{label}{self.text.format_map(facts)}"
        yield Problem(f"{facts.path}.{key}", message, value)

    def _limit(self, facts: Facts) -> tuple[float | None, str]:
        """The number, and how a message names it."""
        if isinstance(self.of, int):
            return self.of, f"{self.of:,}"
        numbers = [facts.of(path) for path in _listed(self.of)]
        called = self.called.format_map(facts)
        if isinstance(self.of, str):
            name = called or facts.label(self.of)
            return numbers[0], f"{name} ({_shown(numbers[0])})"
        names = called or " × ".join(path.split(".")[-1] for path in self.of)
        factors = " × ".join(map(str, numbers))
        return prod(numbers), f"{names} = {factors} = {prod(numbers)}"


def is_within(path: str, block: str) -> bool:
    """Whether a path leads to the block, or below it; "" is the whole spec."""
    return f"{path}.".startswith(f"{block}.") or block == ""


def _listed(paths: Paths) -> tuple[str, ...]:
    if isinstance(paths, str):
        return (paths,)
    return paths


def _shown(number: object) -> str:
    if isinstance(number, float):
        return f"{number:g}"
    return str(number)


def _keeps(value: float, sign: str, limit: float) -> bool:
    holds = {
        "<": value < limit,
        "<=": value <= limit,
        ">": value > limit,
        ">=": value >= limit,
        "=": value == limit,
    }
    if sign == "%":
        return value % limit == 0
    return holds[sign]


def broken_rules(
    kinds: type[Rule] | tuple[type[Rule], ...], facts: Facts, alone: bool = False
) -> Iterator[Problem]:
    """The problems of keys that break rules of these kinds in one block; of each key
    the first one. With `alone` only rules about the same block count."""
    for key, field in type(facts.own).model_fields.items():
        for rule in field.metadata:
            if not isinstance(rule, kinds):
                continue
            if alone and rule.names_other_blocks:
                continue
            try:
                problems = list(rule.broken(key, facts))
            except UnknownBlockError:
                continue
            if problems:
                yield from problems
                break
