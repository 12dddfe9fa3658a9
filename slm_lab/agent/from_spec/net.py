"""The keys of a net block become the arguments of a net.

Each net of the lab has a function here that reads its keys. A net of another package
reads its own: it is called with (spec, obs_shape, heads, generator)."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from slm_lab.agent.device import NO_GPU, has_gpu, resolve_device
from slm_lab.agent.net import layers as precision
from slm_lab.agent.net.body import Body, BodyNet, HiddenLayers, PassedFeatures
from slm_lab.agent.net.conv import ConvBody
from slm_lab.agent.net.dueling import DuelingNet
from slm_lab.agent.net.layers import (
    ActivationClass,
    BatchRenorm,
    Head,
    Heads,
    Norm,
    init_recurrent,
    reject_single_samples,
)
from slm_lab.agent.net.mlp import HydraMLPNet, MLPNet
from slm_lab.agent.net.noise import Dropout
from slm_lab.agent.net.parts import (
    EncodedNet,
    Encoder,
    IndexEmbedding,
    PartsBody,
    vector_width,
)
from slm_lab.agent.net.recurrent import CELLS, RecurrentNet
from slm_lab.agent.net.resnet import ResNetBody
from slm_lab.agent.net.simba import SimBaBody
from slm_lab.agent.net.torch_arc import (
    BODY,
    ArcBody,
    ArcError,
    build_arc,
    init_arc,
)
from slm_lab.core.errors import LabError, Problem
from slm_lab.core.observation import FLOAT32, ObservationLayout, Part
from slm_lab.core.registry import NETS
from slm_lab.core.types import Array, Shape
from slm_lab.spec.checks.images import convolution_fault, image_fault
from slm_lab.spec.checks.observations import (
    action_fault,
    joins_features,
    vector_fault,
)
from slm_lab.spec.checks.parts import (
    encoder_shape,
    encoders_of,
    part_problems,
    parts_seen,
    sees_parts,
)
from slm_lab.spec.schema.agent import AgentSpec, built_nets
from slm_lab.spec.schema.arc import TorchArcNetSpec
from slm_lab.spec.schema.conv import ConvNetSpec, DuelingConvNetSpec, ResNetSpec
from slm_lab.spec.schema.mlp import DuelingMLPNetSpec, HydraMLPNetSpec, MLPNetSpec
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.parts import EmbeddingSpec, EncoderBlock
from slm_lab.spec.schema.recurrent import RecurrentNetSpec
from slm_lab.spec.schema.simba import SimBaNetSpec

Reader: TypeAlias = Callable[..., nn.Module]
"""Makes a net from its keys, the shape of an observation, heads, a generator, and its
class, `kind`."""

ImageBody: TypeAlias = Callable[..., ConvBody | ResNetBody]
"""Makes the layers that see the image of a net."""

INHERITED = ("hid_layers_activation", "init_fn")
"""Keys that an encoder has from its net, unless it has its own."""

OF_THE_NET = ("precision", "matmul", "gpu")
"""Keys that encoders always have from their net."""

NO_BF16 = (
    'this machine has no instructions for bfloat16, which is slow; use "float32" or '
    '"auto"'
)


def build_net(
    spec: NetSpec,
    obs: ObservationLayout | Shape,
    heads: Heads,
    generator: torch.Generator,
    num_actions: int = 0,
) -> nn.Module:
    """The registered net that the spec names, with one linear output per head. With
    `num_actions` it sees so many numbers of an action too. They stand beside an
    observation that is a vector. Otherwise they are an argument of their own, and join
    the features of the net's body. Raises LabError for a net without a place for
    them."""
    spec = with_precision(spec)
    layout = obs
    if not isinstance(layout, ObservationLayout):
        layout = ObservationLayout(layout, FLOAT32)
    kind = NETS.load(spec.type)
    read = _reader_of(spec, kind)
    body = _encoding_body(spec, layout, generator)
    if spec.RECURRENT:
        read = partial(read, obs_dtype=layout.dtype)
    obs_shape = layout.shape
    if num_actions and joins_features(spec, layout):
        _check_action(spec, layout)
        if body is None or spec.NEEDS_IMAGES:
            read = partial(read, num_actions=num_actions)
    elif num_actions:
        obs_shape = (obs_shape[0] + num_actions,)
    net: nn.Module
    recurrent = _recurrent_part(spec)
    if body is None:
        net = read(spec, obs_shape, heads, generator)
        if read is kind:  # of another package
            _check_outputs(net, spec, np.zeros((2, *obs_shape), layout.dtype), heads)
    elif recurrent is not None:
        _, encoder = recurrent
        net = _net_around_cell(
            spec=spec,
            encoder=encoder,
            layout=layout,
            body=body,
            read=read,
            heads=heads,
            generator=generator,
        )
    elif spec.RECURRENT or spec.NEEDS_IMAGES:
        net = read(spec, obs_shape, heads, generator, body=body)
    else:
        features = (body.width + num_actions,)
        net = EncodedNet(body, read(spec, features, heads, generator))
    reject_single_samples(net, spec.block)
    return net


def build_body(
    spec: NetSpec, obs_shape: Shape, generator: torch.Generator
) -> HiddenLayers:
    """A net of the lab without its heads: it maps observations to `width` features. A
    recurrent net's body has only the layers before its cell. Raises LabError for one
    that is not a stack of layers."""
    if isinstance(spec, RecurrentNetSpec):
        hidden = spec.fc_hid_layers
        return HiddenLayers(_mlp(spec, obs_shape, hidden, (), generator=generator))
    net = build_net(spec, obs_shape, (), generator)
    if not isinstance(net, MLPNet | BodyNet):
        raise LabError(f"{spec.path_of('type')} = {spec.type}: has no body of its own")
    return HiddenLayers(net)


def _encoding_body(
    spec: NetSpec,
    layout: ObservationLayout,
    generator: torch.Generator,
) -> Body | None:
    """The body that encodes observations of this layout for the net of `spec`. None if
    the net sees observations as they are. Raises LabError for parts that do not exist,
    or do not fit their encoder. A part whose encoder has a state comes last."""
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
        )
        for name, block in encoders_of(spec, layout).items()
    }
    if layout.parts:
        recurrent = _recurrent_part(spec)
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


def _recurrent_part(spec: NetSpec) -> tuple[str, NetSpec] | None:
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


def _reader_of(spec: NetSpec, kind: Any) -> Reader:
    """What makes a net of the class `kind`: the function for the spec's keys, or the
    class itself. It is the function if the class has, or inherits, the constructor of a
    net of the lab."""
    is_of_the_lab = inspect.isclass(kind) and any(
        kind.__init__ is cls.__init__ for cls in CLASSES
    )
    for model in type(spec).__mro__:
        if is_of_the_lab and model in READERS:
            return partial(READERS[model], kind=kind)
    reader: Reader = kind
    return reader


def _check_outputs(net: nn.Module, spec: NetSpec, obs: Array, heads: Heads) -> None:
    """Raises LabError unless the net has an output of its width for each head. An
    output that is too narrow would train without an error."""
    is_training = net.training
    net.eval()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        outputs = net(torch.from_numpy(obs))
    net.train(is_training)
    actual: Any = type(outputs).__name__
    if isinstance(outputs, tuple | list):
        actual = [tuple(output.shape) for output in outputs]
    expected = [(len(obs), head.dim) for head in heads]
    if actual != expected:
        raise LabError(
            f"agent.net.type = {spec.type}: its forward must return a tuple with one "
            f"output per head, here of the shapes {expected}, and returned {actual}"
        )


def with_precision(spec: NetSpec) -> NetSpec:
    """The spec with "auto" replaced by the precision that suits its device."""
    if spec.precision != "auto":
        return spec
    fast = precision.has_bf16(resolve_device(spec.gpu))
    return spec.model_copy(update={"precision": "bf16" if fast else "float32"})


def _mlp_net(
    spec: MLPNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    kind: type[MLPNet] = MLPNet,
) -> MLPNet:
    _check_vector(spec, obs_shape)
    return _mlp(
        spec,
        obs_shape,
        spec.hid_layers,
        heads,
        generator=generator,
        dropout=spec.dropout,
        kind=kind,
    )


def _hydra_net(
    spec: HydraMLPNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    kind: type[HydraMLPNet],
) -> HydraMLPNet:
    _reject(f"{spec.path_of('hid_layers')}.2", spec.wrong_tails(len(heads)))
    _check_vector(spec, obs_shape)
    shared = spec.trunk()
    stacks = spec.tails()
    if len(stacks) == 1:
        stacks = stacks * len(heads)
    trunk = _mlp(
        spec, obs_shape, shared, (), generator=generator, sees_obs=bool(shared)
    )
    out_activations = _per_head(spec, len(heads))
    tails = [
        _mlp(
            spec,
            (trunk.width,),
            stack,
            [head],
            generator=generator,
            out_activations=[out_activation],
            sees_obs=not shared,
        )
        for stack, out_activation, head in zip(
            stacks, out_activations, heads, strict=True
        )
    ]
    return kind(trunk, tails)


def _image_net(
    spec: ConvNetSpec | ResNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    make_body: ImageBody,
    kind: type[BodyNet] = BodyNet,
    body: Body | None = None,
    num_actions: int = 0,
) -> BodyNet:
    if body is None:
        _check_image(spec, obs_shape)
        body = make_body(spec, obs_shape, generator, **_image_keys(spec))
    tail = _mlp(
        spec,
        (body.width + num_actions,),
        spec.fc_hid_layers,
        heads,
        generator=generator,
        sees_obs=num_actions > 0,  # an action is as exact as an observation
        dropout=spec.dropout,
    )
    return kind(body, tail)


def _conv_body(
    spec: ConvNetSpec, obs_shape: Shape, generator: torch.Generator, **keys: Any
) -> ConvBody:
    return ConvBody(obs_shape, spec.conv_layers(), generator, **keys)


def _resnet_body(
    spec: ResNetSpec, obs_shape: Shape, generator: torch.Generator, **keys: Any
) -> ResNetBody:
    return ResNetBody(obs_shape, spec.channels, spec.num_blocks, generator, **keys)


def _image_keys(spec: ConvNetSpec | ResNetSpec) -> dict[str, Any]:
    group_norm = partial(nn.GroupNorm, 1)  # one group: all numbers of an image together
    return {
        "activation": spec.hid_layers_activation,
        "init_fn": spec.init_fn,
        "norms": _norms(spec, nn.BatchNorm2d, group_norm),
        "norm_after": spec.norm_place == "after",
        "normalize": spec.normalize,
        "half": spec.precision == "bf16",
    }


def _dueling_net(
    spec: DuelingMLPNetSpec | DuelingConvNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    read: Callable[..., MLPNet | BodyNet],
    kind: type[DuelingNet],
    **keys: Any,
) -> DuelingNet:
    """`read` makes the net with the two outputs of a dueling net."""
    if len(heads) != 1:
        place = f"{spec.path_of('type')} = {spec.type}"
        raise LabError(f"{place}: has one output, the Q of each action")
    value = Head(heads[0].per_action, heads[0].gain)
    return kind(read(spec, obs_shape, [value, *heads], generator, **keys))


def _recurrent_net(
    spec: RecurrentNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    kind: type[RecurrentNet],
    body: Body | None = None,
    obs_dtype: np.dtype[np.generic] = FLOAT32,
) -> RecurrentNet:
    hidden: MLPNet | BodyNet
    if body is None:
        _check_vector(spec, obs_shape)
        hidden = _mlp(spec, obs_shape, spec.fc_hid_layers, (), generator=generator)
    else:
        after = _mlp(
            spec,
            (body.width,),
            spec.fc_hid_layers,
            (),
            generator=generator,
            sees_obs=False,
        )
        hidden = BodyNet(body, after)
    cell = _cell(spec, hidden.width, generator)
    tail = _mlp(
        spec,
        (spec.rnn_hidden_size,),
        (),
        heads,
        generator=generator,
        sees_obs=False,
    )
    return kind(
        hidden,
        cell,
        tail,
        obs_shape=obs_shape,
        obs_dtype=obs_dtype,
        seq_len=spec.seq_len,
        burn_in=spec.burn_in,
    )


def _cell(
    spec: RecurrentNetSpec, in_size: int, generator: torch.Generator
) -> nn.RNNBase:
    """Recurrent layers, initialised from `generator`."""
    cell = CELLS[spec.cell_type](
        in_size, spec.rnn_hidden_size, spec.rnn_num_layers, batch_first=True
    )
    init_recurrent(cell, spec.init_fn, generator)
    return cell


def _net_around_cell(
    spec: NetSpec,
    encoder: NetSpec,
    layout: ObservationLayout,
    body: Body,
    read: Reader,
    heads: Heads,
    generator: torch.Generator,
) -> RecurrentNet:
    """The cell of `encoder` for the last part in `body`, and behind it the layers that
    `read` makes of `spec`."""
    assert isinstance(encoder, RecurrentNetSpec)
    in_size = body.width
    if isinstance(body, PartsBody):
        in_size = body.widths[-1]
    cell = _cell(encoder, in_size, generator)
    width = body.width - in_size + encoder.rnn_hidden_size
    if spec.NEEDS_IMAGES:
        read = partial(read, body=PassedFeatures(width))
    tail = read(spec, (width,), heads, generator)
    kind: type[RecurrentNet] = NETS.load(encoder.type)
    return kind(
        BodyNet(body, _mlp(encoder, (body.width,), (), (), generator=generator)),
        cell,
        tail,
        obs_shape=layout.shape,
        obs_dtype=layout.dtype,
        seq_len=encoder.seq_len,
        burn_in=encoder.burn_in,
    )


def _simba_net(
    spec: SimBaNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    kind: type[BodyNet],
) -> BodyNet:
    _check_vector(spec, obs_shape)
    body = SimBaBody(
        obs_shape,
        spec.width,
        spec.num_blocks,
        generator,
        expansion=spec.expansion,
        activation=spec.hid_layers_activation,
        half=spec.precision == "bf16",
        matmul=spec.matmul,
    )
    tail = MLPNet(
        (body.width,),
        (),
        heads,
        generator,
        out_activations=_per_head(spec, len(heads)),
        init_fn="orthogonal_",
        sees_obs=False,
    )
    return kind(body, tail)


def _arc_net(
    spec: TorchArcNetSpec,
    obs_shape: Shape,
    heads: Heads,
    generator: torch.Generator,
    kind: type[BodyNet],
    num_actions: int = 0,
) -> BodyNet:
    path = spec.path_of("arc")
    if spec.arc is None:
        raise LabError(f"{path}: is missing: the body of a TorchArcNet")
    try:
        arc = build_arc(spec.arc.layers(), obs_shape)
    except ArcError as error:
        raise LabError(f"{path}.{BODY}.{error}") from error
    init_arc(arc.modules, arc.layers, spec.init_fn, generator)
    body = ArcBody(
        obs_shape, arc, normalize=spec.normalize, half=spec.precision == "bf16"
    )
    tail = _mlp(
        spec,
        (body.width + num_actions,),
        arc.hidden,
        heads,
        generator=generator,
        activation=arc.activation,
        sees_obs=body.is_empty or num_actions > 0,
    )
    return kind(body, tail)


_conv_net = partial(_image_net, make_body=_conv_body)

READERS: Mapping[type[NetSpec], Reader] = {
    MLPNetSpec: _mlp_net,
    DuelingMLPNetSpec: partial(_dueling_net, read=_mlp_net),
    HydraMLPNetSpec: _hydra_net,
    ConvNetSpec: _conv_net,
    DuelingConvNetSpec: partial(_dueling_net, read=_conv_net),
    ResNetSpec: partial(_image_net, make_body=_resnet_body),
    RecurrentNetSpec: _recurrent_net,
    SimBaNetSpec: _simba_net,
    TorchArcNetSpec: _arc_net,
}
"""The functions that read the keys of the lab's nets."""

CLASSES: Sequence[type[nn.Module]] = (
    MLPNet,
    HydraMLPNet,
    DuelingNet,
    BodyNet,
    RecurrentNet,
)
"""The nets that these functions make."""


def _mlp(
    spec: NetSpec,
    in_shape: Shape,
    hidden: Sequence[int],
    heads: Heads,
    *,
    generator: torch.Generator,
    activation: ActivationClass | None = None,
    out_activations: Sequence[str | None] | None = None,
    sees_obs: bool = True,
    dropout: float = 0.0,
    kind: type[MLPNet] = MLPNet,
) -> MLPNet:
    """A multilayer perceptron with the keys of every net. `dropout` is the probability
    of it in each hidden layer, before other norms."""
    if out_activations is None and heads:
        out_activations = _per_head(spec, len(heads))
    norm_after = spec.norm_place == "after"
    input_norms: Sequence[Norm] = ()
    if norm_after and sees_obs:
        input_norms = _batch_norms(spec, nn.BatchNorm1d)
    norms = _norms(spec, nn.BatchNorm1d, nn.LayerNorm)
    if dropout > 0:
        norms = [partial(Dropout, probability=dropout), *norms]
    return kind(
        in_shape,
        hidden,
        heads,
        generator,
        activation=activation or spec.hid_layers_activation,
        out_activations=out_activations or (),
        init_fn=spec.init_fn,
        norms=norms,
        input_norms=input_norms,
        norm_after=norm_after,
        sees_obs=sees_obs,
        half=spec.precision == "bf16",
        matmul=spec.matmul,
        sigma=spec.noisy_sigma if spec.noisy else None,
    )


def _norms(spec: NetSpec, batch_norm: Norm, layer_norm: Norm) -> Sequence[Norm]:
    """The normalisations of each hidden layer."""
    norms = _batch_norms(spec, batch_norm)
    if spec.layer_norm:
        return [*norms, layer_norm]
    return norms


def _batch_norms(spec: NetSpec, batch_norm: Norm) -> Sequence[Norm]:
    if spec.batch_norm == "renorm":
        return [BatchRenorm]
    if spec.batch_norm:
        return [batch_norm]
    return []


def _per_head(spec: NetSpec, num_heads: int) -> Sequence[str | None]:
    """The output activation of each head. Raises LabError if there are more or
    fewer."""
    names: str | Sequence[str | None] | None = spec.out_layer_activation
    if names is None or isinstance(names, str):
        return [names] * num_heads
    if len(names) != num_heads:
        raise LabError(
            f"{spec.path_of('out_layer_activation')}: names {len(names)} activations, "
            f"the network has {num_heads} heads"
        )
    return names


def _check_vector(spec: NetSpec, obs_shape: Shape) -> None:
    place = f"{spec.path_of('type')} = {spec.type}"
    _reject(place, vector_fault(spec.type, obs_shape))


def _check_image(spec: NetSpec, obs_shape: Shape) -> None:
    """Raises LabError if the observation is no image, or too small for the
    convolutions."""
    _reject(f"{spec.path_of('type')} = {spec.type}", image_fault(obs_shape))
    fault = convolution_fault(spec.conv_layers(), obs_shape)
    if fault is not None:
        place = f"{spec.path_of('conv_hid_layers')}.{fault.number}"
        _reject(place, fault.message)


def _check_action(spec: NetSpec, layout: ObservationLayout) -> None:
    """Raises LabError if a critic's action has no place in the net."""
    fault = action_fault(spec, layout)
    if fault is not None:
        key, message = fault
        _reject(spec.path_of(key), message)


def _reject(place: str, message: str | None) -> None:
    """Raises LabError if there is a message."""
    if message is not None:
        raise LabError(f"{place}: {message}")


def problems_here(agent: AgentSpec) -> Iterator[Problem]:
    """What the nets of an agent need and this machine does not have."""
    for key, net in agent.nets.items():
        if net.gpu is True and not has_gpu():
            yield Problem(f"agent.{key}.gpu", NO_GPU, True)
        elif net.precision != "bf16":
            continue
        elif not precision.has_bf16(resolve_device(net.gpu)):
            yield Problem(f"agent.{key}.precision", NO_BF16, "bf16")


def arc_problems(
    agent: AgentSpec, layout: ObservationLayout, discrete: bool
) -> list[Problem]:
    """torch's objections to the arcs of `agent`, for observations as the agent sees
    them. `discrete` means that an action is a choice. Some arcs are not tried here,
    only when they are built. These are arcs behind encoders of parts, and arcs of
    separate critics that see an action beside the observation."""
    problems = {}
    for block, net, role in built_nets(agent):
        spec = net.for_role(role)
        takes_actions = (
            role == "critic" and agent.algorithm.CRITIC == "apart" and not discrete
        )
        sees_more = takes_actions and not joins_features(spec, layout)
        if not isinstance(spec, TorchArcNetSpec):
            continue
        if spec.arc is None or sees_more or sees_parts(spec, layout):
            continue
        key = net.file_key(role, "arc")
        try:
            build_arc(spec.arc.layers(), layout.shape)
        except ArcError as error:
            path = f"{block}.{key}.{BODY}.{error.place}"
            problems[path] = Problem(path, error.reason)
    return list(problems.values())
