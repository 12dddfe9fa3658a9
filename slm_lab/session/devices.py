"""Devices of networks in parallel training."""

from slm_lab.spec.schema.agent import AgentSpec


def on_cpu(agent: AgentSpec, only: object = None) -> AgentSpec:
    """The spec with all nets on the CPU, or only those whose `gpu` equals `only`."""
    moved = {
        key: net.model_copy(update={"gpu": False})
        for key, net in agent.nets.items()
        if only in (None, net.gpu)
    }
    return agent.model_copy(update=moved)
