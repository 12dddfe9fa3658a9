"""The JSON Schema of a spec file, for completion and checks in an editor."""

from typing import Any

from pydantic import BaseModel

from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.schema.spec import Spec

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""Bounds that pydantic does not translate to JSON Schema if a validator precedes them."""


def file_schema() -> dict[str, Any]:
    """The schema of a file `{spec_name: spec}`; keys that begin with "_" may hold anything. The
    alternatives for algorithm, memory and net are the registered ones."""
    spec = _in_standard_words(Spec.model_json_schema())
    definitions = spec.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SLM Lab spec file",
        "type": "object",
        "patternProperties": {"^_": {}},
        "additionalProperties": {"$ref": "#/$defs/Spec"},
        "$defs": {**definitions, "Spec": spec},
    }


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a block, with `properties`."""
    schema: dict[str, Any] = _in_standard_words(model.model_json_schema())
    # A model that others refer to is a reference to its own definition.
    return schema if "properties" in schema else schema["$defs"][model.__name__]


def _in_standard_words(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_in_standard_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        BOUNDS.get(key, key) if isinstance(value, int | float) else key: _in_standard_words(value)
        for key, value in schema.items()
    }
