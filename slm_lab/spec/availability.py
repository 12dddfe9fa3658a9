"""Parts that the language has and nobody has built: their keys are checked, and then they are
refused by name."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.blocks import Blocks


def unavailable(blocks: Blocks) -> list[Problem]:
    """What a spec asks for that is not built yet, in the order of the file."""
    found = []
    for path, registry, name in _named_parts(blocks):
        entry = registry.get(name)
        if entry is not None and entry.target is None:
            found.append(Problem(path, f"{name} is not available yet", name, has_value=True))
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
