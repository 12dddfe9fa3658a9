"""Converts pydantic's ValidationError to Problems for the user."""

from pydantic import ValidationError

from slm_lab.core.errors import Problem


def problems_of(error: ValidationError, prefix: str = "") -> list[Problem]:
    """One Problem per error, with dotted paths as in the file, below `prefix`."""
    found = []
    for details in error.errors(include_url=False):
        path = ".".join(str(part) for part in (prefix, *details["loc"]) if part != "")
        context = details.get("ctx", {})
        missing = bool(context.get("missing", False))
        given = None if missing else details["input"]
        found.append(Problem(path or "spec", details["msg"], given, has_value=not missing))
    return found
