"""`agent`: algorithm, memory and nets, each by the name under which it is registered."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.schema.algorithm import AlgorithmSpec, PlugInSpec
from slm_lab.spec.schema.block import Block, refusal, refuse, refuse_all, refuse_without
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.net import MLPNetSpec, NetSpec
from slm_lab.spec.schema.wording import unknown_name

NOT_SUPPORTED = {
    "HydraDQN": "is not supported: one agent in one environment; use DQN or DoubleDQN",
    "MultitaskDQN": "is not supported: one agent in one environment; use DQN or DoubleDQN",
}


def registered_model(
    registry: Registry, name: str, fallback: type[BaseModel]
) -> type[BaseModel] | None:
    """The model of the keys of the part `name`; None if there is no such part."""
    entry = registry.get(name)
    if entry is None:
        return None
    return entry.params or fallback


class Registered:
    """A block whose model is looked up in a registry when a spec is loaded, so that parts from
    other packages count. `key` is the key that holds the name; `fallback` the model of a part
    that brings none."""

    def __init__(self, registry: Registry, key: str, fallback: type[BaseModel]) -> None:
        self.registry = registry
        self.key = key
        self.fallback = fallback

    def validate(self, value: Any) -> BaseModel:
        """The block as the model of the part that it names."""
        if isinstance(value, BaseModel):
            return value
        if not isinstance(value, Mapping):
            raise refuse("must be a block {…}")
        if self.key not in value:
            names = ", ".join(self.registry.names())
            message = f"is missing: the {self.registry.kind}, one of {names}"
            raise refuse_without(self.key, message, value)
        name = value[self.key]
        model = (
            registered_model(self.registry, name, self.fallback) if isinstance(name, str) else None
        )
        if model is None:
            raise refuse_all("Registered", [refusal((self.key,), self._unknown(name), name)])
        return model.model_validate(dict(value))

    def _unknown(self, name: Any) -> str:
        if not isinstance(name, str):
            return "must be a string"
        if name in NOT_SUPPORTED:
            return NOT_SUPPORTED[name]
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
            model = registered_model(self.registry, name, self.fallback) or self.fallback
            # A handler skips what the model itself adds to its schema, so the model is asked.
            described = model.__get_pydantic_json_schema__(model.__pydantic_core_schema__, handler)
            block = handler.resolve_ref_schema(described)
            block["properties"][self.key] = {"const": name}
            block["required"] = sorted({self.key, *block.get("required", [])})
            alternatives.append(block)
        return {"anyOf": alternatives}


AnyAlgorithm: TypeAlias = Annotated[AlgorithmSpec, Registered(ALGORITHMS, "name", PlugInSpec)]
AnyMemory: TypeAlias = Annotated[MemorySpec, Registered(MEMORIES, "name", MemorySpec)]
AnyNet: TypeAlias = Annotated[NetSpec, Registered(NETS, "type", MLPNetSpec)]


class AgentSpec(Block):
    """The agent: what it learns by, learns from, and learns with."""

    name: str = Field("agent", description="free label")
    algorithm: AnyAlgorithm = Field(description="the algorithm and its keys")
    memory: AnyMemory | None = Field(None, description="what experience is kept")
    net: AnyNet | None = Field(None, description="the networks, or the actor's")
    critic_net: AnyNet | None = Field(
        None, description="the critic's network, where it is to differ altogether"
    )
