"""TorchArcNet, and its `arc`: the body, a list of torch.nn layers with their
arguments."""

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import InitErrorDetails
from typing_extensions import override

from slm_lab.spec.schema.block import Block, error_line, key_error, raise_errors
from slm_lab.spec.schema.bounds import SIZES, WIDTH
from slm_lab.spec.schema.fields import must_be_false
from slm_lab.spec.schema.layers import FEW_LAYERS
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.net import NetSpec
from slm_lab.spec.schema.torch_layers import layers
from slm_lab.spec.schema.torch_table import argument_problems, with_whole_numbers

ONE_BODY = "only one body is supported: {input: x, modules: {body: [x]}, output: body}"

ALL_LAYERS = "the modules of torch.nn, and LazyBatchRenorm1d"

AXES = ("dim", "start_dim")
"""Arguments that name an axis."""

MIXES = (
    "must not be 0: this is the batch axis, and observations would be mixed; use 1 or "
    "-1"
)


class Layer(NamedTuple):
    """One layer: the name of a torch.nn class (or LazyBatchRenorm1d), and its
    arguments."""

    name: str
    args: dict[str, Any]


def _layer_problems(index: int, row: Any) -> list[InitErrorDetails]:
    if not isinstance(row, Mapping) or len(row) != 1:
        return [
            error_line(
                (index,), "must be one layer, as {LazyLinear: {out_features: 64}}", row
            )
        ]
    name, args = next(iter(row.items()))
    known = layers()
    if name not in known:
        message = unknown_name("layer", str(name), list(known), ALL_LAYERS)
        return [error_line((index, str(name)), message, args)]
    reason = known[name].refused
    if reason:
        return [error_line((index, name), f"cannot be a layer here: it {reason}", args)]
    if args is not None and not isinstance(args, Mapping):
        return [
            error_line((index, name), "must be a block {…} of arguments, or null", args)
        ]
    args = args or {}
    wrong = [
        error_line((index, name, key), message, args.get(key, ...))
        for key, message in argument_problems(known[name], args)
    ]
    for key, value in args.items():
        if key in AXES and value == 0:
            wrong.append(error_line((index, name, key), MIXES, value))
        elif key in SIZES and (too_large := WIDTH.refusal(value)):
            wrong.append(error_line((index, name, key), too_large, value))
    return wrong


def _area(kernel: Any) -> int:
    """The area of a square kernel, or of [height, width]."""
    sizes = kernel
    if not isinstance(kernel, list | tuple):
        sizes = [kernel, kernel]
    return prod(size if isinstance(size, int) else 1 for size in sizes)


def _checked_layers(rows: list[Any]) -> list[Any]:
    raise_errors(
        line for index, row in enumerate(rows) for line in _layer_problems(index, row)
    )
    return rows


Layers: TypeAlias = Annotated[list[Any], AfterValidator(_checked_layers), FEW_LAYERS]


class Sequential(Block):
    """Layers one after another."""

    Sequential: Layers = Field(min_length=1, description="the layers, in order")


class ArcModules(Block):
    """The modules: one body."""

    body: Sequential = Field(description="the body of the net")


class ArcGraph(Block):
    """How the modules are joined: the input x goes to the body, whose output is the
    net's."""

    input: str = Field(description="name of the input")
    modules: dict[str, Any] = Field(description="{body: [x]}")
    output: str = Field(description="body")

    @model_validator(mode="after")
    def _is_one_body(self) -> Self:
        if self.modules not in ({"body": [self.input]}, {"body": self.input}):
            raise key_error("modules", ONE_BODY, self.modules)
        if self.output != "body":
            raise key_error("output", ONE_BODY, self.output)
        return self


class ArcSpec(Block):
    """A body of layers: `{modules: {body: {Sequential: […]}}, graph: {…}}`. The graph
    is `{input: x, modules: {body: [x]}, output: body}`. The action space determines the
    head."""

    modules: ArcModules = Field(description="modules by name")
    graph: ArcGraph = Field(
        ArcGraph(input="x", modules={"body": ["x"]}, output="body"),
        description="how they are joined",
    )

    def layers(self) -> list[Layer]:
        """The layers of the body in order."""
        rows = [next(iter(row.items())) for row in self.modules.body.Sequential]
        return [Layer(name, with_whole_numbers(args or {})) for name, args in rows]

    def hidden_weights(self) -> int:
        """The number of weights between its layers."""
        total = 0
        before = 0
        for layer in self.layers():
            width = layer.args.get("out_features", layer.args.get("out_channels"))
            if isinstance(width, int):
                total += before * width * _area(layer.args.get("kernel_size", 1))
                before = width
        return total

    @property
    def batch_normalised(self) -> bool:
        """Whether it has batch normalisation."""
        names = {layer.name.removeprefix("Lazy") for layer in self.layers()}
        return not names.isdisjoint({"BatchNorm1d", "BatchRenorm1d"})


NotBesideArc: TypeAlias = Annotated[
    bool, must_be_false("add the layer to the arc instead")
]
"""A layer that an arc must contain instead."""


class TorchArcNetSpec(NetSpec):
    """A body written as a list of torch.nn layers; linear output layers follow it.
    `init_fn` fills linear layers and convolutions, with the gain of the activation that
    follows."""

    LEGACY: ClassVar[Mapping[str, str]] = {
        "hid_layers_activation": "the arc contains its activations"
    }

    layer_norm: NotBesideArc = Field(
        False, description="must be false: add LayerNorm to the arc"
    )
    batch_norm: NotBesideArc = Field(
        False, description="must be false: add LazyBatchNorm1d to the arc"
    )
    norm_place: None = Field(
        None, description="must be null: the arc contains its normalisation"
    )
    normalize: bool = Field(
        False, description="divide images by 255; does not change other observations"
    )
    arc: ArcSpec | None = Field(
        None, description="the body; required, as arc, or as actor_arc and critic_arc"
    )

    ENCODES = True
    SEES_IMAGES = True
    HAS_ARC = True

    @property
    @override
    def lacks_arc(self) -> bool:
        return self.arc is None

    @property
    @override
    def batch_normalised(self) -> bool:
        arcs = [net.arc for net in self.for_roles]
        return any(arc is not None and arc.batch_normalised for arc in arcs)

    @property
    @override
    def multiplies_in_half(self) -> bool:
        return True

    @override
    def hidden_weights(self) -> int:
        if self.arc is None:
            return 0
        return self.arc.hidden_weights()
