"""Limits of spec files, so that reading an untrusted file takes at most a second.

The lab's own files have some 3 kB and 150 values per spec. The spec file of a run also
holds a record of every resume."""

import codecs
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.files import open_file

JSON_BYTES = 4_000_000
YAML_BYTES = 500_000
"""The limit is smaller for YAML, which is read forty times more slowly."""

JSON_VALUES = 100_000
YAML_VALUES = 10_000
"""The most values of keys and entries of lists; values of a YAML alias count at every
use."""

WRITTEN_BYTES = 2_000_000
WRITTEN_VALUES = 50_000
"""The limits of one spec in a run folder, whose file also holds the record of its
resumes."""

MOST_LEVELS = 64
"""Nesting depth of blocks and lists; shipped specs have 9."""

MOST_KEYS = 200
"""Keys of a block, or specs of a file. Each unknown key is compared with all known
keys."""

LONGEST_KEY = 200
LONGEST_STRING = 20_000
"""The most characters of a key, and of a string."""


UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE, b"{\0", b"\0{")
"""The first bytes of a file in another encoding of Unicode, with or without a byte
order mark."""


def read_bounded(path: Path, most: int, where: str) -> str:
    """The text of a file of at most `most` bytes, UTF-8 with or without a byte order
    mark. Raises SpecError for a larger or unreadable file."""
    try:
        with open_file(path) as file:
            content = file.read(most + 1)
        if len(content) > most:
            message = (
                f"has more than {most:,} bytes, the most that a spec file may have"
            )
            raise SpecError.of(where, "file", message)
        if content.startswith(UTF_16):
            message = "is encoded in UTF-16 or UTF-32; save it as UTF-8"
            raise SpecError.of(where, "file", message)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: byte {error.start} is 0x{content[error.start]:02x}"
        raise SpecError.of(where, "file", f"{message}; save it as UTF-8") from None
    except OSError as error:
        raise SpecError.of(where, "file", f"cannot be read: {error}") from None


def check_extent(
    tree: Any, parts: Callable[[Any], Iterable[Any]], most: int, where: str
) -> None:
    """Raises SpecError if `tree` is too deep or holds more than `most` values. `parts`
    returns the children of a node."""
    seen = 0
    pending = [(tree, 0)]
    while pending:
        part, level = pending.pop()
        seen += 1
        if level > MOST_LEVELS:
            raise too_deep(where)
        if seen > most:
            message = (
                f"holds more than {most:,} values, the most that a spec file may hold"
            )
            raise SpecError.of(where, "file", message)
        pending.extend((child, level + 1) for child in parts(part))


def check_writable(spec: Mapping[str, Any], where: str) -> None:
    """Raises SpecError for a spec that a run folder could not hold: its readers would
    refuse it."""
    check_extent(spec, children, WRITTEN_VALUES, where)
    check_text(spec, where)
    size = len(json.dumps(spec, indent=2))
    if size > WRITTEN_BYTES:
        message = f"takes {size:,} bytes in a run folder; the most is {WRITTEN_BYTES:,}"
        raise SpecError.of(
            where, "file", f"{message}; read large data from another file"
        )


def children(tree: Any) -> Iterable[Any]:
    """The values of a block or list; of any other value none."""
    if isinstance(tree, Mapping):
        return tree.values()
    if isinstance(tree, list | tuple):
        return tree
    return ()


def too_deep(where: str) -> SpecError:
    """The error for a file that nests too many blocks and lists."""
    message = (
        f"is nested too deeply: more than {MOST_LEVELS} blocks and lists inside each "
        "other"
    )
    return SpecError.of(where, "file", message)


def check_text(tree: Any, where: str) -> None:
    """Raises SpecError for a block with too many keys, and for a too long or invalid
    string. `tree` must have passed `check_extent`."""
    problem = next(_faults(tree), None)
    if problem is not None:
        raise SpecError(where, [problem])


def nodes(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a tree with its dotted path; blocks and lists before what they
    hold."""
    yield path, tree
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            yield from nodes(item, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, list | tuple):
        for index, item in enumerate(tree):
            yield from nodes(item, f"{path}.{index}")


def _faults(tree: Any) -> Iterator[Problem]:
    for path, value in nodes(tree):
        if isinstance(value, str):
            yield from _faults_of_text(value, LONGEST_STRING, path or "file", "holds")
        elif isinstance(value, Mapping):
            if len(value) > MOST_KEYS:
                message = (
                    f"holds {len(value):,} keys; a block may hold at most {MOST_KEYS}"
                )
                yield Problem(path or "file", message)
            for key in filter(lambda key: isinstance(key, str), value):
                yield from _faults_of_text(
                    key, LONGEST_KEY, path or "file", "has a key of"
                )


def _faults_of_text(text: str, most: int, path: str, has: str) -> Iterator[Problem]:
    if len(text) > most:
        yield Problem(
            path, f"{has} {len(text):,} characters ({text[:20]}…); the most is {most:,}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        yield Problem(path, f"has half of a surrogate pair in {text[:60]!a}")
