"""Checks that the devices or the cluster of a spec exist, before a run has a folder."""

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.process import importing
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.spec import Spec


def check_place(where: str, spec: Spec) -> None:
    """Raises UsageError if the spec's cluster does not answer, SpecError if its GPU is missing.

    GPUs of a cluster are not checked: only its nodes know their devices.
    """
    if spec.meta.cluster is not None:
        from slm_lab.parallel.ray.connect import check_cluster

        check_cluster(spec.meta.cluster)
    elif problems := _gpu_problems(spec.agent):
        raise SpecError(where, problems)


def _gpu_problems(agent: AgentSpec) -> list[Problem]:
    """Problems of nets with `gpu: true`. Imports torch only if there are such nets."""
    paths = [f"agent.{key}.gpu" for key, net in agent.nets.items() if net.gpu is True]
    if not paths:
        return []
    with importing():
        from slm_lab.agent.net.device import NO_GPU, has_gpu

    return [] if has_gpu() else [Problem(path, NO_GPU, True) for path in paths]
