"""The JSON Schema of a spec file, for completion and checks in an editor."""

from typing import Any

from slm_lab.spec import builtin as _builtin  # registers the lab's own parts  # noqa: F401
from slm_lab.spec.schema.spec import Spec


def file_schema() -> dict[str, Any]:
    """A file is `{spec_name: spec}`; keys that begin with "_" may hold anything. The alternatives
    for algorithm, memory and net are those registered now."""
    spec = Spec.model_json_schema()
    definitions = spec.pop("$defs", {})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SLM Lab spec file",
        "type": "object",
        "patternProperties": {"^_": {}},
        "additionalProperties": {"$ref": "#/$defs/Spec"},
        "$defs": {**definitions, "Spec": spec},
    }
