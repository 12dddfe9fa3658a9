"""Types of frames that a spec file may give as a share of the budget, such as "16%"."""

import re
from fractions import Fraction
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from slm_lab.spec.schema.block import spec_error
from slm_lab.spec.schema.fields import Int

PATTERN = r"^\d{1,3}(\.\d{1,30})?%$"
NO_SHARE = 'must be frames, or a share of env.max_frame > 0% and <= 100%, as "16%"'


def share_of(text: str) -> Fraction | None:
    """The share that "16%" is, exactly; None for any other text."""
    if not re.fullmatch(PATTERN, text, re.ASCII):
        return None
    share = Fraction(text.removesuffix("%")) / 100
    return share if 0 < share <= 1 else None


def _no_text(value: Any) -> Any:
    """Rejects text: `spec.budget` has replaced every share."""
    if isinstance(value, str):
        raise spec_error(NO_SHARE)
    return value


class _OrShare:
    """The JSON Schema of a number or a share."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = handler(schema)
        return {
            "anyOf": [number, {"title": "share", "type": "string", "pattern": PATTERN}]
        }


Frames: TypeAlias = Annotated[Int, BeforeValidator(_no_text), _OrShare()]
"""A whole number of frames."""

FramesOrFraction: TypeAlias = Annotated[float, BeforeValidator(_no_text), _OrShare()]
"""A number of frames, whole or not."""
