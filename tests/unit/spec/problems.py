"""What the checks say of a spec, compared with shortened messages.

In an expected message "…" stands for any words; a longer message is accepted.
"""

import re
from collections.abc import Sequence
from typing import Any

from slm_lab.spec.parse import parse


def messages(raw: dict[str, Any]) -> list[str]:
    """The problems of a spec, each as its path, the value and the message."""
    return [str(problem) for problem in parse("s", raw).problems]


def assert_lines(found: Sequence[str], expected: Sequence[str]) -> None:
    """Asserts that each line is the expected one."""
    assert len(found) == len(expected), found
    for line, short in zip(found, expected, strict=True):
        pattern = ".*".join(map(re.escape, re.split(" ?… ?", short)))
        assert re.match(pattern, line), f"{line!r} is not {short!r}"


def assert_problem(raw: dict[str, Any], expected: str | None) -> None:
    """Asserts that the spec has only this problem; None: that it is accepted."""
    assert_lines(messages(raw), [] if expected is None else [expected])
