"""`agent.net`: the keys that every net has, its optimizer and target network among
them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails
from typing_extensions import override

from slm_lab.spec.schema import bounds, layers
from slm_lab.spec.schema.block import (
    error_line,
    lines_of,
    spec_error,
    with_further_errors,
)
from slm_lab.spec.schema.fields import Count, StrList
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.optim import LossSpec, LRSchedulerSpec, OptimSpec
from slm_lab.spec.schema.parts import EncoderBlock, Encoders
from slm_lab.spec.schema.rules import ANY, NoEffect, Refused
from slm_lab.spec.schema.schedule import MAY_CHANGE
from slm_lab.spec.schema.torch_table import activation_class, refusals

Role: TypeAlias = Literal["actor", "critic"]

ROLES: tuple[Role, ...] = ("actor", "critic")
PREFIXES = ("actor_", "critic_")
"""Keys of a net without `actor_*` and `critic_*` variants."""

LAYER_KEYS = ("type", "hid_layers_activation", "init_fn", "layer_norm")
"""Keys of every net that concern the layers of an encoder too."""

TARGET_KEYS = ("update_type", "update_frequency", "polyak_coef")
"""Keys of a net for the updates of its target network."""

FOR_TWO_NETS = NoEffect(
    "{algorithm.name} has one net and no critic", when="algorithm.has_one_net"
)
OF_BOTH_NETS = NoEffect(
    "both nets are on the device of agent.net", at="agent.critic_net"
)


NEEDS_EMBEDDING = Refused(
    "{algorithm.name} multiplies an embedding of the observation; use MLPNet, "
    "DuelingMLPNet, SimBaNet, ConvNet, DuelingConvNet or ResNet",
    when="algorithm.needs_embedding",
    unless="HAS_EMBEDDING",
    value=ANY,
    at="agent.net",
)


def _known_activation(name: str) -> str:
    return _usable("activation", name, activation_class(name), refusals("activations"))


def _known_initialiser(name: str) -> str:
    return _usable("function of torch.nn.init", name, name, refusals("initialisers"))


def _usable(
    kind: str, name_in_file: str, name: str | None, known: Mapping[str, str | None]
) -> str:
    if name is None or name not in known:
        raise spec_error(unknown_name(kind, name_in_file, list(known)))
    reason = known[name]
    if reason:
        raise spec_error(reason)
    return name_in_file


Activation: TypeAlias = Annotated[str, AfterValidator(_known_activation)]
"""An activation of torch.nn, as "relu", "leaky_relu" or "LeakyReLU"."""

Initialiser: TypeAlias = Annotated[str, AfterValidator(_known_initialiser)]
"""A function of torch.nn.init."""


def _activation_or_list(value: Any) -> Any:
    names = value
    if not isinstance(value, list | tuple):
        names = [value]
    for name in names:
        if name is not None and not isinstance(name, str):
            raise spec_error(
                "must be the name of an activation, a list of them, or null"
            )
        if name is not None:
            _known_activation(name)
    if isinstance(value, list):
        return tuple(value)
    return value


OutActivation: TypeAlias = Annotated[Any, AfterValidator(_activation_or_list)]
"""null, an activation, or one (or null) per head."""


class NetSpec(EncoderBlock):
    """The keys of every net. `actor_KEY` and `critic_KEY` set a key for one role only,
    except keys in SAME_FOR_BOTH. `net_for_role` applies them."""

    SAME_FOR_BOTH: ClassVar[tuple[str, ...]] = (
        "type",
        "shared",
        "use_same_optim",
        "gpu",
        "cuda_graph",
        "precision",
        "matmul",
    )

    SEES_IMAGES: ClassVar[bool] = False
    """Whether it can see an image as an array (C, H, W)."""

    NEEDS_IMAGES: ClassVar[bool] = False
    """Whether it sees images alone."""

    HAS_ARC: ClassVar[bool] = False
    """Whether `arc` defines its layers."""

    HAS_EMBEDDING: ClassVar[bool] = False
    """Whether it computes its outputs from an embedding of the observation that other
    numbers can modulate."""

    HAS_DROPOUT: ClassVar[bool] = False
    """Whether its hidden layers can have dropout."""

    SPLITS_Q: ClassVar[bool] = False
    """Whether its outputs are the sum of a value and of advantages."""

    type: Annotated[
        str,
        NEEDS_EMBEDDING,
        Refused(
            "splits Q into value and advantage, and {algorithm.name} has no Q to split",
            when=("SPLITS_Q", "algorithm.MEMORY"),
            unless="algorithm.ACTS_ON_Q",
            value=ANY,
            at="agent.net",
        ),
    ] = Field(description="kind of net")
    obs: StrList | None = Field(
        None,
        description="parts of the observation that it sees, as critic_obs for the "
        "critic alone; null: all",
    )
    parts: Encoders = Field(
        {},
        description="what encodes each part of the observation, by the name of the "
        'part: {"type": …} with the keys of the layers of that net, or '
        '{"type": "Embedding", "dim": 16}; by default images have a ConvNet, and '
        "the other parts join as one vector",
    )
    shared: Annotated[
        bool,
        Refused(
            "{algorithm.name} has critics separate from the actor; set it to false",
            when="algorithm.has_separate_critics",
            at="agent.net",
        ),
        Refused(
            "its critic sees other parts of the observation than the actor; set it to "
            "false",
            when="roles_see_differently",
        ),
        FOR_TWO_NETS,
    ] = Field(False, description="whether actor and critic share body and optimizer")
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
    dropout: Annotated[
        float,
        Refused(
            "is for the fully connected layers of MLPNet, ConvNet and ResNet; remove "
            "it",
            unless="HAS_DROPOUT",
        ),
        Refused(
            "{algorithm.name} draws no masks of dropout; it is for the critics of "
            "SoftActorCritic, REDQ, TQC and TD3; remove it",
            unless="algorithm.DRAWS_MASKS",
        ),
        Refused(
            "the actor of {algorithm.name} has no dropout; set critic_dropout, or "
            "dropout of agent.critic_net",
            when="drops_of_actor",
            at="agent.net",
        ),
    ] = Field(
        0.0,
        ge=0,
        lt=1,
        description="probability that a gradient step sets an output of a critic's "
        "hidden layer to zero (arXiv:2110.02034), mostly as critic_dropout; before "
        "layer_norm",
    )
    batch_norm: Literal[False, True, "renorm"] = Field(
        False,
        description='batch normalisation in each hidden layer; "renorm": batch '
        "renormalisation (arXiv:1702.03275)",
    )
    norm_place: Annotated[
        Literal["before", "after"] | None,
        NoEffect(
            "the net has neither batch_norm nor layer_norm",
            unless=("is_normalised", "blocks.always_normalises"),
        ),
    ] = Field(
        None,
        description="normalisation before or after each activation; with after, batch "
        'normalisation of the input too; null: "after" in CrossQ, else "before"',
    )
    noisy: Annotated[
        bool,
        Refused(
            "is for the fully connected layers of MLPNet, DuelingMLPNet, ConvNet, "
            "DuelingConvNet and ResNet; use one of these, or epsilon_greedy",
            unless="HAS_EMBEDDING",
        ),
        Refused(
            "{algorithm.name} draws no noise of weights; it is for DQN and its "
            "relatives with a replay memory; remove it",
            unless="algorithm.HAS_NOISE",
        ),
    ] = Field(
        False,
        description="noise with a learned σ in the weights of the fully connected "
        "layers, for exploration without ε (arXiv:1706.10295); the layer that sees an "
        "observation vector has none",
    )
    noisy_sigma: Annotated[
        float, NoEffect("the net has no noisy layers", unless="noisy")
    ] = Field(
        0.5,
        gt=0,
        description="σ_0: a weight of a noisy layer with p inputs starts at σ_0 / √p",
    )
    clip_grad_val: float | None = Field(
        None, gt=0, description="maximum global norm of the gradient; null: no clipping"
    )
    loss_spec: Annotated[
        LossSpec,
        NoEffect(
            "{algorithm.name} has a loss of its own", unless="algorithm.HAS_VALUE_LOSS"
        ),
    ] = Field(
        LossSpec(name="MSELoss"),
        description="loss of the value function, a class of torch.nn",
    )
    optim_spec: OptimSpec = Field(
        OptimSpec(name="GlobalAdam"), description="optimizer, a class of torch.optim"
    )
    lr_scheduler_spec: LRSchedulerSpec | None = Field(
        None, description="learning-rate schedule, a class of torch.optim.lr_scheduler"
    )
    use_same_optim: Annotated[
        bool,
        FOR_TWO_NETS,
        NoEffect("agent.critic_net has its own optimizer", when="blocks.critic_net"),
    ] = Field(False, description="the critic uses the actor's optimizer and scheduler")
    update_type: Literal["replace", "polyak"] = Field(
        "replace",
        description="update of target networks: copy, or average with polyak_coef",
    )
    update_frequency: Annotated[Count, bounds.FRAMES] = Field(
        1, description="frames between updates of target networks"
    )
    polyak_coef: Annotated[float, MAY_CHANGE] = Field(
        0.0, ge=0, le=1, description="τ: target ← τ net + (1 − τ) target"
    )
    log_std_init: Annotated[
        float | None,
        NoEffect(
            "{algorithm.name} takes the action of the greatest Q",
            when="algorithm.ACTS_ON_Q",
            at="agent.net",
        ),
        NoEffect(
            "{algorithm.action_pdtype} has no σ",
            unless="algorithm.has_sigma",
            at="agent.net",
        ),
    ] = Field(
        None,
        description="initial ln σ, independent of observations; null: ln σ is an "
        "output of the net",
    )
    gpu: Annotated[Literal[False, True, "auto"], OF_BOTH_NETS] = Field(
        False,
        description="whether to train on a GPU; with several GPUs, Sessions take "
        "turns; "
        '"auto": if there is one',
    )
    cuda_graph: Annotated[
        bool,
        OF_BOTH_NETS,
        NoEffect("a CUDA graph is for a GPU, but gpu is false", unless="gpu"),
        NoEffect(
            "{algorithm.name} does not record its gradient steps",
            unless="algorithm.RECORDS_STEPS",
        ),
        NoEffect(
            "a recurrent net reads the lengths of sequences in every step",
            when="blocks.is_recurrent",
        ),
        NoEffect(
            'the Sessions of "{meta.distributed}" exchange numbers in every step',
            when="meta.mode.exchanges_steps",
        ),
        NoEffect(
            "the step of {blocks.unrecorded_optimizer} cannot be recorded",
            when="blocks.unrecorded_optimizer",
        ),
        NoEffect(
            "a recorded step cannot change {blocks.step_schedules}",
            when="blocks.step_schedules",
        ),
    ] = Field(
        False,
        description="whether a GPU replays gradient steps as CUDA graphs: PPO, DQN, "
        "SAC and their relatives with Adam, in one process",
    )
    precision: Annotated[
        Literal["float32", "bf16", "auto"],
        NoEffect(
            "the first layer and the heads are in float32",
            unless="multiplies_in_half",
            value="bf16",
        ),
    ] = Field(
        "float32",
        description="of products in training, first layer of vectors and outputs "
        "apart; "
        '"bf16": faster from about 128 units on; "auto": bf16 where the device '
        "has it",
    )
    matmul: Annotated[
        Literal["torch", "numpy"],
        NoEffect("torch multiplies in bf16", when="is_in_bf16"),
        NoEffect("torch multiplies on a GPU", when="is_on_gpu"),
    ] = Field(
        "torch",
        description="library that multiplies float32 in wide linear layers on a CPU; "
        '"numpy" '
        "uses one thread; `slm-lab probe` measures both",
    )

    _variants: dict[str, Any] = PrivateAttr(default_factory=dict)
    _block: str = PrivateAttr("agent.net")
    _file_keys: dict[str, str] = PrivateAttr(default_factory=dict)

    @property
    def variants(self) -> Mapping[str, Any]:
        """The `actor_*` and `critic_*` keys of the file."""
        return self._variants

    def role_keys(self, role: Role) -> dict[str, Any]:
        """The file's keys for `role`, without the prefix."""
        return _keys_of(role, self._variants)

    def file_key(self, role: Role, key: str) -> str:
        """The key of the file that sets `key` for `role`."""
        if f"{role}_{key}" in self._variants:
            return f"{role}_{key}"
        return key

    @property
    def block(self) -> str:
        """The block of the spec file that it is from, for messages."""
        return self._block

    def path_of(self, key: str) -> str:
        """The path in the spec file of one of its keys, for messages."""
        return f"{self._block}.{self._file_keys.get(key, key)}"

    @override
    def changed(self, key: str) -> Iterator[str]:
        """Variants for one role count, whatever their value."""
        yield from super().changed(key)
        yield from (f"{role}_{key}" for role in ROLES if key in self.role_keys(role))

    @override
    def value_of(self, file_key: str) -> object:
        if file_key in self._variants:
            value: object = self._variants[file_key]
            return value
        return super().value_of(file_key)

    def for_role(
        self,
        role: Role,
        last: Mapping[str, Any] | None = None,
        block: str = "agent.net",
    ) -> Self:
        """The net with its keys for `role` applied, and finally the keys `last`. It has
        no encoders of parts that the other role alone sees. It knows where its keys are
        in the spec file, whose `block` this net is."""
        keys = {**self.own_keys(), **self.role_keys(role), **(last or {})}
        if "parts" not in self.role_keys(role):
            keys["parts"] = self._encoders_for(role)
        net = type(self).model_validate(keys)
        if self._file_keys:  # resolved before
            net._block = self._block
            net._file_keys = self._file_keys
            return net
        net._block = block
        net._file_keys = {key: self.file_key(role, key) for key in self.own_keys()}
        return net

    def _encoders_for(self, role: Role) -> dict[str, EncoderBlock]:
        """The encoders of both roles, without the encoders of parts that only the other
        role sees."""
        obs_by_role = {
            name: self.role_keys(name).get("obs", self.obs) for name in ROLES
        }
        obs = obs_by_role.pop(role)
        (obs_of_other,) = obs_by_role.values()
        if obs is None:
            return dict(self.parts)
        known_to_other = self.parts if obs_of_other is None else obs_of_other
        hidden = set(known_to_other) - set(obs)
        return {
            name: encoder for name, encoder in self.parts.items() if name not in hidden
        }

    @property
    def for_roles(self) -> list[Self]:
        """The net of each role."""
        return [self.for_role(role) for role in ROLES]

    def as_encoder(self) -> "NetSpec":
        """The layers by which it sees an image, without those behind them."""
        return self

    @property
    def roles_see_differently(self) -> bool:
        """Whether actor and critic have different keys of the parts that they see."""
        return any(
            key in self.role_keys(role) for role in ROLES for key in ("obs", "parts")
        )

    @classmethod
    @override
    def encoder_keys(cls) -> tuple[str, ...]:
        own_keys = [key for key in cls.model_fields if key not in NetSpec.model_fields]
        return (*LAYER_KEYS, *own_keys)

    @property
    def is_normalised(self) -> bool:
        """Whether the file sets a normalisation of its hidden layers."""
        keys = [*self.changed("batch_norm"), *self.changed("layer_norm")]
        return bool(keys)

    @property
    def batch_normalised(self) -> bool:
        """Whether it has batch normalisation, for any role."""
        return any(net.batch_norm for net in self.for_roles)

    @property
    def drops_of_actor(self) -> bool:
        """Whether the keys of the actor have dropout."""
        return self.for_role("actor").dropout > 0

    @property
    def is_on_gpu(self) -> bool:
        """Whether it needs a GPU."""
        return self.gpu is True

    @property
    def is_in_bf16(self) -> bool:
        """Whether its products are in half precision on every device."""
        return self.precision == "bf16"

    @property
    def multiplies_in_half(self) -> bool:
        """Whether `precision` concerns any product: one between hidden layers, or of
        images. First layers of vectors, recurrent cells and heads are in float32."""
        return self.NEEDS_IMAGES or any(net.hidden_weights() for net in self.for_roles)

    def hidden_weights(self) -> int:
        """The number of weights between its hidden layers. Those before the first and
        after the last layer depend on the environment and are not counted."""
        return 0

    def conv_layers(self) -> list[layers.ConvLayer]:
        """The convolutions in order."""
        return []

    @property
    def recurrent_parts(self) -> dict[str, EncoderBlock]:
        """The encoders with a state, of both roles, by the place of their keys in
        it."""
        return {
            f"{self.file_key(role, 'parts')}.{name}": encoder
            for role in ROLES
            for name, encoder in self._parts_of(role).items()
            if encoder.RECURRENT
        }

    def _parts_of(self, role: Role) -> Encoders:
        if "parts" in self.role_keys(role):
            return self.for_role(role).parts
        return self.parts

    @property
    def is_recurrent(self) -> bool:
        """Whether it has a state, by itself or in the encoder of a part."""
        return self.RECURRENT or bool(self.recurrent_parts)

    @property
    def sequence_key(self) -> str:
        """The key that sets `sequence_length`."""
        return next((f"{place}.seq_len" for place in self.recurrent_parts), "seq_len")

    @property
    @override
    def sequence_length(self) -> int:
        """The steps that it learns from together: those of an encoder with a state."""
        lengths = (encoder.sequence_length for encoder in self.recurrent_parts.values())
        return next(lengths, 1)

    @property
    def lacks_arc(self) -> bool:
        """Whether it needs an arc and has none for both roles."""
        return False

    @property
    def lacks_hidden_layers(self) -> bool:
        """Whether its outputs are linear in the features of images."""
        return False

    def wrong_tails(self, outputs: int) -> str | None:
        """Why it cannot have this number of outputs; None if it can."""
        return None

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
        plain = {key: value for key, value in data.items() if key not in variants}
        wrong = [
            line
            for role in ROLES
            for line in _role_problems(cls, plain, role, variants)
        ]
        net = with_further_errors(handler, plain, wrong)
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
        return {**handler(self), **self.schedule_data(), **self._variants}


NetKind = TypeVar("NetKind", bound=NetSpec)


def copied_as(kind: type[NetKind], net: NetSpec, **changes: Any) -> NetKind:
    """A net of the class `kind` with those keys of `net` that such a net has, and
    `changes`. It has the same places in the spec file."""
    keys = {
        key: value for key, value in net.own_keys().items() if key in kind.model_fields
    }
    copied = kind.model_validate({**keys, **changes})
    copied._block = net._block
    copied._file_keys = net._file_keys
    return copied


def _keys_of(role: Role, variants: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{role}_"
    return {
        k.removeprefix(prefix): v for k, v in variants.items() if k.startswith(prefix)
    }


def _role_problems(
    cls: type[NetSpec],
    plain: Mapping[str, Any],
    role: Role,
    variants: Mapping[str, Any],
) -> list[InitErrorDetails]:
    """The problems of the keys of `role`. Checks the net with these keys applied."""
    prefix = f"{role}_"
    changes = _keys_of(role, variants)
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
            cls.model_validate({**plain, **changes})
        except ValidationError as error:
            wrong.extend(
                {**line, "loc": (prefix + str(line["loc"][0]), *line["loc"][1:])}
                for line in lines_of(error)
                if line.get("loc") and line["loc"][0] in changes
            )
    return wrong
