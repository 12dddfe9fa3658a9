"""The net of a role, with `actor_*` and `critic_*` keys, critic_net and use_same_optim
applied."""

from collections.abc import Iterator

from slm_lab.core.errors import LabError
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.net import ROLES, NetSpec, Role
from slm_lab.spec.schema.optim import OptimSpec

OPTIMIZER_KEYS = ("optim_spec", "lr_scheduler_spec")


def net_for_role(agent: AgentSpec, role: Role) -> NetSpec:
    """The net of `role`, with plain keys only (`variants` is empty). A critic uses
    `agent.critic_net` if it exists. Otherwise, with `use_same_optim` or a shared body,
    its optimizer and learning-rate scheduler are the actor's. Raises LabError for an
    agent without a net."""
    if agent.net is None:
        raise LabError(f"{agent.algorithm.name} has no net")
    key = agent.net_key(role)
    block = f"agent.{key}"
    net = agent.nets[key]
    if role == "critic" and net is agent.net and (net.use_same_optim or net.shared):
        actor = net.for_role("actor").model_dump(mode="json")
        return net.for_role(role, {key: actor[key] for key in OPTIMIZER_KEYS}, block)
    return net.for_role(role, block=block)


def targets_role(algorithm: AlgorithmSpec) -> Role:
    """The role whose nets have target networks, if the algorithm has any."""
    if algorithm.has_separate_critics:
        return "critic"
    return "actor"


def optimizer_paths(
    net: NetSpec | None, critic_net: NetSpec | None
) -> Iterator[tuple[str, OptimSpec]]:
    """Every used optimizer, with its path in the file."""
    blocks = [("agent.net", net, ROLES), ("agent.critic_net", critic_net, ("critic",))]
    seen: set[str] = set()
    for block, spec, roles in blocks:
        if spec is None:
            continue
        for role in roles:
            path = f"{block}.{spec.file_key(role, 'optim_spec')}"
            if path not in seen:
                seen.add(path)
                yield path, spec.for_role(role).optim_spec


def built_nets(agent: AgentSpec) -> Iterator[tuple[str, NetSpec, Role]]:
    """Every net that one of the lab's algorithms builds: its block, the net and its
    role. Empty for an agent without nets, and for a plug-in, whose nets are unknown."""
    algorithm = agent.algorithm
    if not algorithm.NEEDS_NET or algorithm.CRITIC is None or agent.net is None:
        return
    for role in ROLES[:1] if algorithm.has_one_net else ROLES:
        key = agent.net_key(role)
        yield f"agent.{key}", agent.nets[key], role
