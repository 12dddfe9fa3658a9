"""What the language has and the lab does not build yet. Later work only deletes rows here.

A row is valid in a file, all of its keys are checked, and then it is refused by name.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from slm_lab.core.errors import Problem
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.blocks import Blocks


class Row(NamedTuple):
    """A key, the values of it that are not built (by a test), and the name of what is missing."""

    path: str
    given: Callable[[Blocks], object]
    missing: Callable[[object], bool]
    name: Callable[[object], str]
    which: str = "any value but the default"


NOT_BUILT = (
    Row(
        "meta.distributed",
        lambda b: b.meta and b.meta.distributed,
        lambda value: value == "actor_learner",
        lambda value: f'distributed "{value}"',
        '"actor_learner"',
    ),
)


def unavailable(blocks: Blocks) -> list[Problem]:
    """What a spec asks for that is not built yet, in the order of the file."""
    found = []
    for path, registry, name in _named_parts(blocks):
        entry = registry.get(name)
        if entry is not None and entry.target is None:
            found.append(Problem(path, f"{name} is not available yet", name, has_value=True))
    for row in NOT_BUILT:
        value = row.given(blocks)
        if value is not None and row.missing(value):
            message = f"{row.name(value)} is not available yet"
            found.append(Problem(row.path, message, value, has_value=True))
    return found


def _named_parts(blocks: Blocks) -> Iterator[tuple[str, Registry, str]]:
    if blocks.algorithm is not None:
        yield "agent.algorithm.name", ALGORITHMS, blocks.algorithm.name
    if blocks.memory is not None:
        yield "agent.memory.name", MEMORIES, blocks.memory.name
    if blocks.net is not None:
        yield "agent.net.type", NETS, blocks.net.type
    if blocks.critic_net is not None:
        yield "agent.critic_net.type", NETS, blocks.critic_net.type
