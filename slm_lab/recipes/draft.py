"""Writes a spec as commented YAML: each key with the words of the spec reference."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

from slm_lab.records.trust import IMPORTS
from slm_lab.spec.schema.block import Block
from slm_lab.spec.schema.optim import TorchPart
from slm_lab.spec.schema.schedule import ScheduleSpec
from slm_lab.spec.schema.spec import Spec

INDENT = "  "
COLUMNS = 100
"""The longest line with a comment behind its key; a longer comment precedes the key."""
SMALL = (TorchPart, ScheduleSpec)
"""Blocks that stand in one line."""
PLAIN = ("name", "type")
"""Keys without a comment: their values say enough."""


def draft(
    spec: Spec,
    raw: Mapping[str, Any],
    title: Sequence[str],
    imports: Sequence[str] = (),
) -> str:
    """The YAML file of `raw`, which `spec` was parsed from, with `title` lines as its
    head. Each key of `raw` has its description as a comment. Keys are in the order of
    `raw`. A run of the file imports the modules `imports`."""
    head = "".join(f"# {line}\n" for line in title)
    if imports:
        head += f"{IMPORTS}: {_in_one_line([*imports])}  # as with --import\n"
    body = "\n".join(_block(raw, spec, INDENT))
    return f"{head}{_in_one_line(spec.name)}:\n{body}\n"


def _block(raw: Mapping[str, Any], model: object, indent: str) -> Iterator[str]:
    fields = type(model).model_fields if isinstance(model, BaseModel) else {}
    for key, value in raw.items():
        inner = getattr(model, key, None)
        if (
            isinstance(value, Mapping)
            and isinstance(inner, Block)
            and not isinstance(inner, SMALL)
        ):
            yield f"{indent}{key}:"
            yield from _block(value, inner, indent + INDENT)
            continue
        line = f"{indent}{key}: {_in_one_line(value)}"
        about = None
        if key in fields and key not in PLAIN:
            about = fields[key].description
        if about is None:
            yield line
        elif len(line) + len(about) + 4 <= COLUMNS:
            yield f"{line}  # {about}"
        else:
            width = COLUMNS - len(indent) - 2
            yield from (f"{indent}# {part}" for part in textwrap.wrap(about, width))
            yield line


def _in_one_line(value: Any) -> str:
    whole: str = yaml.safe_dump(
        [value], default_flow_style=True, sort_keys=False, width=10**6
    )
    return whole[1:-2]
