"""The blocks of a spec, validated separately, so that problems in one do not hide the
others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from slm_lab.core.errors import Problem
from slm_lab.spec.budget import resolved
from slm_lab.spec.schema.agent import PARTS, AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.spec import Spec


@dataclass(frozen=True)
class Blocks:
    """The blocks of a spec; None for a block that is absent or has problems.
    `malformed` names the blocks that exist but have problems."""

    algorithm: AlgorithmSpec | None
    memory: MemorySpec | None
    net: NetSpec | None
    critic_net: NetSpec | None
    env: EnvSpec | None
    meta: MetaSpec | None
    malformed: frozenset[str] = frozenset()

    @property
    def agent(self) -> AgentSpec | None:
        """The algorithm with its nets; None without a net, or if one of the three has
        problems."""
        if self.algorithm is None or self.net is None or "critic_net" in self.malformed:
            return None
        return AgentSpec(
            algorithm=self.algorithm, net=self.net, critic_net=self.critic_net
        )

    @property
    def nets(self) -> dict[str, NetSpec]:
        """The nets by their path."""
        given = {"agent.net": self.net, "agent.critic_net": self.critic_net}
        return {path: net for path, net in given.items() if net is not None}


VALIDATORS: dict[str, Callable[[Any], Any]] = {
    **{key: kind.validate for key, kind in PARTS.items()},
    "env": EnvSpec.model_validate,
    "meta": MetaSpec.model_validate,
}

Check: TypeAlias = Callable[..., Iterable[Problem]]
"""It takes blocks by their names: `algorithm`, `env` and so on, or `blocks`, which are
all."""


def findings(checks: Iterable[Check], blocks: Blocks) -> Iterator[Problem]:
    """What the checks find, in their order. A check is skipped unless each block that
    it takes is of the type that it is annotated with."""
    for check in checks:
        kinds = {
            name: kind
            for name, kind in check.__annotations__.items()
            if name != "return"
        }
        taken = {
            name: blocks if name == "blocks" else getattr(blocks, name)
            for name in kinds
        }
        if all(isinstance(taken[name], kind) for name, kind in kinds.items()):
            yield from check(**taken)


def blocks_of(spec: Spec) -> Blocks:
    """The blocks of a spec without problems."""
    agent = spec.agent
    return Blocks(
        agent.algorithm, agent.memory, agent.net, agent.critic_net, spec.env, spec.meta
    )


def well_formed_blocks(raw: Mapping[str, Any]) -> Blocks:
    """The valid blocks of a spec with problems."""
    raw = resolved(raw)
    agent = raw.get("agent")
    of_agent = agent if isinstance(agent, Mapping) else {}
    given = {**of_agent, "env": raw.get("env"), "meta": raw.get("meta", {})}
    valid: dict[str, Any] = dict.fromkeys(VALIDATORS)
    malformed: set[str] = set()
    for block, validate in VALIDATORS.items():
        try:
            valid[block] = None if given.get(block) is None else validate(given[block])
        except (ValidationError, PydanticCustomError):
            malformed.add(block)
    return Blocks(**valid, malformed=frozenset(malformed))
