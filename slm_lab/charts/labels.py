"""The labels of trainings in a legend: the name of their spec, and what differs between
them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slm_lab.charts.search_summary import short_names

MOST_LETTERS = 44
"""The letters of a difference between specs that a legend has room for."""
APART = "  "


class Named(NamedTuple):
    """A training with a spec called `name`, and the leaves of that spec by their dotted
    paths.

    `tag` ("t3") follows the name. `stamp` distinguishes trainings with the same name,
    tag and spec.
    """

    name: str
    leaves: Mapping[str, Any]
    stamp: str
    tag: str = ""


def labels(trainings: Sequence[Named]) -> list[str]:
    """A label each: the name alone if no other has it; else with the keys in which the
    specs of that name differ; else with the stamp."""
    namesakes: dict[str, list[Named]] = {}
    for each in trainings:
        namesakes.setdefault(each.name, []).append(each)
    texts = []
    for each in trainings:
        parts = [
            f"{each.name} {each.tag}".strip(),
            _difference(each, namesakes[each.name]),
        ]
        texts.append(APART.join(filter(None, parts)))
    twice = {label for label, count in Counter(texts).items() if count > 1}
    return [
        f"{label}{APART}{each.stamp}" if label in twice else label
        for label, each in zip(texts, trainings, strict=True)
    ]


def leaves(nested: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values in nested blocks, by dotted path; an empty block is a value."""
    found: dict[str, Any] = {}
    for key, value in nested.items():
        here = f"{above}.{key}" if above else str(key)
        if isinstance(value, Mapping) and value:
            found |= leaves(value, here)
        else:
            found[here] = value
    return found


def _difference(one: Named, namesakes: Sequence[Named]) -> str:
    """ "lr 0.001, gamma 0.9" of one of several trainings with specs of one name. Keys
    with more different values come first, the interval of rows last; keys missing here
    are left out."""
    paths = list(dict.fromkeys(path for each in namesakes for path in each.leaves))
    # a missing value differs from all others
    leaves = [each.leaves for each in namesakes]
    values = {
        p: len({json.dumps(e[p]) if p in e else "" for e in leaves}) for p in paths
    }
    differing = [path for path in paths if values[path] > 1]
    differing.sort(key=lambda path: (path == "meta.log_frequency", -values[path]))
    present = [path for path in differing if path in one.leaves]
    names = short_names(paths)
    return _joined(f"{names[path]} {_text(one.leaves[path])}" for path in present)


def _joined(parts: Iterable[str]) -> str:
    """As many whole parts as there is room for, one at least, and "…" for those left
    out."""
    text = ""
    for part in parts:
        longer = f"{text}, {part}" if text else part
        if text and len(longer) > MOST_LETTERS:
            return f"{text}, …"
        text = longer
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)
