"""What a spec needs before anything runs. The environment can be made, the spaces fit
the agent, and the devices and the cluster are there."""

from collections.abc import Iterator

from slm_lab.core.errors import Problem, SpecError
from slm_lab.core.observation import ObservationLayout
from slm_lab.core.process import importing
from slm_lab.env.check import check_env
from slm_lab.env.extras import missing, require
from slm_lab.env.lookup import find_env
from slm_lab.env.make import Spaces, describe_spaces
from slm_lab.env.vector.autoreset import one_by_one_reason
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.spec import Spec


def check_spaces(where: str, spec: Spec) -> Spaces:
    """The observation and action spaces of the environment. Raises SpecError if
    environment and agent do not fit, MissingExtraError, LabError."""
    problems = check_env(spec.env)
    if not problems:
        try:
            spaces = describe_spaces(spec.env)
        except SpecError as error:
            raise SpecError(where, error.problems) from error
        problems = action_space_problems(spec.agent.algorithm, *spaces.actions)
        is_choice = spaces.actions.kind == "discrete"
        problems += observation_problems(spec.agent, spaces.layout, is_choice)
        problems += _arc_problems(spec.agent, spaces.layout, is_choice)
    if problems:
        raise SpecError(where, problems)
    return spaces


def _arc_problems(
    agent: AgentSpec, layout: ObservationLayout, discrete: bool
) -> list[Problem]:
    """Problems of TorchArc nets, which only torch can find; imports torch only for
    these nets."""
    if not any(net.HAS_ARC for net in agent.nets.values()):
        return []
    with importing():
        from slm_lab.agent.from_spec.net import arc_problems

    return arc_problems(agent, layout, discrete)


def check_machine(where: str, spec: Spec) -> None:
    """Raises UsageError if the cluster does not answer. Raises SpecError if a net needs
    a GPU or bfloat16 that is missing. Raises MissingExtraError if the extra of clusters
    or videos is not installed. A cluster's devices are not checked."""
    if spec.meta.record_video is not None:
        require("imageio_ffmpeg", "video")
    if spec.meta.cluster is not None:
        require("ray", "cluster")
        from slm_lab.parallel.ray.connect import check_cluster

        check_cluster(spec.meta.cluster)
        return
    problems = check_devices(spec)
    if problems:
        raise SpecError(where, problems)


def copies_notes(spec: Spec) -> Iterator[str]:
    """A note where copies of the environment are slower than its package allows."""
    reason = one_by_one_reason(spec.env, find_env(spec.env))
    if reason is not None:
        yield f"copies of {spec.env.name} are stepped one by one: {reason}"


def missing_events_reason() -> str | None:
    """Why a run gets no TensorBoard events; None if it does. Without the extra a run
    trains all the same."""
    fault = missing("tensorboard", "tensorboard")
    return None if fault is None else f"no TensorBoard events: {fault}"


def check_devices(spec: Spec) -> list[Problem]:
    """What the nets need and this machine lacks: a GPU, or bfloat16. A cluster is not
    asked."""
    nets = spec.agent.nets.values()
    if spec.meta.cluster is not None:
        return []
    if all(net.gpu is not True and net.precision != "bf16" for net in nets):
        return []
    with importing():  # imports torch
        from slm_lab.agent.from_spec.net import problems_here

    return list(problems_here(spec.agent))
