"""The keys `parts` and `obs` of a net become the body that encodes an observation."""

from collections.abc import Callable
from typing import TypeAlias

import torch

from slm_lab.agent.net.body import Body
from slm_lab.agent.net.parts import (
    Encoder,
    IndexEmbedding,
    PartsBody,
    vector_width,
)
from slm_lab.core.errors import LabError
from slm_lab.core.observation import ObservationLayout, Part
from slm_lab.core.types import Shape
from slm_lab.spec.checks.parts import (
    encoder_shape,
    encoders_of,
    part_problems,
    parts_seen,
    sees_parts,
)
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.parts import EmbeddingSpec, EncoderBlock

BuildBody: TypeAlias = Callable[[NetSpec, Shape, torch.Generator], Body]
"""Makes the layers of a net without its outputs."""

INHERITED = ("hid_layers_activation", "init_fn")
"""Keys that an encoder has from its net, unless it has its own."""

OF_THE_NET = ("precision", "matmul", "gpu")
"""Keys that encoders always have from their net."""


def encoding_body(
    spec: NetSpec,
    layout: ObservationLayout,
    generator: torch.Generator,
    build_body: BuildBody,
) -> Body | None:
    """The body that encodes observations of this layout for the net of `spec`, by
    layers that `build_body` makes. None if the net sees observations as they are.
    Raises LabError for parts that do not exist, or do not fit their encoder. A part
    whose encoder has a state comes last."""
    if not sees_parts(spec, layout):
        return None
    for problem in part_problems(spec, layout):
        raise LabError(str(problem))
    seen = parts_seen(spec, layout)
    encoders = {
        name: _encoder(
            spec=spec,
            block=block,
            layout=layout,
            part=seen[name],
            generator=generator,
            build_body=build_body,
        )
        for name, block in encoders_of(spec, layout).items()
    }
    if layout.parts:
        recurrent = recurrent_part(spec)
        if recurrent is not None:
            last, _ = recurrent
            seen[last] = seen.pop(last)
        return PartsBody(layout, list(seen), encoders)
    for encoder in encoders.values():
        assert isinstance(encoder.module, Body)
        return encoder.module
    return None


def _encoder(
    spec: NetSpec,
    block: EncoderBlock,
    layout: ObservationLayout,
    part: Part,
    generator: torch.Generator,
    build_body: BuildBody,
) -> Encoder:
    if isinstance(block, EmbeddingSpec):
        embedding = IndexEmbedding(part.sizes, block.dim, generator)
        return Encoder(embedding, embedding.width, sees_image=False)
    assert isinstance(block, NetSpec)
    net = _encoder_spec(spec, part.name, block)
    sees_image = part.is_image and net.SEES_IMAGES
    shape: Shape = (vector_width(part),)
    if sees_image:
        shape = encoder_shape(layout, part)
    body = build_body(net, shape, generator)
    return Encoder(body, body.width, sees_image)


def recurrent_part(spec: NetSpec) -> tuple[str, NetSpec] | None:
    """The part whose encoder has a state, and the keys of that; None without one."""
    for name, block in spec.parts.items():
        if isinstance(block, NetSpec) and block.RECURRENT:
            return name, _encoder_spec(spec, name, block)
    return None


def _encoder_spec(spec: NetSpec, name: str, block: NetSpec) -> NetSpec:
    """The keys of an encoder, with those that it has from its net."""
    keys = dict.fromkeys(OF_THE_NET)
    keys |= dict.fromkeys(key for key in INHERITED if key not in block.model_fields_set)
    last = {key: spec.value_of(key) for key in keys}
    return block.for_role("actor", last, f"{spec.block}.parts.{name}")
