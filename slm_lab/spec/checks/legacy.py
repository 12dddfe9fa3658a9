"""Replaces other libraries' names of parts, and drops keys of SLM Lab's older files
that have no meaning here. Each of them is reported."""

from collections.abc import Mapping
from typing import Any

from slm_lab.spec.schema.agent import ALGORITHM, PARTS, critic_keys
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.memory import OnPolicySpec
from slm_lab.spec.schema.meta import MetaSpec
from slm_lab.spec.schema.torch_table import entries

TOP_LEVEL = {
    "body": "one agent acts in one environment",
    "spec_params": "fill ${var} with -s var=value",
}
NET_KEYS = ("net", "critic_net")
SEARCHERS = {"RandomSearch": "random"}
"""SLM Lab's words of `meta.search`, and the `meta.search_alg` of each."""
OF_IMITATION = ("sil_replay_name", "batch_size", "max_size", "use_cer")


def with_lab_names(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The spec with the lab's names of algorithm, memory, nets and searcher, and one
    line per other name. Keys that belong to a name are added, unless the file has
    them."""
    agent = raw.get("agent")
    meta = raw.get("meta")
    mode = None
    if isinstance(meta, Mapping):
        mode = meta.get("distributed")
    blocks = dict(agent) if isinstance(agent, Mapping) else {}
    notes = []
    for key, kind in PARTS.items():
        block = blocks.get(key)
        if not isinstance(block, Mapping):
            continue
        name = block.get(kind.key)
        meaning = kind.meaning(name, mode)
        if meaning is not None:
            added = {k: v for k, v in meaning.keys.items() if k not in block}
            blocks[key] = {**added, **block, kind.key: meaning.name}
            of_critic = _add_to_critic(blocks, meaning.critic)
            meant = meaning._replace(keys=added, critic=of_critic)
            notes.append(f'agent.{key}.{kind.key} "{name}" means {meant}')
    spec = {**raw, "agent": blocks} if notes else dict(raw)
    if isinstance(meta, Mapping) and "search_alg" not in meta:
        word = meta.get("search")
        searcher = SEARCHERS.get(word) if isinstance(word, str) else None
        if searcher is not None:
            others = {key: value for key, value in meta.items() if key != "search"}
            spec["meta"] = {**others, "search_alg": searcher}
            notes.append(f'meta.search "{word}" means search_alg {searcher}')
    return spec, notes


def _add_to_critic(
    blocks: dict[str, Any], keys: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Adds keys to the critics' net, unless the file has them. Returns those that it
    added."""
    has_own = isinstance(blocks.get("critic_net"), Mapping)
    place = "critic_net" if has_own else "net"
    net = blocks.get(place)
    if not isinstance(net, Mapping):
        return {}
    added = {
        key: value
        for key, value in keys.items()
        if not {key, f"critic_{key}"} & net.keys()
    }
    blocks[place] = {**(added if has_own else critic_keys(added)), **net}
    return added


def drop_legacy_keys(raw: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The spec without legacy keys, and one "path (reason)" per dropped key."""
    notes: list[str] = []
    spec = _without(raw, TOP_LEVEL, "", notes)
    agent = spec.get("agent")
    if isinstance(agent, Mapping):
        agent = _drop_empty_nets(agent)
        for key, kind in PARTS.items():
            block = agent.get(key)
            if (
                isinstance(block, Mapping)
                and (model := kind.model_of(block)) is not None
            ):
                legacy = _legacy_of(model, block, agent.get("algorithm"))
                agent[key] = _without(block, legacy, f"agent.{key}.", notes)
        spec["agent"] = agent
    if isinstance(spec.get("meta"), Mapping):
        spec["meta"] = _without(spec["meta"], MetaSpec.LEGACY, "meta.", notes)
    return spec, notes


def _drop_empty_nets(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Removes `"net": {}`, which SLM Lab's files have beside an algorithm without
    nets."""
    model = ALGORITHM.model_of(agent.get("algorithm"))
    if model is None or not issubclass(model, AlgorithmSpec) or model.NEEDS_NET:
        return dict(agent)
    return {
        key: block for key, block in agent.items() if key not in NET_KEYS or block != {}
    }


def _legacy_of(
    model: type[Block], block: Mapping[str, Any], algorithm: object
) -> Mapping[str, str]:
    learner = ALGORITHM.model_of(algorithm)
    if learner is None or not issubclass(learner, AlgorithmSpec):
        learner = AlgorithmSpec
    if _has_refused_loss(block) and not learner.HAS_VALUE_LOSS:
        return {**model.LEGACY, "loss_spec": "the algorithm has a loss of its own"}
    imitates = learner.TWIN
    if imitates or not issubclass(model, OnPolicySpec):
        return model.LEGACY
    # defaults are not reported
    unused = [key for key in OF_IMITATION if block.get(key)]
    return {**model.LEGACY, **dict.fromkeys(unused, f"{block['name']} replays nothing")}


def _has_refused_loss(block: Mapping[str, Any]) -> bool:
    """Whether a net names a loss that no value function has."""
    loss = block.get("loss_spec")
    name = loss.get("name") if isinstance(loss, Mapping) else None
    entry = entries("losses").get(name) if isinstance(name, str) else None
    return entry is not None and entry.refused is not None


def _without(
    block: Mapping[str, Any], legacy: Mapping[str, str], prefix: str, notes: list[str]
) -> dict[str, Any]:
    notes.extend(f"{prefix}{key} ({legacy[key]})" for key in block if key in legacy)
    return {key: value for key, value in block.items() if key not in legacy}
