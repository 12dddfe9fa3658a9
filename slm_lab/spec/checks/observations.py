"""Checks that nets accept the observations of an environment, once their shape is
known.

Nets repeat these checks when they are built without a spec check. The layers of a
TorchArcNet need torch for their check, see `arc_problems`."""

from collections.abc import Iterator
from typing import TypeAlias

from slm_lab.core.errors import Problem
from slm_lab.spec.schema.agent import AgentSpec, built_nets
from slm_lab.spec.schema.conv import ConvNetSpec, DuelingConvNetSpec
from slm_lab.spec.schema.layers import ConvLayer
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
IMAGE_NETS = (ConvNetSpec, DuelingConvNetSpec)

COLOURS = (1, 3)
"""Sizes of a last axis that holds the channels: no image is that narrow."""

NETS_OF_IMAGES = {
    "DuelingMLPNet": "images need DuelingConvNet",
    "RecurrentNet": "no net has a memory for images; a ConvNet sees the last few "
    "frames if they "
    'are stacked into one image, as for Atari or with env.frame_op "concat"',
}
"""The replacement for a net of vectors, if it is not ConvNet."""


def observation_problems(
    agent: AgentSpec, shape: Shape, discrete: bool
) -> list[Problem]:
    """Problems of the nets of `agent` with observations of `shape`, as it gets them.
    `discrete` tells of actions: separate critics take continuous ones as an input
    beside the observation."""
    algorithm = agent.algorithm
    if algorithm.CRITIC == "apart" and (message := action_fault(shape, discrete)):
        return [Problem("agent.algorithm.name", message, algorithm.name)]
    problems = {
        problem.path: problem
        for path, net, role in built_nets(agent)
        for problem in _problems_of(path, net, role, shape)
    }
    return list(problems.values())


def action_fault(shape: Shape, discrete: bool) -> str | None:
    """Why separate critics cannot take actions as an input beside observations of
    `shape`. None if they can, or if actions are discrete and no input."""
    if discrete or len(shape) == 1:
        return None
    return (
        "critics of continuous actions take observations that are vectors, but the "
        f"environment's have the shape {shape}"
    )


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
    if len(shape) == 4 and net == "RecurrentNet":
        fix = image_net  # its text already names env.frame_op
    return (
        "takes observations that are vectors, but the environment's have the shape "
        f"{shape}; {fix}"
    )


def image_fault(shape: Shape) -> str | None:
    """Why a net of images cannot take `shape`; None if it can."""
    if len(shape) == 3 and shape[2] not in COLOURS:
        return None
    fix = {
        1: "vectors need MLPNet",
        4: 'several frames are one image with env.frame_op "concat"',
    }.get(len(shape), "wrap it so that the channels are there, and come first")
    return (
        "takes observations that are images (C, H, W), but the environment's have the "
        f"shape {shape}; {fix}"
    )


def conv_too_large(layer: ConvLayer, shape: Shape) -> str | None:
    """Why a convolution has no output for an input (C, H, W) of `shape`; None if it
    has."""
    if layer.size_after((shape[1], shape[2])) is not None:
        return None
    return (
        f"a kernel that reaches over {layer.reach} numbers with padding "
        f"{layer.padding} does not fit an input of the shape {shape}, (C, H, W); make "
        "the kernel smaller, or the strides before it"
    )


def _problems_of(
    path: str, net: NetSpec, role: Role, shape: Shape
) -> Iterator[Problem]:
    # A plug-in may have the keys of a net but take other observations.
    is_vector_net = type(net) in VECTOR_NETS
    message = None
    if is_vector_net:
        message = vector_fault(net.type, shape)
    if type(net) in IMAGE_NETS:
        message = image_fault(shape)
    if message is not None:
        yield Problem(f"{path}.type", message, net.type)
        return
    convolutions = net.for_role(role).conv_layers()
    key = net.file_key(role, "conv_hid_layers")
    for index, layer in enumerate(convolutions if type(net) in IMAGE_NETS else ()):
        message = conv_too_large(layer, shape)
        if message is not None:
            row = net.for_role(role).model_dump()["conv_hid_layers"][index]
            yield Problem(f"{path}.{key}.{index}", message, row)
            return
        height, width = layer.size_after((shape[1], shape[2])) or (0, 0)
        shape = (layer.out_channels, height, width)
