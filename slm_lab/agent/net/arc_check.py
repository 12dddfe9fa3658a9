"""Whether the layers of arcs can see what an environment shows: asked before anything starts."""

from slm_lab.agent.net.torch_arc import BODY, ArcError, build_body
from slm_lab.core.errors import Problem
from slm_lab.spec.role import built_nets, folded
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.net import TorchArcNetSpec


def arc_problems(agent: AgentSpec, shape: tuple[int, ...], discrete: bool) -> list[Problem]:
    """What torch says of the arcs of `agent` for observations of `shape`, as the agent gets them.

    `discrete` says whether an action is a choice: other ones stand beside the observation for
    critics apart from the policy, whose arcs are therefore only tried when they are built.
    """
    found = {}
    for block, net, role in built_nets(agent):
        own = folded(net, role)
        sees_actions = role == "critic" and agent.algorithm.CRITIC == "apart" and not discrete
        if not isinstance(own, TorchArcNetSpec) or own.arc is None or sees_actions:
            continue
        key = f"{role}_{BODY}" if f"{role}_arc" in net.variants else BODY
        try:
            build_body(own.arc, shape)
        except ArcError as error:
            path = f"{block}.{key}.{error.place}"
            found[path] = Problem(path, error.reason)
    return list(found.values())
