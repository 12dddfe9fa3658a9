"""Where the networks of a process live that trains together with others."""

from slm_lab.spec.schema.agent import AgentSpec


def on_cpu(agent: AgentSpec, only: object = None) -> AgentSpec:
    """With all nets on the CPU, or those whose `gpu` is `only`."""
    nets = {"net": agent.net, "critic_net": agent.critic_net}
    moved = {
        key: net.model_copy(update={"gpu": False})
        for key, net in nets.items()
        if net is not None and only in (None, net.gpu)
    }
    return agent.model_copy(update=moved)
