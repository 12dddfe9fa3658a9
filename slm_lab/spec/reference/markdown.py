"""Writes the reference page of the spec language from its models.

python -m slm_lab.spec.reference.markdown > docs/spec_reference.md
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
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

HEAD = """\
# The spec language

<!-- Generated from the models:
python -m slm_lab.spec.reference.markdown > docs/spec_reference.md -->

A spec describes one experiment completely. A file holds any number of them by name, as JSON or
YAML:

```json
{
  "my_spec": {
    "agent": {"algorithm": {…}, "memory": {…}, "net": {…}},
    "env": {"name": "CartPole-v1", "num_envs": 8, "max_frame": 200000},
    "meta": {"max_session": 2}
  }
}
```

Top-level keys that begin with `_`, or that hold no `agent`, `env` or `meta`, are not specs; they
can hold YAML anchors. A key that this page does not list is an error, which suggests the nearest
valid name. `true` is not a number, a number is not a string, and NaN is not allowed; `1e6` is a
whole number. A key without a default is required.

A file has at most 4 MB (YAML: 1 MB), 200 specs, and 200 keys in a block.

`slm-lab spec check FILE` finds every problem of a file without running anything, `slm-lab spec show
FILE NAME` prints a spec with every default written out, and `slm-lab spec schema` prints the JSON
Schema with which an editor completes keys.

## Changing a spec on the command line

| | |
|---|---|
| `-s agent.algorithm.gamma=0.98` | sets a key; the value is read as JSON, or else as a string |
| `-s agent.net.hid_layers=[256,256]` | lists and blocks work too; an entry: `….hid_layers.0=128` |
| `-s env=Acrobot-v1` | a key without a dot fills `${env}` wherever the file has it |

If a whole string is `${var}`, the value keeps its type; in a longer string it is formatted as text.
A `${var}` without value is an error when the spec is run. `spec check` calls such a spec a
template: it checks all other values, and lists the variables.
"""

ARC = """\
```yaml
arc:
  modules: {body: {Sequential: [{LazyLinear: {out_features: 64}}, {Tanh: null}]}}
  graph: {input: x, modules: {body: [x]}, output: body}
```

The layers are those of torch.nn with their arguments, lazy ones included, and `LazyBatchRenorm1d`
(batch renormalisation, arXiv:1702.03275). Only graphs of one body are supported; other graphs are
rejected.
"""

SCHEDULERS = """\
### meta.search_scheduler

A block with the `name` of a scheduler and its keys, or the name alone. Without a name the keys are
those of `asha`. The names of Ray Tune's classes, such as `ASHAScheduler`, are aliases. Frames are
those of the budget, `env.max_frame`.
"""

SEARCH = """\
## search

The keys that a search varies, and their samplers: the path of the key in the spec, `__`, and a
sampler of Ray Tune. Paths are nested blocks or dotted keys.

```json
"search": {
  "agent.algorithm.gamma__uniform": [0.95, 0.999],
  "agent.net.optim_spec.lr__loguniform": [1e-4, 1e-2],
  "env.num_envs__choice": [4, 8, 16]
}
```

Every value that a search may set is checked as if it were in the spec, and the spec of every trial
is checked before it runs. Training ignores the search block; only `slm-lab run SPEC NAME search`
uses it: see the [tutorial](tutorial/search.md).

| sampler | arguments |
|---|---|
"""


def reference() -> str:
    """The whole page, as Markdown."""
    parts: list[str] = [HEAD, *_agent(), *_algorithms(), *_memories(), *_nets(), *_torch_names()]
    parts += [_section("## Schedules", ScheduleSpec), _section("## env", EnvSpec)]
    parts += [*_meta(), SEARCH + "\n".join(_samplers()) + "\n", *_old_files()]
    return "\n".join(parts)


def _agent() -> Iterator[str]:
    yield "## agent\n"
    yield f"{_doc(AgentSpec)}\n"
    yield "| key | default | meaning |\n|---|---|---|"
    for key, field in AgentSpec.model_fields.items():
        link = {"algorithm": "#algorithms", "memory": "#memories", "net": "#nets"}.get(key, "")
        word = f"[`{key}`]({link})" if link else f"`{key}`"
        yield f"| {word} | {_default(field)} | {field.description} |"
    yield ""


def _algorithms() -> Iterator[str]:
    yield "## Algorithms\n"
    yield "`agent.algorithm`. Every algorithm has these keys:\n"
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
    memories = ", ".join(f"`{name}`" for name, memory in models if model.learns_from(memory))
    return "" if model.MEMORY is None else f" Learns from {memories}."


def _memories() -> Iterator[str]:
    yield "## Memories\n"
    yield "`agent.memory`.\n"
    for name, model in MEMORIES.models(MemorySpec).items():
        yield f"### {name}\n"
        yield f"{_doc(model)}\n"
        yield _table(model, skip={"name"})


def _nets() -> Iterator[str]:
    yield "## Nets\n"
    yield (
        "`agent.net`, and `agent.critic_net` if the critic has a different net. "
        "Any key but `type`, `shared`, `use_same_optim` and `gpu` can be set for one role only, as "
        "`actor_KEY` or `critic_KEY`. Every net has these keys:\n"
    )
    yield _table(NetSpec, skip={"type"})
    for name, model in NETS.models(NetSpec).items():
        yield f"### {name}\n"
        yield f"{_doc(model)}\n"
        own = [key for key in model.model_fields if key not in NetSpec.model_fields]
        yield _table(model, only=own)
        if name == "TorchArcNet":
            yield ARC


def _torch_names() -> Iterator[str]:
    kinds: tuple[tuple[str, Kind, str], ...] = (
        ("Optimizers", "optimizers", "`optim_spec`: a name, with its arguments beside it, as "
         '`{"name": "GlobalAdam", "lr": 1e-3}`. `GlobalAdam` and `GlobalRMSprop` are `Adam` and '
         "`RMSprop` for every parallel mode."),
        ("Learning-rate schedulers", "schedulers", "`lr_scheduler_spec`. `LinearToZero` and "
         "`LinearToMin` follow the frame clock: from the rate of the optimizer to zero, or to "
         "`min_factor` of it, at frame `frame`. Those of torch count frames for their epochs."),
        ("Losses", "losses", "`loss_spec`."),
    )  # fmt: skip
    for title, kind, text in kinds:
        yield f"## {title}\n\n{text}\n\n| name | arguments |\n|---|---|"
        for name, entry in entries(kind).items():
            if not entry.refused:
                listed = (
                    f"`{key}`" if argument.required else f"{key} {_json(argument.default)}"
                    for key, argument in entry.arguments.items()
                )
                yield f"| `{name}` | {', '.join(listed)} |"
        reasons = dict.fromkeys(e.refused for e in entries(kind).values() if e.refused)
        refused = (
            f"{', '.join(f'`{n}`' for n, e in entries(kind).items() if e.refused == reason)} "
            f"({reason})"
            for reason in reasons
        )
        yield f"\nNot supported: {'; '.join(refused)}.\n"
    usable = [f"`{name}`" for name, reason in initialisers().items() if reason is None]
    yield f"`init_fn`: {', '.join(usable)}.\n"
    names = ", ".join(f"`{name}`" for name in activations().values())
    yield f"Activations, also in lower case and with `_` (`leaky_relu`): {names}.\n"


def _meta() -> Iterator[str]:
    yield _section("## meta", MetaSpec)
    yield _section("### meta.actor_learner", ActorLearnerSpec)
    yield _section("### meta.actor_learner.correction", CorrectionSpec)
    yield _section("### meta.confirm", ConfirmSpec)
    yield _section("### meta.search_resources", SearchResourcesSpec)
    yield SCHEDULERS
    for name, model in MODELS.items():
        yield _section(f"#### {name}", model)


def _samplers() -> Iterator[str]:
    for name, sampler in SAMPLERS.items():
        needed = sampler.arguments[: sampler.required]
        optional = (f"{argument} (optional)" for argument in sampler.arguments[sampler.required :])
        yield f"| `{name}` | {', '.join([*needed, *optional])} |"
    for name in LISTS:
        yield f"| `{name}` | the values |"


def _old_files() -> Iterator[str]:
    yield "## Old files\n"
    yield (
        'The form `"agent": [{…}]`, `"env": [{…}]` with a `body` block loads as well; a list of '
        "more than one does not. These keys have no meaning here: they are ignored, with one "
        "warning per file.\n"
    )
    yield "| key | why |\n|---|---|"
    for key, reason in TOP_LEVEL.items():
        yield f"| `{key}` | {reason} |"
    for block, registry in (("algorithm", ALGORITHMS), ("memory", MEMORIES), ("net", NETS)):
        for name, model in registry.models(Block).items():
            for key, reason in model.LEGACY.items():
                yield f"| `agent.{block}.{key}` of {name} | {reason} |"
    keys = ", ".join(f"`{key}`" for key in OF_IMITATION)
    yield f"| {keys} of on-policy memories | only SIL and PPOSIL replay |"
    for key, reason in MetaSpec.LEGACY.items():
        yield f"| `meta.{key}` | {reason} |"
    yield ""
    yield from _without_effect()


def _without_effect() -> Iterator[str]:
    yield (
        "These valid keys have no effect in some specs. The same warning reports values other than "
        "the default; misleading values are rejected.\n"
    )
    yield "| key | where it has no effect |\n|---|---|"
    algorithms = ALGORITHMS.models(AlgorithmSpec).items()
    targets = ", ".join(f"`{key}`" for key in TARGET_KEYS)
    without = ", ".join(name for name, model in algorithms if model.HAS_TARGETS is False)
    yield f"| {targets} of a net | {without}: no target networks |"
    yield "| `agent.memory`, `agent.net`, `agent.critic_net` | Random: it learns nothing |"
    yield '| `polyak_coef` of a net | `update_type` "replace" |'
    one = ", ".join(name for name, model in algorithms if model.CRITIC == "none")
    yield f"| `shared`, `use_same_optim`, `critic_*` of a net | {one}: one net and no critic |"
    yield "| `use_same_optim` of a net | beside `agent.critic_net`, which has its own optimizer |"
    yield "| `explore_var_spec` | `action_policy` other than epsilon_greedy and boltzmann |"
    yield "| `training_frequency` | beside `update_to_data` |"
    yield "| `log_alpha_min`, `log_alpha_max` | beside `fixed_alpha` |"
    yield (
        "| `log_std_init` of a net | distributions of actions without a σ: discrete ones and Beta |"
    )
    yield "| `env.clip_obs` | without `normalize_obs` |"
    yield "| `env.frame_op_len` | without `frame_op` |"
    yield '| `meta.scale`, `meta.scale_lr` | `distributed` other than "all_reduce" |'
    yield '| `meta.scale_lr` | `scale` "strong", which leaves the learning rate |'
    yield '| `meta.actor_learner` | `distributed` other than "actor_learner" |'
    yield "| `learn_queue` of actor_learner | algorithms that replay |"
    yield "| `train_ratio` of actor_learner | algorithms that do not |"
    yield (
        "| `training_frequency`, `update_to_data`, `training_batch_iter`, `training_iter` | beside "
        "a number as `train_ratio`; the first three beside null |"
    )
    yield "| `queue_size`, `inference` of actor_learner | with `serial` |"
    yield '| `rho_bar`, `c_bar` of a correction | its name is "none" |'
    yield '| `env.backend` | beside `vectorization_mode` "sync" and "async" |'
    yield ""


def _doc(model: type[BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split())


def _section(title: str, model: type[BaseModel]) -> str:
    return f"{title}\n\n{_doc(model)}\n\n{_table(model)}"


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
