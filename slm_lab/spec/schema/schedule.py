"""Values that change over the run: exploration, entropy weight, clipping range."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, error_line, raise_errors
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


def constant(value: float) -> ScheduleSpec:
    """A constant schedule."""
    return ScheduleSpec(start_val=value)


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


NonNegative: TypeAlias = Annotated[
    ScheduleSpec, AfterValidator(_both_values(lambda value: value >= 0, "must be >= 0"))
]
"""A schedule of values >= 0."""

Fraction: TypeAlias = Annotated[
    ScheduleSpec,
    AfterValidator(_both_values(lambda value: 0 <= value <= 1, "must be in [0, 1]")),
]
"""A schedule of values between 0 and 1."""


Constant: TypeAlias = Annotated[
    NonNegative,
    BeforeValidator(
        lambda value: (
            value if isinstance(value, Mapping | BaseModel) else {"start_val": value}
        )
    ),
]
"""A number >= 0, or a schedule of such."""

Coefficient: TypeAlias = Annotated[
    NonNegative,
    BeforeValidator(lambda value: {"start_val": 0.0} if value is None else value),
]
"""The weight of a loss term, >= 0; null leaves the term out."""
