"""`agent.net`: the networks, their optimizers and target networks."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails
from typing_extensions import override

from slm_lab.spec.schema import bounds, layers
from slm_lab.spec.schema.arc import ArcSpec
from slm_lab.spec.schema.block import (
    Block,
    error_line,
    key_error,
    lines_of,
    spec_error,
    with_further_errors,
)
from slm_lab.spec.schema.fields import Count, Int, IntList, numbers_up_to
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.optim import LossSpec, LRSchedulerSpec, OptimSpec
from slm_lab.spec.schema.torch_table import activation_class, refusals

Role: TypeAlias = Literal["actor", "critic"]

ROLES: tuple[Role, ...] = ("actor", "critic")
PREFIXES = ("actor_", "critic_")
"""Keys of a net without `actor_*` and `critic_*` variants."""

TARGET_KEYS = ("update_type", "update_frequency", "polyak_coef")
"""Keys of a net for the updates of its target network."""


def _known_activation(name: str) -> str:
    return _usable("activation", name, activation_class(name), refusals("activations"))


def _known_initialiser(name: str) -> str:
    return _usable("function of torch.nn.init", name, name, refusals("initialisers"))


def _usable(
    kind: str, given: str, name: str | None, known: Mapping[str, str | None]
) -> str:
    if name is None or name not in known:
        raise spec_error(unknown_name(kind, given, list(known)))
    if reason := known[name]:
        raise spec_error(reason)
    return given


Activation: TypeAlias = Annotated[str, AfterValidator(_known_activation)]
"""An activation of torch.nn, as "relu", "leaky_relu" or "LeakyReLU"."""

Initialiser: TypeAlias = Annotated[str, AfterValidator(_known_initialiser)]
"""A function of torch.nn.init."""


def _activation_or_list(value: Any) -> Any:
    names = value if isinstance(value, list | tuple) else [value]
    for name in names:
        if name is not None and not isinstance(name, str):
            raise spec_error(
                "must be the name of an activation, a list of them, or null"
            )
        if name is not None:
            _known_activation(name)
    return tuple(value) if isinstance(value, list) else value


OutActivation: TypeAlias = Annotated[Any, AfterValidator(_activation_or_list)]
"""null, an activation, or one (or null) per head."""


def _widths(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if min(sizes, default=1) < 1:
        raise spec_error("every layer must have at least 1 unit")
    if message := bounds.WIDTH.refusal(sizes):
        raise spec_error(message)
    return sizes


Widths: TypeAlias = Annotated[
    IntList, AfterValidator(_widths), layers.FEW_LAYERS, numbers_up_to(bounds.WIDTH)
]
"""Units per hidden layer."""


class NetSpec(Block):
    """The keys of every net. `actor_KEY` and `critic_KEY` set a key for one role only,
    but those of SAME_FOR_BOTH; `net_for_role` applies them."""

    SAME_FOR_BOTH: ClassVar[tuple[str, ...]] = (
        *(
            "type",
            "shared",
            "use_same_optim",
            "gpu",
            "cuda_graph",
            "precision",
            "matmul",
        ),
    )

    type: str = Field(description="kind of net")
    shared: bool = Field(
        False, description="whether actor and critic share body and optimizer"
    )
    hid_layers_activation: Activation = Field(
        "relu", description="activation after each hidden layer"
    )
    out_layer_activation: OutActivation = Field(
        None,
        description="activation after the output layer: null, a name, or one per head",
    )
    init_fn: Initialiser | None = Field(
        None,
        description="function of torch.nn.init for the weights; null: torch's default",
    )
    init_std: float | None = Field(
        None,
        ge=0,
        description="gain of an orthogonal initialisation of the output layer, mostly "
        "as actor_init_std, critic_init_std",
    )
    layer_norm: bool = Field(False, description="LayerNorm in each hidden layer")
    batch_norm: Literal[False, True, "renorm"] = Field(
        False,
        description='batch normalisation in each hidden layer; "renorm": batch '
        "renormalisation (arXiv:1702.03275)",
    )
    norm_place: Literal["before", "after"] | None = Field(
        None,
        description="normalisation before or after each activation; with after, batch "
        'normalisation of the input too; null: "after" in CrossQ, else "before"',
    )
    clip_grad_val: float | None = Field(
        None, gt=0, description="maximum global norm of the gradient; null: no clipping"
    )
    loss_spec: LossSpec = Field(
        LossSpec(name="MSELoss"),
        description="loss of the value function, a class of torch.nn",
    )
    optim_spec: OptimSpec = Field(
        OptimSpec(name="GlobalAdam"), description="optimizer, a class of torch.optim"
    )
    lr_scheduler_spec: LRSchedulerSpec | None = Field(
        None, description="learning-rate schedule, a class of torch.optim.lr_scheduler"
    )
    use_same_optim: bool = Field(
        False, description="the critic uses the actor's optimizer and scheduler"
    )
    update_type: Literal["replace", "polyak"] = Field(
        "replace",
        description="update of target networks: copy, or average with polyak_coef",
    )
    update_frequency: Annotated[Count, bounds.FRAMES] = Field(
        1, description="frames between updates of target networks"
    )
    polyak_coef: float = Field(
        0.0, ge=0, le=1, description="τ: target ← τ net + (1 − τ) target"
    )
    log_std_init: float | None = Field(
        None,
        description="initial ln σ, independent of observations; null: ln σ is an "
        "output of the net",
    )
    gpu: Literal[False, True, "auto"] = Field(
        False,
        description="whether to train on a GPU; with several GPUs, Sessions take "
        "turns; "
        '"auto": if there is one',
    )
    cuda_graph: bool = Field(
        False,
        description="whether a GPU replays gradient steps as CUDA graphs: PPO, DQN, "
        "SAC and their relatives with Adam, in one process",
    )
    precision: Literal["float32", "bf16", "auto"] = Field(
        "float32",
        description="of products in training, first layer of vectors and outputs "
        "apart; "
        '"bf16": faster from about 128 units on; "auto": bf16 where the device '
        "has it",
    )
    matmul: Literal["torch", "numpy"] = Field(
        "torch",
        description="library that multiplies float32 in wide linear layers on a CPU; "
        '"numpy" '
        "uses one thread; `slm-lab probe` measures both",
    )

    _variants: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def variants(self) -> Mapping[str, Any]:
        """The `actor_*` and `critic_*` keys of the file."""
        return self._variants

    def role_keys(self, role: Role) -> dict[str, Any]:
        """The file's keys for `role`, without the prefix."""
        return _keys_of(role, self._variants)

    def file_key(self, role: Role, key: str) -> str:
        """The key of the file that sets `key` for `role`."""
        return f"{role}_{key}" if f"{role}_{key}" in self._variants else key

    def own_keys(self) -> dict[str, Any]:
        """The keys of both roles, as JSON data."""
        whole = self.model_dump(mode="json")
        return {key: value for key, value in whole.items() if key not in self._variants}

    @model_validator(mode="wrap")
    @classmethod
    def _gather_variants(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        variants = {
            key: value
            for key, value in data.items()
            if isinstance(key, str) and key.startswith(PREFIXES)
        }
        own = {key: value for key, value in data.items() if key not in variants}
        wrong = [
            line for role in ROLES for line in _role_problems(cls, own, role, variants)
        ]
        net = with_further_errors(handler, own, wrong)
        net._variants = variants
        return net

    @classmethod
    @override
    def extend_schema(
        cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler
    ) -> None:
        for key in [key for key in cls.model_fields if key not in cls.SAME_FOR_BOTH]:
            for role in ROLES:
                schema["properties"][f"{role}_{key}"] = schema["properties"][key]

    @model_serializer(mode="wrap")
    def _with_variants(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**handler(self), **self._variants}


def _keys_of(role: Role, variants: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{role}_"
    return {
        k.removeprefix(prefix): v for k, v in variants.items() if k.startswith(prefix)
    }


def _role_problems(
    cls: type[NetSpec], own: Mapping[str, Any], role: Role, variants: Mapping[str, Any]
) -> list[InitErrorDetails]:
    """The problems of the keys of `role`. Checks the net with these keys applied."""
    prefix, changes = f"{role}_", _keys_of(role, variants)
    wrong = [
        error_line(
            (prefix + key,),
            f"it is the same for both roles; set {key} instead",
            changes.pop(key),
        )
        for key in cls.SAME_FOR_BOTH
        if key in changes
    ]
    known = [key for key in cls.file_keys() if key not in cls.SAME_FOR_BOTH]
    for key in [key for key in changes if key not in known]:
        message = unknown_name("key", prefix + key, [prefix + k for k in known])
        wrong.append(error_line((prefix + key,), message, changes.pop(key)))
    if changes:
        try:
            cls.model_validate({**own, **changes})
        except ValidationError as error:
            wrong.extend(
                {**line, "loc": (prefix + str(line["loc"][0]), *line["loc"][1:])}
                for line in lines_of(error)
                if line.get("loc") and line["loc"][0] in changes
            )
    return wrong


class MLPNetSpec(NetSpec):
    """Fully connected layers."""

    LEGACY: ClassVar[Mapping[str, str]] = {
        "normalize": "it divides images by 255; env.normalize_obs normalises other "
        "observations"
    }

    hid_layers: Widths = Field((64, 64), description="units per hidden layer")


class DuelingMLPNetSpec(MLPNetSpec):
    """Fully connected layers, then a value and an advantage stream
    (arXiv:1511.06581)."""


class HydraMLPNetSpec(NetSpec):
    """Layers that all outputs share, then separate hidden layers for each output. With
    `shared` the outputs are the policy and the value, in this order, otherwise one per
    net. There is one observation, so there is one head; the body follows it."""

    LEGACY = MLPNetSpec.LEGACY

    hid_layers: layers.HydraLayers = Field(
        description="units per layer of [heads, body, tails]; tails: one list for all "
        "outputs, or one list per output, as [[64], [64], [[32], [16, 16]]]"
    )

    def trunk(self) -> layers.Stack:
        """Units of the layers that all outputs share."""
        heads, body = (layers.stacks_of(part) for part in self.hid_layers[:2])
        return (*heads[0], *body[0])

    def tails(self) -> tuple[layers.Stack, ...]:
        """Units of the layers of each output; a single stack is for all."""
        return layers.stacks_of(self.hid_layers[2])


class ConvNetSpec(NetSpec):
    """Convolutions over images (C, H, W), then fully connected layers. `layer_norm`
    normalises an image over all its numbers and scales it by channel."""

    conv_hid_layers: layers.ConvLayers = Field(
        description="one [out channels, kernel, stride, padding, dilation] per layer; "
        "the last three default to 1, 0, 1; sizes are numbers or [height, width]"
    )
    fc_hid_layers: Widths = Field(
        (), description="units per fully connected layer after the convolutions"
    )
    normalize: bool = Field(False, description="divide the image by 255")

    def conv_layers(self) -> list[layers.ConvLayer]:
        """The convolutions in order."""
        return [layers.ConvLayer.of(row) for row in self.conv_hid_layers]


class DuelingConvNetSpec(ConvNetSpec):
    """Convolutions, then a value and an advantage stream (arXiv:1511.06581)."""


def _false(why: str) -> AfterValidator:
    def check(value: bool) -> bool:
        if value:
            raise spec_error(f"must be false: {why}")
        return value

    return AfterValidator(check)


OneDirection: TypeAlias = Annotated[
    bool, _false("an agent acts before it has seen later observations")
]
NotBesideArc: TypeAlias = Annotated[bool, _false("add the layer to the arc instead")]
"""A layer that an arc must contain instead."""


class RecurrentNetSpec(NetSpec):
    """Fully connected layers, then recurrent ones."""

    SAME_FOR_BOTH = (*NetSpec.SAME_FOR_BOTH, "seq_len", "burn_in")
    LEGACY = MLPNetSpec.LEGACY

    cell_type: Literal["GRU", "LSTM", "RNN"] = Field(
        "GRU", description="recurrent cell"
    )
    fc_hid_layers: Widths = Field(
        (), description="units per fully connected layer before the cell"
    )
    rnn_hidden_size: Annotated[Count, bounds.WIDTH] = Field(
        64, description="units of the recurrent state"
    )
    rnn_num_layers: Annotated[Count, bounds.STACKED] = Field(
        1, description="recurrent layers"
    )
    bidirectional: OneDirection = Field(
        False, description="must be false: an agent has not seen later observations"
    )
    seq_len: Annotated[Count, bounds.SEQUENCE] = Field(
        4, description="length of a sequence: the steps of backpropagation through time"
    )
    burn_in: Int = Field(
        0,
        ge=0,
        description="replay memories: first steps of a sequence, which only update "
        "the stored state",
    )

    @property
    def state_size(self) -> int:
        """Size of the recurrent state; an LSTM has two vectors."""
        return (
            self.rnn_num_layers
            * self.rnn_hidden_size
            * (2 if self.cell_type == "LSTM" else 1)
        )

    @model_validator(mode="after")
    def _learns_from_something(self) -> Self:
        if self.burn_in >= self.seq_len:
            message = (
                f"must be below seq_len ({self.seq_len}): only the remaining steps "
                "are learned from"
            )
            raise key_error("burn_in", message, self.burn_in)
        return self


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


def given_keys(net: NetSpec) -> set[str]:
    """The keys of the file, variants included; others have their defaults."""
    return set(net.model_fields_set) | set(net.variants)
