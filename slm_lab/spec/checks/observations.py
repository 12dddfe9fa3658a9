"""Checks that nets accept the observations of an environment, once their shape is
known.

Nets repeat these checks when they are built without a spec check. The layers of a
TorchArcNet need torch for their check, see `arc_problems`."""

from collections.abc import Iterator
from typing import TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.core.observation import ObservationLayout
from slm_lab.spec.checks.images import image_problems
from slm_lab.spec.checks.parts import part_problems, sees_parts
from slm_lab.spec.schema.agent import AgentSpec, built_nets
from slm_lab.spec.schema.conv import ConvNetSpec, DuelingConvNetSpec, ResNetSpec
from slm_lab.spec.schema.mlp import DuelingMLPNetSpec, HydraMLPNetSpec, MLPNetSpec
from slm_lab.spec.schema.net import NetSpec, Role
from slm_lab.spec.schema.recurrent import RecurrentNetSpec
from slm_lab.spec.schema.simba import SimBaNetSpec

Shape: TypeAlias = tuple[int, ...]

VECTOR_NETS = (
    MLPNetSpec,
    DuelingMLPNetSpec,
    HydraMLPNetSpec,
    RecurrentNetSpec,
    SimBaNetSpec,
)
IMAGE_NETS = (ConvNetSpec, DuelingConvNetSpec, ResNetSpec)

NETS_OF_IMAGES = {
    "DuelingMLPNet": "images need DuelingConvNet",
}
"""The replacement for a net of vectors, if it is not ConvNet."""


def observation_problems(
    agent: AgentSpec, layout: ObservationLayout, discrete: bool
) -> list[Problem]:
    """Problems of the nets of `agent` with observations as it gets them. `discrete`
    tells of actions: separate critics take continuous ones as an input."""
    has_input = agent.algorithm.CRITIC == "apart" and not discrete
    problems: dict[str, Problem] = {}
    for path, net, role in built_nets(agent):
        of_net = list(_check_net(path, net, role, layout))
        if role == "critic" and has_input and not of_net:
            of_net = list(_check_action(path, net, layout))
        problems |= {problem.path: problem for problem in of_net}
    return list(problems.values())


def joins_features(net: NetSpec, layout: ObservationLayout) -> bool:
    """Whether the action of a critic joins the features of the body of `net`. It stands
    beside an observation that the net sees as one vector."""
    return len(layout.shape) != 1 or sees_parts(net, layout)


def action_fault(net: NetSpec, layout: ObservationLayout) -> tuple[str, str] | None:
    """The key of a critic's net that leaves no place for a continuous action, and why.
    None if there is a place."""
    if not joins_features(net, layout):
        return None
    if not net.SEES_IMAGES and not sees_parts(net, layout):
        message = (
            "has no features that the action of a critic can join, and observations "
            f"of the shape {layout.shape} are no vectors; use ConvNet, ResNet or "
            "TorchArcNet"
        )
        return "type", message
    if net.lacks_hidden_layers:
        message = (
            "must have a layer: a critic's action joins the features of the image, and "
            "Q would be linear in it; set critic_fc_hid_layers"
        )
        return "fc_hid_layers", message
    return None


def _check_action(
    path: str, net: NetSpec, layout: ObservationLayout
) -> Iterator[Problem]:
    of_role = net.for_role("critic")
    fault = action_fault(of_role, layout)
    if fault is not None:
        key, message = fault
        value = of_role.model_dump(mode="json")[key]
        yield Problem(f"{path}.{net.file_key('critic', key)}", message, value)


def vector_fault(net: str, shape: Shape) -> str | None:
    """Why a net of the type `net`, which takes vectors, cannot take `shape`; None if it
    can."""
    if len(shape) == 1:
        return None
    image_net = NETS_OF_IMAGES.get(net, "images need ConvNet")
    fix = {
        2: 'several vectors are one with env.frame_op "concat"',
        3: image_net,
        4: f'{image_net}, and several frames are one image with env.frame_op "concat"',
    }.get(len(shape), "wrap the environment so that they are")
    return (
        "takes observations that are vectors, but the environment's have the shape "
        f"{shape}; {fix}"
    )


def _check_net(
    path: str, net: NetSpec, role: Role, layout: ObservationLayout
) -> Iterator[Problem]:
    if sees_parts(net.for_role(role), layout):
        yield from part_problems(net.for_role(role, block=path), layout)
        return
    shape = layout.shape
    # A plug-in may have the keys of a net but take other observations.
    if type(net) in VECTOR_NETS:
        message = vector_fault(net.type, shape)
        if message is not None:
            yield Problem(f"{path}.type", message, net.type)
    if type(net) in IMAGE_NETS:
        layers_path = f"{path}.{net.file_key(role, 'conv_hid_layers')}"
        of_role = net.for_role(role)
        yield from image_problems(of_role, shape, f"{path}.type", layers_path)
