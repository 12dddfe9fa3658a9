"""The net of one role: `actor_*` and `critic_*` keys, critic_net and use_same_optim folded in."""

from collections.abc import Iterator
from typing import Any

from slm_lab.core.errors import LabError
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.net import ROLES, NetSpec, Role
from slm_lab.spec.schema.optim import OptimSpec

OPTIMIZER_KEYS = ("optim_spec", "lr_scheduler_spec")


def net_for_role(agent: AgentSpec, role: Role) -> NetSpec:
    """The net that `role` has, with plain keys only (`variants` is empty).

    A critic takes `agent.critic_net` where there is one; with `use_same_optim`, and always with a
    shared body, its optimizer and learning-rate scheduler are the actor's. Raises LabError for an
    agent without a net.
    """
    if agent.net is None:
        raise LabError(f"{agent.algorithm.name} has no net")
    if role == "critic" and agent.critic_net is not None:
        return folded(agent.critic_net, role)
    if role == "critic" and (agent.net.use_same_optim or agent.net.shared):
        actor = folded(agent.net, "actor").model_dump(mode="json")
        return folded(agent.net, role, {key: actor[key] for key in OPTIMIZER_KEYS})
    return folded(agent.net, role)


def targets_role(algorithm: AlgorithmSpec) -> Role:
    """The role whose nets have target networks that follow them, if any have."""
    return "critic" if algorithm.CRITIC == "apart" else "actor"


def optimizer_paths(
    net: NetSpec | None, critic_net: NetSpec | None
) -> Iterator[tuple[str, OptimSpec]]:
    """Every optimizer that is used, with the path at which the file gives it."""
    blocks = [("agent.net", net, ROLES), ("agent.critic_net", critic_net, ("critic",))]
    seen: set[str] = set()
    for block, spec, roles in blocks:
        if spec is None:
            continue
        for role in roles:
            key = f"{role}_optim_spec" if f"{role}_optim_spec" in spec.variants else "optim_spec"
            path = f"{block}.{key}"
            if path not in seen:
                seen.add(path)
                yield path, folded(spec, role).optim_spec


def built_nets(agent: AgentSpec) -> Iterator[tuple[str, NetSpec, Role]]:
    """Every net that an algorithm of the lab builds: the block it stands in, the net, and whose it
    is. None of an agent without nets, or of a plug-in, of whose nets nothing is known."""
    algorithm, net = agent.algorithm, agent.net
    if not algorithm.NEEDS_NET or algorithm.CRITIC is None or net is None:
        return
    yield "agent.net", net, "actor"
    if algorithm.CRITIC == "none":
        return
    if agent.critic_net is not None:
        yield "agent.critic_net", agent.critic_net, "critic"
    else:
        yield "agent.net", net, "critic"


def folded(net: NetSpec, role: Role, last: dict[str, Any] | None = None) -> NetSpec:
    """`net` with the keys that it has for `role`, and at last with `last`."""
    return type(net).model_validate({**net.own_keys(), **net.role_keys(role), **(last or {})})
