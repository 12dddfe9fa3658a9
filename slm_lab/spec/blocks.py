"""The blocks of a spec, validated separately, so that problems in one do not hide the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from slm_lab.spec.schema.agent import ALGORITHM, MEMORY, NET
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.meta import META, MetaSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.spec import Spec


@dataclass(frozen=True)
class Blocks:
    """The blocks of a spec; None for a block that is absent or has problems.

    `malformed` names the blocks that exist but have problems.
    """

    algorithm: AlgorithmSpec | None
    memory: MemorySpec | None
    net: NetSpec | None
    critic_net: NetSpec | None
    env: EnvSpec | None
    meta: MetaSpec | None
    malformed: frozenset[str] = frozenset()


def blocks_of(spec: Spec) -> Blocks:
    """The blocks of a spec without problems."""
    agent = spec.agent
    return Blocks(agent.algorithm, agent.memory, agent.net, agent.critic_net, spec.env, spec.meta)


def well_formed_blocks(raw: Mapping[str, Any]) -> Blocks:
    """The valid blocks of a spec with problems."""
    agent = raw.get("agent")
    agent = agent if isinstance(agent, Mapping) else {}
    malformed: set[str] = set()

    def built(validate: Callable[[Any], Any], block: str, value: Any) -> Any:
        try:
            return None if value is None else validate(value)
        except (ValidationError, PydanticCustomError):
            malformed.add(block)
            return None

    algorithm = built(ALGORITHM.validate, "algorithm", agent.get("algorithm"))
    memory = built(MEMORY.validate, "memory", agent.get("memory"))
    net = built(NET.validate, "net", agent.get("net"))
    critic_net = built(NET.validate, "critic_net", agent.get("critic_net"))
    env = built(EnvSpec.model_validate, "env", raw.get("env"))
    meta = built(META.validate, "meta", raw.get("meta", {}))
    return Blocks(algorithm, memory, net, critic_net, env, meta, frozenset(malformed))
