"""The JSON Schema of a spec file, for completion and checks in an editor."""

from typing import Any

from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.schema.spec import Spec

BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
"""Bounds that pydantic does not translate to JSON Schema if a validator precedes
them."""


def file_schema() -> dict[str, Any]:
    """The schema of a file `{spec_name: spec}`; keys that begin with "_" may hold
    anything. The alternatives for algorithm, memory and net are the registered ones."""
    spec = standardize_bounds(Spec.model_json_schema())
    definitions = spec.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SLM Lab spec file",
        "type": "object",
        "properties": {
            "imports": {
                "type": "array",
                "items": {"type": "string"},
                "description": "modules that a run imports, as with --import",
            }
        },
        "patternProperties": {"^_": {}},
        "additionalProperties": {"$ref": "#/$defs/Spec"},
        "$defs": {**definitions, "Spec": spec},
    }


def standardize_bounds(schema: Any) -> Any:
    """A schema in which all bounds have the names of JSON Schema."""
    if isinstance(schema, list):
        return [standardize_bounds(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        BOUNDS.get(key, key)
        if isinstance(value, int | float)
        else key: standardize_bounds(value)
        for key, value in schema.items()
    }
