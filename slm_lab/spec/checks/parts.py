"""What encodes each part of an observation, and whether it can."""

from collections.abc import Iterator, Mapping, Sequence

from slm_lab.core.errors import Problem
from slm_lab.core.observation import BYTE, ObservationLayout, Part
from slm_lab.spec.checks.images import image_problems
from slm_lab.spec.schema.conv import conv_net_for
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.parts import EMBEDDING, EncoderBlock

WHOLE = "obs"
"""The name of an observation without parts."""


def sees_parts(net: NetSpec, layout: ObservationLayout) -> bool:
    """Whether something encodes observations of this layout before `net` sees them."""
    has_keys = bool(net.parts) or net.obs is not None
    is_memory_of_images = net.RECURRENT and len(layout.shape) == 3
    is_mixed = layout.is_bytes or layout.mask is not None
    return has_keys or is_memory_of_images or is_mixed


def parts_seen(net: NetSpec, layout: ObservationLayout) -> dict[str, Part]:
    """The parts that `net` sees by name. Names that do not exist are left out."""
    known = named_parts(layout)
    names = layout.names or (WHOLE,)
    if net.obs is not None:
        names = net.obs
    return {name: known[name] for name in names if name in known}


def named_parts(layout: ObservationLayout) -> dict[str, Part]:
    """The parts of an observation by name; without parts it is one itself."""
    if layout.parts:
        return {part.name: part for part in layout.parts}
    size = 1
    for length in layout.shape:
        size *= length
    whole = Part(WHOLE, layout.shape, layout.dtype, start=0, end=size)
    return {WHOLE: whole}


def encoders_of(net: NetSpec, layout: ObservationLayout) -> dict[str, EncoderBlock]:
    """The encoders of the parts that `net` sees, by name. Images without one in the
    spec have the convolutions of the net, or a net for their size."""
    encoders: dict[str, EncoderBlock] = {}
    for name, part in parts_seen(net, layout).items():
        encoder = net.parts.get(name)
        if encoder is None and _is_large_image(layout, part):
            encoder = _default_encoder(net, part)
        if encoder is not None:
            encoders[name] = encoder
    return encoders


def _is_large_image(layout: ObservationLayout, part: Part) -> bool:
    """Whether a part is an image with axes; a small one is numbers of a vector."""
    return part.is_image and (layout.is_bytes or not layout.parts)


def _default_encoder(net: NetSpec, part: Part) -> EncoderBlock:
    if net.NEEDS_IMAGES:
        # the image is all that it sees
        return net.as_encoder().model_copy(update={"parts": {}, "obs": None})
    _, height, width = part.image_shape
    return conv_net_for(height, width, part.dtype == BYTE)


def encoder_shape(layout: ObservationLayout, part: Part) -> tuple[int, ...]:
    """The shape in which an encoder of images sees a part: (C, H, W), of all frames."""
    if not part.is_image:
        return part.shape
    channels, height, width = part.image_shape
    if layout.parts:
        channels *= layout.frames
    return channels, height, width


def part_problems(net: NetSpec, layout: ObservationLayout) -> Iterator[Problem]:
    """The problems of the net of a role with the parts of an observation."""
    yield from _check_names(net, layout)
    yield from _check_recurrent_encoders(net)
    seen = parts_seen(net, layout)
    encoders = encoders_of(net, layout)
    for name, encoder in encoders.items():
        place = f"{net.path_of('parts')}.{name}"
        if name not in net.parts:
            place = net.block
        yield from _check_encoder(place, encoder, layout, seen[name])
    yield from _check_index_widths(net.path_of("parts"), seen, encoders)
    has_image = any(part.is_image for part in seen.values())
    if net.NEEDS_IMAGES and seen and not has_image:
        message = f"takes images, and there is none among {', '.join(seen)}; use MLPNet"
        yield Problem(net.path_of("type"), message, net.type)


def _check_recurrent_encoders(net: NetSpec) -> Iterator[Problem]:
    """Recurrent encoders, if the net or another encoder is recurrent too."""
    names = [name for name, encoder in net.parts.items() if encoder.RECURRENT]
    first = "the net itself"
    if not net.RECURRENT and names:
        first = names.pop(0)
    for name in names:
        message = f"{first} is recurrent, and a net has one state; use MLPNet here"
        encoder = net.parts[name]
        yield Problem(f"{net.path_of('parts')}.{name}.type", message, encoder.type)


WIDEST_ONE_HOT = 65_536


def _check_index_widths(
    path: str, seen: Mapping[str, Part], encoders: Mapping[str, EncoderBlock]
) -> Iterator[Problem]:
    """Indices whose one-hots would be longer than any layer should see. `path` is the
    place of the encoders."""
    for name, part in seen.items():
        width = sum(part.sizes)
        encoder = encoders.get(name)
        is_embedded = encoder is not None and encoder.type == EMBEDDING
        if width > WIDEST_ONE_HOT and not is_embedded:
            message = (
                f"is missing: the part has {width:,} values, too many for a one-hot; "
                f'set {{"type": "{EMBEDDING}"}}'
            )
            yield Problem(f"{path}.{name}", message)


def _check_names(net: NetSpec, layout: ObservationLayout) -> Iterator[Problem]:
    obs = net.path_of("obs")
    parts = net.path_of("parts")
    known = layout.names or (WHOLE,)
    listed = ", ".join(known)
    if net.obs is not None and not net.obs:
        yield Problem(obs, f"must name a part; there are {listed}", [])
    places: Mapping[str, object] = {
        **{f"{obs}.{index}": name for index, name in enumerate(net.obs or ())},
        **{f"{parts}.{name}": name for name in net.parts},
    }
    yield from _check_repeated_names(obs, net.obs or ())
    for place, name in places.items():
        if name not in known:
            yield Problem(place, unknown_part(layout), name)
        elif net.obs is not None and name not in net.obs:
            yield Problem(place, f"is not seen; add it to {obs}", name)


def _check_repeated_names(path: str, names: Sequence[str]) -> Iterator[Problem]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield Problem(f"{path}.{index}", "is there twice; remove one", name)


def unknown_part(layout: ObservationLayout) -> str:
    """What a message says of the name of a part that does not exist."""
    if not layout.parts and layout.frames > 1 and len(layout.shape) == 2:
        return 'stacked vectors have no parts; use env.frame_op "concat"'
    if not layout.parts:
        return f'the observation has no parts; its own name is "{WHOLE}"'
    return f"the observation has no such part; it has {', '.join(layout.names)}"


def _check_encoder(
    path: str, encoder: EncoderBlock, layout: ObservationLayout, part: Part
) -> Iterator[Problem]:
    if encoder.type == EMBEDDING and not part.sizes:
        message = "only a Discrete or MultiDiscrete part has an embedding; use MLPNet"
        yield Problem(f"{path}.type", message, encoder.type)
    if encoder.RECURRENT and _is_large_image(layout, part):
        message = (
            "takes a vector, and this part is an image; set it as the type of the "
            "whole net, whose images go through convolutions first"
        )
        yield Problem(f"{path}.type", message, encoder.type)
    if not isinstance(encoder, NetSpec) or not encoder.NEEDS_IMAGES:
        return
    key = encoder.path_of("conv_hid_layers").rpartition(".")[2]
    shape = encoder_shape(layout, part)
    yield from image_problems(encoder, shape, f"{path}.type", f"{path}.{key}")
