"""Writes the reference page of the spec language from its models, and the text of
`template.md`.

python docs/reference/spec_reference.py > docs/spec_reference.md
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS, Registry
from slm_lab.spec.checks.legacy import OF_IMITATION, TOP_LEVEL
from slm_lab.spec.json_schema import standardize_bounds
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.bounds import short
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.messages import show
from slm_lab.spec.schema.meta import (
    ActorLearnerSpec,
    ConfirmSpec,
    CorrectionSpec,
    CostsSpec,
    MetaSpec,
    SearchResourcesSpec,
    SimulateSpec,
)
from slm_lab.spec.schema.net import TARGET_KEYS, NetSpec
from slm_lab.spec.schema.optim import LookaheadSpec
from slm_lab.spec.schema.schedule import ScheduleSpec
from slm_lab.spec.schema.scheduler import MODELS
from slm_lab.spec.schema.torch_table import Kind, entries, refusals
from slm_lab.spec.search import LISTS, SAMPLERS

BLOCK_WORDS = {
    "ScheduleSpec": "[schedule](#schedules)",
    "share": "[share](#shares-of-the-budget)",
    "OptimSpec": "[optimizer](#optimizers)",
    "LRSchedulerSpec": "[scheduler](#learning-rate-schedulers)",
    "LossSpec": "[loss](#losses)",
    "ArcSpec": "[layers](#torcharcnet)",
    "ActorLearnerSpec": "[block](#metaactor_learner)",
    "CorrectionSpec": "[block](#metaactor_learnercorrection)",
    "ConfirmSpec": "[block](#metaconfirm)",
    "SearchResourcesSpec": "[block](#metasearch_resources)",
    "SimulateSpec": "[block](#metasimulate)",
    "CostsSpec": "[block](#metasimulatecosts)",
    **{model.__name__: f"[{name}](#{name})" for name, model in MODELS.items()},
}
JSON_TYPES = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true, false",
    "string": "string",
    "object": "block",
    "null": "null",
}
SIGNS = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}
SECTIONS: tuple[type[Block], ...] = (
    ScheduleSpec,
    EnvSpec,
    MetaSpec,
    ActorLearnerSpec,
    CorrectionSpec,
    ConfirmSpec,
    SearchResourcesSpec,
    SimulateSpec,
    CostsSpec,
    LookaheadSpec,
)
TEMPLATE = Path(__file__).with_name("template.md")
"""The page with <<name>> in place of the parts that are generated."""


def reference() -> str:
    """The whole page, as Markdown."""
    algorithms = ALGORITHMS.models(AlgorithmSpec).items()
    usable = (
        name for name, reason in refusals("initialisers").items() if reason is None
    )
    parts = {
        "agent": _agent(),
        "algorithms": _algorithms(),
        "memories": _with_own_keys(MEMORIES, MemorySpec),
        "nets": [_table(NetSpec, {"type"}), *_with_own_keys(NETS, NetSpec)],
        "optimizers": _torch_names("optimizers"),
        "schedulers": _torch_names("schedulers"),
        "losses": _torch_names("losses"),
        "initialisers": [_quoted(usable)],
        "activations": [_quoted(refusals("activations"))],
        **{model.__name__: [_section(model)] for model in SECTIONS},
        "search_schedulers": [
            f"#### {name}\n\n{_section(m)}" for name, m in MODELS.items()
        ],
        "samplers": _samplers(),
        "legacy": _legacy(),
        "target_keys": [_quoted(TARGET_KEYS)],
        "without_targets": [
            ", ".join(n for n, m in algorithms if m.HAS_TARGETS is False)
        ],
        "without_critic": [", ".join(n for n, m in algorithms if m.CRITIC == "none")],
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, lines in parts.items():
        page = page.replace(f"<<{name}>>", "\n".join(lines))
    return page


def _agent() -> Iterator[str]:
    yield f"{_doc(AgentSpec)}\n"
    yield "| key | default | meaning |\n|---|---|---|"
    links = {"algorithm": "#algorithms", "memory": "#memories", "net": "#nets"}
    for key, field in AgentSpec.model_fields.items():
        word = f"[`{key}`]({links[key]})" if key in links else f"`{key}`"
        default = "**required**" if field.is_required() else _default(field.default)
        yield f"| {word} | {default} | {field.description} |"
    yield ""


def _algorithms() -> Iterator[str]:
    yield _table(AlgorithmSpec, {"name"})
    shown: dict[str, type[BaseModel]] = {}
    for name, model in ALGORITHMS.models(AlgorithmSpec).items():
        yield f"### {name}\n"
        yield f"{_doc(model)}{_learns_from(model)}\n"
        like = max(
            (n for n, other in shown.items() if _has_all_keys_of(model, other)),
            key=lambda n: len(shown[n].model_fields),
            default=None,
        )
        shown[name] = model
        known = {
            *AlgorithmSpec.model_fields,
            *(shown[like].model_fields if like else ()),
        }
        more = model.model_fields.keys() - known
        if like is not None:
            yield f"The keys of [{like}](#{like.lower()})" + (
                ", and:\n" if more else ".\n"
            )
        if more:
            yield _table(model, known)


def _has_all_keys_of(model: type[BaseModel], other: type[BaseModel]) -> bool:
    """Whether `model` has every key of the learning algorithm `other`, with the same
    meaning."""
    if len(other.model_fields) < len(AlgorithmSpec.model_fields) + 3:
        return False
    return all(
        key == "name" or repr(model.model_fields.get(key)) == repr(field)
        for key, field in other.model_fields.items()
    )


def _learns_from(model: type[AlgorithmSpec]) -> str:
    models = MEMORIES.models(MemorySpec).items()
    memories = _quoted(name for name, memory in models if model.learns_from(memory))
    return "" if model.MEMORY is None else f" Learns from {memories}."


def _with_own_keys(registry: Registry, base: type[Block]) -> Iterator[str]:
    """Every part of a kind, with the keys that not all of them have."""
    for name, model in registry.models(base).items():
        yield f"### {name}\n\n{_doc(model)}\n"
        yield _table(model, base.model_fields)


def _torch_names(kind: Kind) -> Iterator[str]:
    yield "| name | arguments |\n|---|---|"
    refused: dict[str, list[str]] = {}
    for name, entry in entries(kind).items():
        if entry.refused:
            refused.setdefault(entry.refused, []).append(name)
            continue
        listed = (
            f"`{key}`" if default is ... else f"{key} {_json(default)}"
            for key, default in entry.arguments.items()
        )
        yield f"| `{name}` | {', '.join(listed)} |"
    reasons = (f"{_quoted(names)} ({reason})" for reason, names in refused.items())
    yield f"\nNot supported: {'; '.join(reasons)}.\n"


def _samplers() -> Iterator[str]:
    for name, sampler in SAMPLERS.items():
        needed = sampler.arguments[: sampler.required]
        optional = (
            f"{argument} (optional)"
            for argument in sampler.arguments[sampler.required :]
        )
        yield f"| `{name}` | {', '.join([*needed, *optional])} |"
    for name in LISTS:
        yield f"| `{name}` | the values |"


def _legacy() -> Iterator[str]:
    for key, reason in TOP_LEVEL.items():
        yield f"| `{key}` | {reason} |"
    for block, registry in (
        ("algorithm", ALGORITHMS),
        ("memory", MEMORIES),
        ("net", NETS),
    ):
        for name, model in registry.models(Block).items():
            for key, reason in model.LEGACY.items():
                yield f"| `agent.{block}.{key}` of {name} | {reason} |"
    yield (
        f"| {_quoted(OF_IMITATION)} of on-policy memories | only SIL and PPOSIL "
        "replay |"
    )
    for key, reason in MetaSpec.LEGACY.items():
        yield f"| `meta.{key}` | {reason} |"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _section(model: type[BaseModel]) -> str:
    return f"{_doc(model)}\n\n{_table(model)}"


def _table(model: type[BaseModel], without: Collection[str] = ()) -> str:
    """The keys of a block but some: name, type, default, range, meaning."""
    schema = _schema_of(model)
    rows = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    aliases = {key: alias for alias, key in getattr(model, "ALIASES", {}).items()}
    for key in (key for key in model.model_fields if key not in without):
        node = schema["properties"][key]
        also = f" (also `{aliases[key]}`)" if key in aliases else ""
        default = (
            "**required**"
            if key in schema.get("required", ())
            else _default(node["default"])
        )
        cells = (
            f"`{key}`{also}",
            _type(node),
            default,
            _range(node),
            node["description"],
        )
        rows.append(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        )
    return "\n".join(rows) + "\n"


def _schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a block, with `properties`."""
    schema: dict[str, Any] = standardize_bounds(model.model_json_schema())
    # A model that others refer to is a reference to its own definition.
    return schema if "properties" in schema else schema["$defs"][model.__name__]


def _type(node: Mapping[str, Any]) -> str:
    name = node["$ref"].rsplit("/", 1)[-1] if "$ref" in node else node.get("title", "")
    alternatives = node.get("anyOf") or node.get("oneOf") or []
    if name in BLOCK_WORDS:
        words = BLOCK_WORDS[name]
    elif "enum" in node or "const" in node:
        words = ", ".join(
            f"`{show(value)}`" for value in node.get("enum", [node.get("const")])
        )
    elif alternatives:
        words = ", ".join(dict.fromkeys(_type(part) for part in alternatives))
    elif node.get("type") == "array":
        words = f"list of {_type(node['items'])}s" if node.get("items") else "list"
    else:
        words = JSON_TYPES.get(node.get("type", ""), "see meaning")
    return words


def _range(node: Mapping[str, Any]) -> str:
    """The bounds of a number, or of each number in a list."""
    parts = [node, *node.get("anyOf", ()), node.get("items", {})]
    bounds = [
        (sign, part[key])
        for part in parts
        for key, sign in SIGNS.items()
        if key in part
    ]
    return ", ".join(f"{sign} {short(n)}" for sign, n in bounds)


def _default(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"`{_json(value)}`"
    if "start_val" in value:
        return f"constant {value['start_val']:g}"
    if "name" not in value:
        return "its defaults"
    return ", ".join(
        [
            f"`{value['name']}`",
            *(f"{k} {_json(value[k])}" for k in value if k != "name"),
        ]
    )


def _json(value: object) -> str:
    return show(value) if not isinstance(value, float) else f"{value:g}"


if __name__ == "__main__":
    sys.stdout.write(reference())
