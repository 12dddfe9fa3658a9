"""Drops keys of SLM Lab's older files that have no meaning here, and reports each of them."""

from collections.abc import Mapping
from typing import Any

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.schema.algorithm import IMITATING, AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.memory import OnPolicySpec
from slm_lab.spec.schema.meta import MetaSpec

TOP_LEVEL = {
    "body": "one agent acts in one environment",
    "spec_params": "fill ${var} with -s var=value",
}
NET_KEYS = ("net", "critic_net")
OF_IMITATION = ("sil_replay_name", "batch_size", "max_size", "use_cer")


def drop_legacy_keys(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The spec without legacy keys, and one "path (reason)" per dropped key."""
    notes: list[str] = []
    spec = _without(raw, TOP_LEVEL, "", notes)
    agent = spec.get("agent")
    if isinstance(agent, Mapping):
        agent = _without_empty_nets(agent)
        for key, registry, name_key in (
            ("algorithm", ALGORITHMS, "name"),
            ("memory", MEMORIES, "name"),
            ("net", NETS, "type"),
            ("critic_net", NETS, "type"),
        ):
            block = agent.get(key)
            if isinstance(block, Mapping):
                legacy = _legacy_of(registry, block, name_key, agent.get("algorithm"))
                agent[key] = _without(block, legacy, f"agent.{key}.", notes)
        spec["agent"] = agent
    if isinstance(spec.get("meta"), Mapping):
        spec["meta"] = _without(spec["meta"], MetaSpec.LEGACY, "meta.", notes)
    return spec, notes


def _without_empty_nets(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Removes `"net": {}`, which SLM Lab's files have beside an algorithm without nets."""
    model = _model(ALGORITHMS, agent.get("algorithm"), "name")
    if model is None or not issubclass(model, AlgorithmSpec) or model.NEEDS_NET:
        return dict(agent)
    return {key: block for key, block in agent.items() if key not in NET_KEYS or block != {}}


def _legacy_of(
    registry: Registry, block: Mapping[str, Any], name_key: str, algorithm: object
) -> Mapping[str, str]:
    """The legacy keys of `block`, with the reasons."""
    model = _model(registry, block, name_key)
    imitates = isinstance(algorithm, Mapping) and str(algorithm.get("name")) in IMITATING
    if model is None or imitates or not issubclass(model, OnPolicySpec):
        return {} if model is None else model.LEGACY
    unused = [key for key in OF_IMITATION if block.get(key)]  # defaults are not reported
    return {**model.LEGACY, **dict.fromkeys(unused, f"{block[name_key]} replays nothing")}


def _model(registry: Registry, block: object, name_key: str) -> type[Block] | None:
    """The model of the part that a block names; None if it is unknown."""
    name = block.get(name_key) if isinstance(block, Mapping) else None
    entry = registry.get(name) if isinstance(name, str) else None
    model = None if entry is None else entry.params
    return model if model is not None and issubclass(model, Block) else None


def _without(
    block: Mapping[str, Any], legacy: Mapping[str, str], prefix: str, notes: list[str]
) -> dict[str, Any]:
    notes.extend(f"{prefix}{key} ({legacy[key]})" for key in block if key in legacy)
    return {key: value for key, value in block.items() if key not in legacy}
