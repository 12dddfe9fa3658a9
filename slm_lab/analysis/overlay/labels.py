"""What the legend calls trainings: the name of their spec, and what tells them apart."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

MOST_LETTERS = 44
"""Of what differs between specs: with more of it a legend is no longer read."""
APART = "  "


@final
@dataclass(frozen=True)
class Named:
    """A training with a spec called `name`, and the leaves of that spec by their dotted paths.

    `tag` ("t3") stands behind the name; `stamp` tells what has the same name, tag and spec apart.
    """

    name: str
    leaves: Mapping[str, Any]
    stamp: str
    tag: str = ""


def labels(trainings: Sequence[Named]) -> list[str]:
    """A label each: the name alone if no other has it; else with the keys in which the specs of
    that name differ; else with the stamp."""
    namesakes: dict[str, list[Named]] = {}
    for each in trainings:
        namesakes.setdefault(each.name, []).append(each)
    said = []
    for each in trainings:
        parts = [f"{each.name} {each.tag}".strip(), _difference(each, namesakes[each.name])]
        said.append(APART.join(filter(None, parts)))
    twice = {label for label, count in Counter(said).items() if count > 1}
    return [
        f"{label}{APART}{each.stamp}" if label in twice else label
        for label, each in zip(said, trainings, strict=True)
    ]


def leaves(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """By dotted path what in nested blocks is no block; an empty block is a leaf."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        here = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping) and value:
            found |= leaves(value, here)
        else:
            found[here] = value
    return found


def short_key(path: str, among: Collection[str]) -> str:
    """The shortest end of a dotted path that no other path has: "lr", or "critic_net.lr"."""
    others = [f".{other}" for other in among if other != path]
    parts = path.split(".")
    ends = (".".join(parts[-count:]) for count in range(1, len(parts)))
    return next((end for end in ends if not any(o.endswith(f".{end}") for o in others)), path)


def _difference(one: Named, namesakes: Sequence[Named]) -> str:
    """ "lr 0.001, gamma 0.9" of one of several trainings with specs of one name.

    Keys with more different values come first; those that its spec does not have are not said.
    """
    paths = list(dict.fromkeys(path for each in namesakes for path in each.leaves))
    values = {path: len({_key(each, path) for each in namesakes}) for path in paths}
    differing = sorted((p for p in paths if values[p] > 1), key=lambda p: -values[p])
    its_own = [path for path in differing if path in one.leaves]
    return _joined(f"{short_key(p, paths)} {_text(one.leaves[p])}" for p in its_own)


def _joined(parts: Iterable[str]) -> str:
    """As many whole parts as there is room for, one at least, and "…" for those left out."""
    text = ""
    for part in parts:
        longer = f"{text}, {part}" if text else part
        if text and len(longer) > MOST_LETTERS:
            return f"{text}, …"
        text = longer
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _key(one: Named, path: str) -> str:
    """A value by which leaves are told apart; a missing one is like no other."""
    return json.dumps(one.leaves[path]) if path in one.leaves else ""


def _text(value: object) -> str:
    """A value as a legend writes it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
