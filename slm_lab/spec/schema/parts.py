"""`agent.net.parts`: what encodes the parts of an observation."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails

from slm_lab.core.registry import NETS
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import (
    error_line,
    lines_of,
    raise_errors,
    spec_error,
)
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.schedule import ChangingBlock

EMBEDDING = "Embedding"


class EncoderBlock(ChangingBlock):
    """The keys of what may encode a part."""

    ENCODES: ClassVar[bool] = False
    """Whether it can encode a part of an observation."""

    RECURRENT: ClassVar[bool] = False
    """Whether its layers have a state, and learn from sequences."""

    type: str

    @classmethod
    def encoder_keys(cls) -> tuple[str, ...]:
        """The keys of its block in `parts`."""
        return tuple(cls.model_fields)

    @property
    def sequence_length(self) -> int:
        """The steps that it learns from together."""
        return 1


class EmbeddingSpec(EncoderBlock):
    """A learned vector for each value of a Discrete or MultiDiscrete part."""

    ENCODES = True

    type: Literal["Embedding"] = Field(description="kind of encoder")
    dim: Annotated[Count, bounds.WIDTH] = Field(
        16, description="length of the vector of a value"
    )


def _encoder(block: Any) -> EncoderBlock:
    if isinstance(block, EncoderBlock):
        return block
    if not isinstance(block, Mapping):
        raise_errors([error_line((), 'must be a block {"type": …}', block)])
    name = block.get("type")
    models: dict[str, type[EncoderBlock]] = {EMBEDDING: EmbeddingSpec}
    models |= NETS.models(EncoderBlock)
    known = [name for name, model in models.items() if model.ENCODES]
    if name not in known:
        message = f"is missing: one of {', '.join(known)}"
        if any(isinstance(value, Mapping) for value in block.values()):
            message += (
                "; a part with a dot in its name is set in JSON: "
                """-s 'agent.net.parts={"robot.pose": …}'"""
            )
        if name is not None:
            message = unknown_name("encoder of a part", str(name), known)
        raise_errors([error_line(("type",), message, name or ...)])
    model = models[str(name)]
    keys = model.encoder_keys()
    raise_errors(
        [
            error_line(
                (key,),
                unknown_name("key", str(key), keys)
                if key not in model.model_fields
                else "is a key of the whole net; set it in agent.net",
                value,
            )
            for key, value in block.items()
            if key not in keys
        ]
    )
    encoder: EncoderBlock = model.model_validate(dict(block))
    return encoder


def _dumped(encoders: Mapping[str, EncoderBlock]) -> dict[str, Any]:
    return {
        name: encoder.model_dump(mode="json", include=set(encoder.encoder_keys()))
        for name, encoder in encoders.items()
    }


def _encoders(value: Any) -> dict[str, EncoderBlock]:
    if not isinstance(value, Mapping):
        raise spec_error('must be a block {"part": {"type": …}}')
    encoders: dict[str, EncoderBlock] = {}
    wrong: list[InitErrorDetails] = []
    for name, block in value.items():
        try:
            encoders[name] = _encoder(block)
        except ValidationError as error:
            wrong += lines_of(error, name)
    raise_errors(wrong)
    return encoders


ANY_ENCODER = {
    "type": "object",
    "properties": {"type": {"type": "string"}},
    "required": ["type"],
}

Encoders: TypeAlias = Annotated[
    Mapping[str, EncoderBlock],
    PlainValidator(_encoders),
    PlainSerializer(_dumped),
    WithJsonSchema({"type": "object", "additionalProperties": ANY_ENCODER}),
]
"""A block of encoders by the name of their part. Each has the keys of a net of its type
that concern its layers."""
