"""`agent`: algorithm, memory and nets, each by its registered name. Also the net of a
role, with `actor_*` and `critic_*` keys, critic_net and use_same_optim applied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from slm_lab.core.errors import LabError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.modes import mode_of, words_of
from slm_lab.spec.schema.algorithm import AlgorithmSpec, PlugInSpec
from slm_lab.spec.schema.block import (
    Block,
    key_error,
    missing_key_error,
    spec_error,
    wrong_default,
)
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.messages import show, unknown_name
from slm_lab.spec.schema.mlp import MLPNetSpec
from slm_lab.spec.schema.net import ROLES, NetSpec, Role
from slm_lab.spec.schema.optim import OptimSpec

ADVICE_BY_NAME = {
    **dict.fromkeys(
        ("HydraDQN", "MultitaskDQN"),
        "is not supported: one agent in one environment; use DQN or DoubleDQN",
    ),
    "Rainbow": "is C51 with double true, num_step_returns 3, PrioritizedReplay and a "
    "net of type DuelingMLPNet or DuelingConvNet with noisy true; see the recipe "
    "rainbow",
    **dict.fromkeys(("TRPO", "ARS"), "is not available; PPO may do"),
    "HER": "is not available: goals are not relabelled; SoftActorCritic learns without "
    "that",
    "MaskablePPO": "is PPO with env.action_mask, which names the mask: "
    '"info.action_mask", or a part of the observation',
}
"""The advice for names of the field that the lab does not have, or has by other
keys."""


class Meaning(NamedTuple):
    """What a name of the field stands for here."""

    name: str
    """The lab's name of the part."""
    keys: Mapping[str, Any] = {}
    """The keys of its block that belong to the name."""
    critic: Mapping[str, Any] = {}
    """The keys of the critics' net that belong to it."""
    elsewhere: str = ""
    """The key outside the block that belongs to it, which only the file can set."""

    @override
    def __str__(self) -> str:
        keys = {**self.keys, **critic_keys(self.critic)}
        conditions = [f"{key} {show(value)}" for key, value in keys.items()]
        if self.elsewhere:
            conditions.append(self.elsewhere)
        if not conditions:
            return self.name
        *first, last = conditions
        listed = last
        if first:
            listed = f"{', '.join(first)} and {last}"
        return f"{self.name}, with {listed}"


def critic_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Keys for the critic's role alone, as the net of both roles has them."""
    return {f"critic_{key}": value for key, value in keys.items()}


DUELING = "the net type DuelingMLPNet or DuelingConvNet"

USUAL_NAMES: Mapping[str, Mapping[str, Meaning]] = {
    "algorithm": {
        "SAC": Meaning("SoftActorCritic"),
        "DiscreteSAC": Meaning("SoftActorCritic"),
        "DDPG": Meaning(
            "TD3", {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0}
        ),
        "DroQ": Meaning(
            "REDQ",
            {"num_critics": 2},
            critic={"dropout": 0.01, "layer_norm": True},
        ),
        "A2C": Meaning("ActorCritic"),
        "AC": Meaning("ActorCritic"),
        "PPO2": Meaning("PPO"),
        "V-MPO": Meaning("VMPO"),
        "DDQN": Meaning("DoubleDQN"),
        "CategoricalDQN": Meaning("C51"),
        "M-DQN": Meaning("MunchausenDQN"),
        "NoisyDQN": Meaning("DQN", elsewhere="a net that has noisy true"),
        "DuelingDQN": Meaning("DQN", elsewhere=DUELING),
        "D3QN": Meaning("DoubleDQN", elsewhere=DUELING),
        "RecurrentPPO": Meaning("PPO", elsewhere="the net type RecurrentNet"),
        "PG": Meaning("Reinforce"),
        "VPG": Meaning("Reinforce"),
    },
    "memory": {
        "PER": Meaning("PrioritizedReplay"),
        "CER": Meaning("Replay", {"use_cer": True}),
        "ReplayBuffer": Meaning("Replay"),
        "PrioritizedReplayBuffer": Meaning("PrioritizedReplay"),
        "RolloutBuffer": Meaning("OnPolicyBatchReplay"),
    },
    "net": {
        "CNN": Meaning("ConvNet"),
        "ImpalaCNN": Meaning("ResNet"),
        "MLP": Meaning("MLPNet"),
        "SimBa": Meaning("SimBaNet"),
        **{
            cell: Meaning("RecurrentNet", {"cell_type": cell})
            for cell in ("GRU", "LSTM", "RNN")
        },
    },
}
"""Names of parts in papers and other libraries."""


def _spelling(name: str) -> str:
    """The letters and digits of a name, in lower case: "QR-DQN" is "qrdqn"."""
    return "".join(filter(str.isalnum, name.lower()))


@dataclass(frozen=True)
class Registered:
    """A block whose model is looked up in a registry when a spec is loaded, plug-ins
    included. `key` is the key of the name. The registry checks it; a model accepts any,
    so that it can be inherited and registered under several names. `base` is the base
    class of every model, `fallback` the model of a part without its own."""

    registry: Registry
    key: str
    base: type[Block]
    fallback: type[Block]
    advice: str = ""
    """What a block without the key may mean."""

    def validate(self, value: Any) -> BaseModel:
        """The block as its model."""
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise spec_error("must be a block {…}")
        if self.key not in value:
            names = ", ".join(self.registry.names())
            message = f"is missing: the {self.registry.kind}, one of {names}"
            message += self.advice
            raise missing_key_error(self.key, message, value)
        name = value[self.key]
        model = self._model(name)
        if isinstance(model, str):
            raise key_error(self.key, model, name)
        return model.model_validate(dict(value))

    def model_of(self, block: object) -> type[Block] | None:
        """The model of the part that a block names; None if it is unknown."""
        model = self._model(block.get(self.key) if isinstance(block, Mapping) else None)
        if isinstance(model, str):
            return None
        return model

    def _model(self, name: Any) -> type[Block] | str:
        if not isinstance(name, str):
            return "must be a string"
        entry = self.registry.get(name)
        if entry is None:
            return self._why_unknown(name)
        model = entry.params or self.fallback
        if entry.fault is not None:
            return entry.fault
        if not issubclass(model, self.base):
            return (
                "cannot be used: the model of its keys, "
                f"{model.__module__}.{model.__qualname__}, is no {self.base.__name__} "
                f"(of {self.base.__module__})"
            )
        default = wrong_default(model)
        if default is not None:
            place = f"{model.__module__}.{model.__qualname__}"
            return (
                f"cannot be used: a default in the model of its keys, {place}, is "
                f"wrong: {default}"
            )
        return model

    def meaning(self, name: object, mode: object) -> Meaning | None:
        """The lab's part that papers and other libraries call `name`, or that is spelt
        so. "SAC" means SoftActorCritic, "QR-DQN" QRDQN. `mode` is the spec's
        `meta.distributed`. None for a lab's name, for an unknown one, and where a key
        outside the block must be set, too."""
        if not isinstance(name, str) or name in self.registry.names():
            return None
        meaning = self._meanings().get(_spelling(name))
        if meaning is not None and meaning.elsewhere == f'meta.distributed "{mode}"':
            meaning = meaning._replace(elsewhere="")
        if meaning is None or meaning.elsewhere:
            return None
        return meaning

    def _meanings(self) -> dict[str, Meaning]:
        """The meanings of names by their spelling: the lab's own names come first."""
        meanings = dict(USUAL_NAMES[self.registry.kind])
        for word in words_of(lambda mode: mode.algorithms) if self is ALGORITHM else ():
            for usual_name, lab_name in mode_of(word).algorithms.items():
                place = f'meta.distributed "{word}"'
                meanings[usual_name] = Meaning(lab_name, elsewhere=place)
        meanings |= {name: Meaning(name) for name in self.registry.names()}
        return {_spelling(name): meaning for name, meaning in meanings.items()}

    def _why_unknown(self, name: str) -> str:
        for other, why in ADVICE_BY_NAME.items():
            if _spelling(name) == _spelling(other):
                return why
        meaning = self._meanings().get(_spelling(name))
        if meaning is not None:
            return f"unknown {self.registry.kind}; did you mean {meaning}?"
        return unknown_name(self.registry.kind, name, self.registry.names())

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda block: block.model_dump(mode="json")
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        alternatives = []
        for name in self.registry.names():
            model = self._model(name)
            if isinstance(model, str):
                continue
            # The handler alone would omit what the model adds to its schema.
            described = model.__get_pydantic_json_schema__(
                model.__pydantic_core_schema__, handler
            )
            # All names of the model share the resolved schema, so this copies it.
            block = dict(handler.resolve_ref_schema(described))
            block["properties"] = {**block["properties"], self.key: {"const": name}}
            block["required"] = sorted({self.key, *block.get("required", [])})
            alternatives.append(block)
        return {"anyOf": alternatives}


ALGORITHM = Registered(ALGORITHMS, "name", AlgorithmSpec, PlugInSpec)
MEMORY = Registered(MEMORIES, "name", MemorySpec, MemorySpec)
NET = Registered(NETS, "type", NetSpec, MLPNetSpec)
CRITIC_NET = replace(
    NET,
    advice="; for keys of the critic alone write agent.net.critic_obs and the like",
)

PARTS = {
    "algorithm": ALGORITHM,
    "memory": MEMORY,
    "net": NET,
    "critic_net": CRITIC_NET,
}
"""The kinds of the blocks of `agent`."""

AnyAlgorithm: TypeAlias = Annotated[AlgorithmSpec, ALGORITHM]
AnyMemory: TypeAlias = Annotated[MemorySpec, MEMORY]
AnyNet: TypeAlias = Annotated[NetSpec, NET]
AnyCriticNet: TypeAlias = Annotated[NetSpec, CRITIC_NET]


class AgentSpec(Block):
    """The agent: its algorithm, memory and networks."""

    name: str = Field("agent", description="label")
    algorithm: AnyAlgorithm = Field(description="the algorithm and its keys")
    memory: AnyMemory | None = Field(None, description="the memory and its keys")
    net: AnyNet | None = Field(None, description="the networks and their keys")
    critic_net: AnyCriticNet | None = Field(
        None,
        description="the critic's network, if it is of another type than the actor's",
    )

    @property
    def nets(self) -> dict[str, NetSpec]:
        """The nets in the file, by their key. Both are on the device of `net`."""
        critic = self.critic_net
        if critic is not None and self.net is not None:
            device = {"gpu": self.net.gpu, "cuda_graph": self.net.cuda_graph}
            critic = critic.model_copy(update=device)
        nets = {"net": self.net, "critic_net": critic}
        return {key: net for key, net in nets.items() if net is not None}

    @property
    def has_schedules(self) -> bool:
        """Whether numbers of a gradient step change over the run."""
        nets = (net for spec in self.nets.values() for net in spec.for_roles)
        return any(block.schedules for block in (self.algorithm, *nets))

    def for_acting(self) -> "AgentSpec":
        """The agent without memory, and in float32: outside training it acts alike on
        every machine. It needs no GPU."""
        exact = {
            key: net.model_copy(
                update={"precision": "float32", "gpu": net.gpu and "auto"}
            )
            for key, net in self.nets.items()
        }
        return self.model_copy(update={"memory": None, **exact})

    def net_key(self, role: Role) -> str:
        """The key of the net of `role`."""
        if role == "critic" and self.critic_net is not None:
            return "critic_net"
        return "net"


OPTIMIZER_KEYS = ("optim_spec", "lr_scheduler_spec")


def net_for_role(agent: AgentSpec, role: Role) -> NetSpec:
    """The net of `role`, with plain keys only (`variants` is empty). A critic uses
    `agent.critic_net` if it exists. Otherwise, with `use_same_optim` or a shared body,
    its optimizer and learning-rate scheduler are the actor's. Raises LabError for an
    agent without a net."""
    if agent.net is None:
        raise LabError(f"{agent.algorithm.name} has no net")
    key = agent.net_key(role)
    block = f"agent.{key}"
    net = agent.nets[key]
    if role == "critic" and net is agent.net and (net.use_same_optim or net.shared):
        actor = net.for_role("actor").model_dump(mode="json")
        return net.for_role(role, {key: actor[key] for key in OPTIMIZER_KEYS}, block)
    return net.for_role(role, block=block)


def targets_role(algorithm: AlgorithmSpec) -> Role:
    """The role whose nets have target networks, if the algorithm has any."""
    if algorithm.has_separate_critics:
        return "critic"
    return "actor"


def optimizer_paths(
    net: NetSpec | None, critic_net: NetSpec | None
) -> Iterator[tuple[str, OptimSpec]]:
    """Every used optimizer, with its path in the file."""
    blocks = [("agent.net", net, ROLES), ("agent.critic_net", critic_net, ("critic",))]
    seen: set[str] = set()
    for block, spec, roles in blocks:
        if spec is None:
            continue
        for role in roles:
            path = f"{block}.{spec.file_key(role, 'optim_spec')}"
            if path not in seen:
                seen.add(path)
                yield path, spec.for_role(role).optim_spec


def built_nets(agent: AgentSpec) -> Iterator[tuple[str, NetSpec, Role]]:
    """Every net that one of the lab's algorithms builds: its block, the net and its
    role. Empty for an agent without nets, and for a plug-in, whose nets are unknown."""
    algorithm = agent.algorithm
    if not algorithm.NEEDS_NET or algorithm.CRITIC is None or agent.net is None:
        return
    for role in ROLES[:1] if algorithm.has_one_net else ROLES:
        key = agent.net_key(role)
        yield f"agent.{key}", agent.nets[key], role
