"""Writes the reference page of the spec language from its models, and the text of `template.md`.

python -m slm_lab.spec.reference.markdown > docs/spec_reference.md
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.checks.legacy import OF_IMITATION, TOP_LEVEL
from slm_lab.spec.schema.agent import AgentSpec
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.bounds import Most
from slm_lab.spec.schema.env import EnvSpec
from slm_lab.spec.schema.memory import MemorySpec
from slm_lab.spec.schema.messages import show
from slm_lab.spec.schema.meta import (
    ActorLearnerSpec,
    ConfirmSpec,
    CorrectionSpec,
    MetaSpec,
    SearchResourcesSpec,
)
from slm_lab.spec.schema.net import TARGET_KEYS, NetSpec
from slm_lab.spec.schema.optim import TorchPart
from slm_lab.spec.schema.schedule import ScheduleSpec
from slm_lab.spec.schema.scheduler import MODELS
from slm_lab.spec.search import LISTS, SAMPLERS
from slm_lab.spec.torch_table import Kind, activations, entries, initialisers

BLOCK_WORDS = {
    "ScheduleSpec": "[schedule](#schedules)",
    "OptimSpec": "[optimizer](#optimizers)",
    "LRSchedulerSpec": "[scheduler](#learning-rate-schedulers)",
    "LossSpec": "[loss](#losses)",
    "ArcSpec": "[layers](#torcharcnet)",
    "ActorLearnerSpec": "[block](#metaactor_learner)",
    "CorrectionSpec": "[block](#metaactor_learnercorrection)",
    "ConfirmSpec": "[block](#metaconfirm)",
    "SearchResourcesSpec": "[block](#metasearch_resources)",
    **{model.__name__: f"[{name}](#{name})" for name, model in MODELS.items()},
}
TYPE_WORDS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true, false",
    "string": "string",
    "object": "block",
    "null": "null",
}
BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
BOUND_TYPES = {"ge": Ge, "gt": Gt, "le": Le, "lt": Lt}

TEMPLATE = Path(__file__).with_name("template.md")
"""The page with <<name>> in place of the parts that are generated."""


def reference() -> str:
    """The whole page, as Markdown."""
    algorithms = ALGORITHMS.models(AlgorithmSpec).items()
    usable = (name for name, reason in initialisers().items() if reason is None)
    parts = {
        "agent": _agent(),
        "algorithms": _algorithms(),
        "memories": _memories(),
        "nets": _nets(),
        "optimizers": _torch_names("optimizers"),
        "schedulers": _torch_names("schedulers"),
        "losses": _torch_names("losses"),
        "initialisers": _quoted(usable),
        "activations": _quoted(activations().values()),
        "schedules": _section(ScheduleSpec),
        "env": _section(EnvSpec),
        "meta": _section(MetaSpec),
        "actor_learner": _section(ActorLearnerSpec),
        "correction": _section(CorrectionSpec),
        "confirm": _section(ConfirmSpec),
        "search_resources": _section(SearchResourcesSpec),
        "search_schedulers": "\n".join(
            f"#### {name}\n\n{_section(model)}" for name, model in MODELS.items()
        ),
        "samplers": _samplers(),
        "legacy": _legacy(),
        "target_keys": _quoted(TARGET_KEYS),
        "without_targets": ", ".join(n for n, model in algorithms if model.HAS_TARGETS is False),
        "without_critic": ", ".join(n for n, model in algorithms if model.CRITIC == "none"),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        page = page.replace(f"<<{name}>>", part if isinstance(part, str) else "\n".join(part))
    return page


def _agent() -> Iterator[str]:
    yield f"{_doc(AgentSpec)}\n"
    yield "| key | default | meaning |\n|---|---|---|"
    for key, field in AgentSpec.model_fields.items():
        link = {"algorithm": "#algorithms", "memory": "#memories", "net": "#nets"}.get(key, "")
        word = f"[`{key}`]({link})" if link else f"`{key}`"
        yield f"| {word} | {_default(field)} | {field.description} |"
    yield ""


def _algorithms() -> Iterator[str]:
    yield _table(AlgorithmSpec, skip={"name"})
    shown: dict[str, type[BaseModel]] = {}
    for name, model in ALGORITHMS.models(AlgorithmSpec).items():
        yield f"### {name}\n"
        yield f"{_doc(model)}{_learns_from(model)}\n"
        own = [key for key in model.model_fields if key not in AlgorithmSpec.model_fields]
        like = max(
            (n for n, other in shown.items() if _has_all_keys_of(model, other)),
            key=lambda n: len(shown[n].model_fields),
            default=None,
        )
        shown[name] = model
        more = [key for key in own if like is None or key not in shown[like].model_fields]
        if like is not None:
            yield f"The keys of [{like}](#{like.lower()})" + (", and:\n" if more else ".\n")
        if more:
            yield _table(model, only=more)


def _has_all_keys_of(model: type[BaseModel], other: type[BaseModel]) -> bool:
    """Whether `model` has every key of the learning algorithm `other`, with the same meaning."""
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


def _memories() -> Iterator[str]:
    for name, model in MEMORIES.models(MemorySpec).items():
        yield f"### {name}\n\n{_doc(model)}\n"
        yield _table(model, skip={"name"})


def _nets() -> Iterator[str]:
    yield _table(NetSpec, skip={"type"})
    for name, model in NETS.models(NetSpec).items():
        yield f"### {name}\n\n{_doc(model)}\n"
        own = [key for key in model.model_fields if key not in NetSpec.model_fields]
        yield _table(model, only=own)


def _torch_names(kind: Kind) -> Iterator[str]:
    yield "| name | arguments |\n|---|---|"
    refused: dict[str, list[str]] = {}
    for name, entry in entries(kind).items():
        if entry.refused:
            refused.setdefault(entry.refused, []).append(name)
            continue
        listed = (
            f"`{key}`" if argument.required else f"{key} {_json(argument.default)}"
            for key, argument in entry.arguments.items()
        )
        yield f"| `{name}` | {', '.join(listed)} |"
    reasons = (f"{_quoted(names)} ({reason})" for reason, names in refused.items())
    yield f"\nNot supported: {'; '.join(reasons)}.\n"


def _samplers() -> Iterator[str]:
    for name, sampler in SAMPLERS.items():
        needed = sampler.arguments[: sampler.required]
        optional = (f"{argument} (optional)" for argument in sampler.arguments[sampler.required :])
        yield f"| `{name}` | {', '.join([*needed, *optional])} |"
    for name in LISTS:
        yield f"| `{name}` | the values |"


def _legacy() -> Iterator[str]:
    for key, reason in TOP_LEVEL.items():
        yield f"| `{key}` | {reason} |"
    for block, registry in (("algorithm", ALGORITHMS), ("memory", MEMORIES), ("net", NETS)):
        for name, model in registry.models(Block).items():
            for key, reason in model.LEGACY.items():
                yield f"| `agent.{block}.{key}` of {name} | {reason} |"
    yield f"| {_quoted(OF_IMITATION)} of on-policy memories | only SIL and PPOSIL replay |"
    for key, reason in MetaSpec.LEGACY.items():
        yield f"| `meta.{key}` | {reason} |"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _section(model: type[BaseModel]) -> str:
    return f"{_doc(model)}\n\n{_table(model)}"


def _table(
    model: type[BaseModel], skip: set[str] | None = None, only: Sequence[str] | None = None
) -> str:
    """The keys of a block: name, type, default, range, meaning."""
    properties = model.model_json_schema()
    definitions = properties.get("$defs", {})
    if "properties" not in properties:  # the model is a reference to its own definition
        properties = definitions[model.__name__]
    rows = ["| key | type | default | range | meaning |", "|---|---|---|---|---|"]
    aliases = {key: alias for alias, key in getattr(model, "ALIASES", {}).items()}
    for key, field in model.model_fields.items():
        if key in (skip or ()) or (only is not None and key not in only) or key == "kwargs":
            continue
        node = properties["properties"][key]
        also = f" (also `{aliases[key]}`)" if key in aliases else ""
        cells = (f"`{key}`{also}", _type(node), _default(field), _range(field), field.description)
        rows.append("| " + " | ".join(str(cell or "").replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _type(node: Mapping[str, Any]) -> str:
    name = node["$ref"].rsplit("/", 1)[-1] if "$ref" in node else node.get("title", "")
    alternatives = node.get("anyOf") or node.get("oneOf") or []
    if name in BLOCK_WORDS:
        words = BLOCK_WORDS[name]
    elif "enum" in node or "const" in node:
        words = ", ".join(f"`{show(value)}`" for value in node.get("enum", [node.get("const")]))
    elif alternatives:
        words = ", ".join(dict.fromkeys(_type(part) for part in alternatives))
    elif node.get("type") == "array":
        words = f"list of {_type(node['items'])}s" if node.get("items") else "list"
    else:
        words = TYPE_WORDS.get(node.get("type", ""), "see meaning")
    return words


def _range(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(rule, bound):g}"
        for rule in field.metadata
        for bound, sign in BOUNDS.items()
        if isinstance(rule, BOUND_TYPES[bound])
    ]
    most = [f"≤ {rule}" for rule in field.metadata if isinstance(rule, Most)]
    return ", ".join([*bounds, *most])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default()
    if isinstance(value, ScheduleSpec):
        return f"constant {value.start_val:g}"
    if isinstance(value, TorchPart):
        args = "".join(f", {key} {_json(arg)}" for key, arg in value.args.items())
        return f"`{value.name}`{args}"
    if isinstance(value, CorrectionSpec):
        return f"`{show(value.name)}`"
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{_json(list(value) if isinstance(value, tuple) else value)}`"


def _json(value: object) -> str:
    return show(value) if not isinstance(value, float) else f"{value:g}"


if __name__ == "__main__":
    sys.stdout.write(reference())
