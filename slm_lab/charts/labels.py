"""The labels of trainings in a legend: the name of their spec, and what differs between
them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from slm_lab.core.text import shortened
from slm_lab.core.values import short_names

MOST_LETTERS = 44
"""The letters of a difference between specs that a legend has room for."""
APART = "  "


class Named(NamedTuple):
    """A training with a spec called `name`, and the leaves of that spec by their dotted
    paths.

    `tag` ("t3") follows the name. `stamp` distinguishes trainings with the same name,
    tag and spec. Only the labels of one `panel` differ from each other.
    """

    name: str
    leaves: Mapping[str, Any]
    stamp: str
    tag: str = ""
    panel: str = ""


def labels(trainings: Sequence[Named]) -> list[str]:
    """A label for each training: the name alone if no other training has it. Otherwise
    the keys follow in which the specs of that name differ. If that is not enough, the
    stamp follows too."""
    namesakes: dict[tuple[str, str], list[Named]] = {}
    for training in trainings:
        namesakes.setdefault((training.panel, training.name), []).append(training)
    texts = []
    for training in trainings:
        name = f"{training.name} {training.tag}".strip()
        difference = _difference(training, namesakes[training.panel, training.name])
        texts.append((training.panel, apart(name, difference)))
    counts = Counter(texts)
    return [
        apart(text[1], training.stamp if counts[text] > 1 else "")
        for text, training in zip(texts, trainings, strict=True)
    ]


def apart(*texts: str) -> str:
    """The texts that are not empty, with gaps between them."""
    return APART.join(filter(None, texts))


def _difference(chosen: Named, namesakes: Sequence[Named]) -> str:
    """ "lr 0.001, gamma 0.9" of one of several trainings with specs of one name. Keys
    with more different values come first, the interval of rows last; keys missing here
    are left out."""
    values: dict[str, list[str]] = {}
    for training in namesakes:
        for path, value in training.leaves.items():
            values.setdefault(path, []).append(json.dumps(value))
    # a missing value differs from all others
    counts = {
        path: len(set(texts)) + (len(texts) < len(namesakes))
        for path, texts in values.items()
    }
    differing = [path for path, count in counts.items() if count > 1]
    differing.sort(key=lambda path: (path == "meta.log_frequency", -counts[path]))
    present = [path for path in differing if path in chosen.leaves]
    names = short_names(list(values))
    return _joined(f"{names[path]} {_text(chosen.leaves[path])}" for path in present)


def _joined(parts: Iterable[str]) -> str:
    """One part at least, and as many more as there is room for; "…" stands for the
    rest."""
    text = ""
    for part in parts:
        longer = ", ".join(filter(None, (text, part)))
        if text and len(longer) > MOST_LETTERS:
            return f"{text}, …"
        text = longer
    return shortened(text, MOST_LETTERS)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, str):
        return value
    return json.dumps(value)
