"""Numbers that change over the run: a block in place of a number."""

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias, final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails
from typing_extensions import override

from slm_lab.core.schedule import Schedule
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import (
    Block,
    error_line,
    given_value,
    lines_of,
    raise_errors,
)
from slm_lab.spec.schema.fields import Frames
from slm_lab.spec.schema.rules import Limit, Needed

DECAYS = ("linear_decay", "rate_decay", "periodic_decay")
"""The shapes that change."""

ITS_END = Needed("{own.name} needs it", when="changes")


class ScheduleSpec(Block):
    """A value by the trial's frame clock: constant, or from `start_val` to
    `end_val`."""

    name: Literal["no_decay", "linear_decay", "rate_decay", "periodic_decay"] = Field(
        "no_decay", description="shape; no_decay: constant start_val"
    )
    start_val: float = Field(description="value until start_step")
    end_val: Annotated[float | None, ITS_END] = Field(
        None, description="value from end_step; null: start_val"
    )
    start_step: Annotated[
        Frames, bounds.FRAMES, Limit(sign="<=", of="end_step", when="changes")
    ] = Field(0, ge=0, description="frame at which the change begins")
    end_step: Annotated[Frames | None, bounds.FRAMES, ITS_END] = Field(
        None,
        ge=0,
        description="frame at which end_val is reached; null: the end of the budget",
    )

    @property
    def changes(self) -> bool:
        """Whether it has a shape that changes."""
        return self.name in DECAYS

    def build(self) -> Schedule:
        """The schedule that has its values by frame."""
        return Schedule(
            start_val=self.start_val,
            end_val=self.end_val,
            start_step=self.start_step,
            end_step=self.end_step,
            shape=self.name,
        )


def is_schedule(value: object) -> bool:
    """Whether a value of a spec, as JSON data, stands for a schedule."""
    return isinstance(value, Mapping) and "start_val" in value


def constant(value: float) -> ScheduleSpec:
    """A constant schedule."""
    return ScheduleSpec(start_val=value)


def scaled_number(value: Any, scale: Callable[[float], float]) -> Any:
    """A number, or both ends of a schedule, as JSON data, through `scale`."""
    if not isinstance(value, Mapping):
        return scale(value)
    ends = {
        key: scale(value[key])
        for key in ("start_val", "end_val")
        if value.get(key) is not None
    }
    return {**value, **ends}


def _both_values(
    allowed: Callable[[float], bool], message: str
) -> Callable[[ScheduleSpec], ScheduleSpec]:
    def check(schedule: ScheduleSpec) -> ScheduleSpec:
        values = {"start_val": schedule.start_val, "end_val": schedule.end_val}
        raise_errors(
            error_line((key,), message, value)
            for key, value in values.items()
            if value is not None and not allowed(value)
        )
        return schedule

    return check


NUMBER = BeforeValidator(
    lambda value: (
        value if isinstance(value, Mapping | BaseModel) else {"start_val": value}
    )
)
"""A plain number is a constant schedule."""


@final
class _OrNumber:
    """The JSON Schema of a schedule or a number."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "number"}]}


NonNegative: TypeAlias = Annotated[
    ScheduleSpec,
    AfterValidator(_both_values(lambda value: value >= 0, "must be >= 0")),
    NUMBER,
    _OrNumber(),
]
"""A schedule of values >= 0."""

Fraction: TypeAlias = Annotated[
    ScheduleSpec,
    AfterValidator(_both_values(lambda value: 0 <= value <= 1, "must be in [0, 1]")),
    NUMBER,
    _OrNumber(),
]
"""A schedule of values between 0 and 1."""

Coefficient: TypeAlias = Annotated[
    NonNegative,
    BeforeValidator(lambda value: 0.0 if value is None else value),
]
"""The weight of a loss term, >= 0; null leaves the term out."""


@final
class MayChange:
    """Marks the number of a key that may be a schedule instead."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        number = handler(schema)
        schedule = handler(ScheduleSpec.__pydantic_core_schema__)
        return {"anyOf": [*number.get("anyOf", [number]), schedule]}


MAY_CHANGE = MayChange()


class ChangingBlock(Block):
    """A block whose marked numbers may be schedules. Such a key holds its value at the
    start of the run; `schedules` holds the schedule. Both ends of a schedule keep the
    limits of the number."""

    _schedules: dict[str, ScheduleSpec] = PrivateAttr(default_factory=dict)

    @property
    def schedules(self) -> Mapping[str, ScheduleSpec]:
        """The schedules by key."""
        return self._schedules

    def greatest(self, key: str) -> float:
        """The greatest number that a changing key ever has."""
        numbers = [dict(self)[key]]
        schedule = self._schedules.get(key)
        if schedule is not None and schedule.end_val is not None:
            numbers.append(schedule.end_val)
        return float(max(numbers))

    @classmethod
    def changing_keys(cls) -> list[str]:
        """The keys that may be schedules."""
        return [
            key
            for key, field in cls.model_fields.items()
            if MAY_CHANGE in field.metadata
        ]

    @override
    def changed(self, key: str) -> Iterator[str]:
        if key in self._schedules:
            yield key
        else:
            yield from super().changed(key)

    def schedule_data(self) -> dict[str, Any]:
        """The schedules by key, as JSON data."""
        return {
            key: schedule.model_dump(mode="json")
            for key, schedule in self._schedules.items()
        }

    def with_numbers(self, numbers: Mapping[str, float]) -> Self:
        """The block with these values of changing keys."""
        return self.model_copy(update=dict(numbers))

    @model_validator(mode="wrap")
    @classmethod
    def _gather_schedules(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        blocks = {
            key: data[key]
            for key in cls.changing_keys()
            if isinstance(data.get(key), Mapping)
        }
        schedules: dict[str, ScheduleSpec] = {}
        wrong: list[InitErrorDetails] = []
        for key, block in blocks.items():
            try:
                schedules[key] = ScheduleSpec.model_validate(block)
            except ValidationError as error:
                wrong += lines_of(error, key)
        changing = {key: blocks[key] for key in schedules}
        ends = _values_at("end_val", changing)
        if ends:
            try:
                handler({**data, **_values_at("start_val", blocks), **ends})
            except ValidationError as error:
                wrong += _lines_at("end_val", ends, error)
        try:
            valid = handler({**data, **_values_at("start_val", blocks)})
        except ValidationError as error:
            wrong += _lines_at("start_val", changing, error)
            wrong += cls._other_lines(blocks, error)
        raise_errors(wrong)
        valid._schedules = schedules
        return valid

    @classmethod
    def _other_lines(
        cls, schedules: Container[object], error: ValidationError
    ) -> Iterator[InitErrorDetails]:
        """The lines about other keys. Of a schedule that may be none they say where one
        may be."""
        for details in error.errors(include_url=False):
            loc = details["loc"]
            if len(loc) == 1 and loc[0] in schedules:
                continue
            message = details["msg"]
            value = given_value(details)
            if len(loc) == 1 and is_schedule(value) and cls.changing_keys():
                keys = ", ".join(cls.changing_keys())
                message = f"{message}; only these may change over the run: {keys}"
            yield error_line(loc, message, value)

    @model_serializer(mode="wrap")
    def _with_schedules(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**handler(self), **self.schedule_data()}


def _values_at(end: str, schedules: Mapping[str, Any]) -> dict[str, Any]:
    """The values of schedules at one end, as far as they have it."""
    return {
        key: schedule[end]
        for key, schedule in schedules.items()
        if schedule.get(end) is not None
    }


def _lines_at(
    end: str, schedules: Container[object], error: ValidationError
) -> Iterator[InitErrorDetails]:
    """The lines about values of schedules, at the key of this end."""
    for details in error.errors(include_url=False):
        loc = details["loc"]
        if len(loc) == 1 and loc[0] in schedules:
            yield error_line((loc[0], end), details["msg"], given_value(details))
