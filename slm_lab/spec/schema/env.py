"""`env`: the environment, how many copies of it, and what the agent sees of it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, error_line, spec_error, spec_errors
from slm_lab.spec.schema.fields import Int, IntList, SignOrNumber


def _width_and_height(size: tuple[int, ...]) -> tuple[int, ...]:
    if len(size) != 2 or any(length < 1 for length in size):
        raise spec_error("must be [width, height] in pixels")
    return size


ImageSize: TypeAlias = Annotated[IntList, AfterValidator(_width_and_height), bounds.PIXELS]


class EnvSpec(Block):
    """Every key that is not listed here goes to `gymnasium.make_vec`, and is refused by name if the
    environment does not accept it."""

    name: str = Field(min_length=1, max_length=bounds.ENV_NAME, description="Gymnasium id")
    num_envs: Annotated[Int, bounds.ENVS] = Field(
        1, ge=1, description="N, copies that are stepped together"
    )
    max_t: Annotated[Int | None, bounds.FRAMES] = Field(
        None, ge=1, description="step limit of an episode; null: that of the environment"
    )
    max_frame: Annotated[Int, bounds.FRAMES] = Field(
        ge=1, description="frames (environment steps summed over copies) of the whole run"
    )
    normalize_obs: bool = Field(
        False,
        description="observations to mean 0 and deviation 1, by running statistics; refused for "
        "images, which normalize of the net scales",
    )
    normalize_reward: bool = Field(
        False, description="rewards divided by the running deviation of the discounted return"
    )
    clip_obs: float | None = Field(
        10.0, gt=0, description="normalised observations clipped to ± this; null: not at all"
    )
    clip_reward: SignOrNumber = Field(
        None, description='rewards clipped to ± this; "sign" or true: to −1, 0, 1'
    )
    reward_scale: SignOrNumber = Field(
        None, description='rewards multiplied by this; "sign": to −1, 0, 1'
    )
    frame_op: Literal["stack", "concat"] | None = Field(
        None,
        description="the last frame_op_len observations as one: along a new first axis, or along "
        "the first axis that there is",
    )
    frame_op_len: Annotated[Int | None, bounds.FRAMES_JOINED] = Field(
        None, ge=1, description="observations joined"
    )
    image_downsize: ImageSize | None = Field(
        None, description="images resized to [width, height] in pixels, by area"
    )
    vectorization_mode: Literal["native", "sync", "async"] | None = Field(
        None, description="how copies are stepped; null: native where there is one, else sync"
    )
    backend: Literal["gymnasium", "envpool"] = Field(
        "gymnasium",
        description="library that steps the environment; envpool: in the place of a native vector "
        "version",
    )
    kwargs: dict[str, Any] = Field(
        {}, description="in a file: any other key of env; arguments of the environment"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _gather_kwargs(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        own = {key: value for key, value in data.items() if key in cls.model_fields}
        beside = {key: value for key, value in data.items() if key not in own}
        kwargs = own.get("kwargs", {})
        if isinstance(kwargs, Mapping):
            own["kwargs"] = {**kwargs, **beside}
        return handler(own)

    @model_validator(mode="after")
    def _joins_some_frames(self) -> Self:
        if self.frame_op is not None and self.frame_op_len is None:
            message = "is missing: frame_op needs the number of observations to join"
            line = error_line(("frame_op_len",), message, None, missing=True)
            raise spec_errors("EnvSpec", [line])
        return self

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        whole: dict[str, Any] = handler(self)
        kwargs = whole.pop("kwargs")
        return {**whole, **kwargs}

    @classmethod
    @override
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Open to the arguments of the environment, which have no key of their own."""
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        schema["properties"].pop("kwargs", None)
        schema["additionalProperties"] = True
        return schema
