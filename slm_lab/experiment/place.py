"""Whether there is what a spec wants to be trained on; asked before a run has a folder."""

import socket

from slm_lab.core.errors import LabError, Problem, SpecError, UsageError
from slm_lab.core.imports import importing
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.spec import Spec

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer."""
HOW_TO_START = (
    "start one (ray start --head), or remove meta.cluster and --cluster to train on this machine"
)


def check_place(where: str, spec: Spec) -> None:
    """Raises UsageError where its cluster does not answer, SpecError where its GPU is not here.

    What the nodes of a cluster have is known to them alone.
    """
    if spec.meta.cluster is not None:
        _check_cluster(spec.meta.cluster)
    elif problems := _gpu_problems(spec.agent):
        raise SpecError(where, problems)


def _check_cluster(address: str) -> None:
    """By itself where host and port are given, because Ray would ask again for minutes; where
    "auto" leads to Ray alone knows, and answers at once."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        _ask_ray(address)
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"there is no Ray cluster at {address}: {error}; {HOW_TO_START}"
        ) from error


def _ask_ray(address: str) -> None:
    from slm_lab.experiment.launch.cluster import connected

    try:
        with connected(address):
            pass
    except LabError as error:
        raise UsageError(str(error)) from error


def _gpu_problems(agent: AgentSpec) -> list[Problem]:
    """Of nets that are to live on a GPU and nowhere else; torch is imported for no others."""
    paths = [f"agent.{key}.gpu" for key, net in agent.nets.items() if net.gpu is True]
    if not paths:
        return []
    with importing():
        from slm_lab.agent.net.device import NO_GPU, sees_gpu

    return [] if sees_gpu() else [Problem(path, NO_GPU, True, has_value=True) for path in paths]
