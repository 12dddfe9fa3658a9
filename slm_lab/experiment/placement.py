"""Where the networks of a process live that trains together with others."""

from slm_lab.spec.schema.agent import AgentSpec


def on_cpu(agent: AgentSpec, only: object = None) -> AgentSpec:
    """With all nets on the CPU, or those whose `gpu` is `only`."""
    moved = {
        key: net.model_copy(update={"gpu": False})
        for key, net in agent.nets.items()
        if only in (None, net.gpu)
    }
    return agent.model_copy(update=moved)
