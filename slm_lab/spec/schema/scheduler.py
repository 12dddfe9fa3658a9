"""`meta.search_scheduler`: which trials of a search end early, or change while they run."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from slm_lab.spec.schema.block import Block, error_line, spec_error, spec_errors
from slm_lab.spec.schema.fields import AnyList, Int
from slm_lab.spec.schema.messages import unknown_name


class AshaSpec(Block):
    """Asynchronous successive halving (arXiv:1810.05934): at frames grace_period · r^k a trial goes
    on if it is among the best 1 / r of those that have come so far."""

    name: Literal["asha"] = Field("asha", description="which scheduler")
    grace_period: float | None = Field(
        None,
        gt=0,
        description="frames before which no trial is stopped; null: max_t / reduction_factor²",
    )
    reduction_factor: float = Field(4.0, gt=1, description="r; of r trials one goes on")
    max_t: float | None = Field(
        None, gt=0, description="frames at which all are stopped; null: env.max_frame"
    )
    brackets: Int = Field(
        1, ge=1, description="groups of trials, of which each begins to halve later by a factor r"
    )
    stop_last_trials: bool = Field(True, description="whether a trial that reaches max_t is ended")


class HyperBandSpec(Block):
    """HyperBand (arXiv:1603.06560): trials pause at frames grace_period · r^k until those that they
    began with are there as well; the best 1 / r of them go on."""

    name: Literal["hyperband"] = Field("hyperband", description="which scheduler")
    grace_period: float | None = Field(
        None,
        gt=0,
        description="frames before which no trial is stopped; null: max_t / reduction_factor²",
    )
    reduction_factor: float = Field(3.0, gt=1, description="r; of r trials one goes on")
    max_t: float | None = Field(
        None, gt=0, description="frames at which all are stopped; null: env.max_frame"
    )


class MedianStoppingSpec(Block):
    """The median stopping rule (Golovin et al. 2017): a trial ends whose best score is below the
    median of what the others have averaged up to its frame."""

    name: Literal["median_stopping"] = Field("median_stopping", description="which scheduler")
    grace_period: float | None = Field(
        None, gt=0, description="frames before which no trial is stopped; null: max_frame / 10"
    )
    min_samples_required: Int = Field(3, ge=1, description="other trials that a median is made of")


class PbtSpec(Block):
    """Population based training (arXiv:1711.09846): from time to time the worst trials take over
    the weights of one of the best, and its searched keys, changed a little."""

    name: Literal["pbt"] = Field("pbt", description="which scheduler")
    perturbation_interval: float | None = Field(
        None,
        gt=0,
        description="frames between two looks at a trial, several log_frequency; "
        "null: max_frame / 10",
    )
    burn_in_period: float = Field(
        0.0,
        ge=0,
        description="frames before the first look, if more than perturbation_interval",
    )
    quantile_fraction: float = Field(
        0.25, gt=0, le=0.5, description="the share of trials that take over, and are taken from"
    )
    resample_probability: float = Field(
        0.25, ge=0, le=1, description="how often a key is drawn anew, not changed a little"
    )
    perturbation_factors: AnyList = Field(
        (1.2, 0.8), description="the factors by which a number is changed"
    )

    @field_validator("perturbation_factors")
    @classmethod
    def _two_factors(cls, value: tuple[Any, ...]) -> tuple[float, ...]:
        numbers = [f for f in value if isinstance(f, int | float) and not isinstance(f, bool)]
        if not value or len(numbers) < len(value) or min(numbers) <= 0:
            raise spec_error("must be a list of numbers > 0")
        return tuple(float(f) for f in numbers)


SchedulerBlock: TypeAlias = AshaSpec | HyperBandSpec | MedianStoppingSpec | PbtSpec

MODELS: dict[str, type[SchedulerBlock]] = {
    "asha": AshaSpec,
    "hyperband": HyperBandSpec,
    "median_stopping": MedianStoppingSpec,
    "pbt": PbtSpec,
}
_CLASSES = {
    "ASHAScheduler": "asha",
    "AsyncHyperBandScheduler": "asha",
    "HyperBandScheduler": "hyperband",
    "MedianStoppingRule": "median_stopping",
    "PopulationBasedTraining": "pbt",
}
"""The names of Ray Tune's classes mean the same."""


def _by_name(value: Any) -> Any:
    """The block of the scheduler that is named; ASHA where none is."""
    if value is None or isinstance(value, BaseModel):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise spec_error(f"must be a block {{…}} or one of {', '.join(MODELS)}")
    given = value.get("name", "asha")
    name = _CLASSES.get(given, given) if isinstance(given, str) else given
    if name not in MODELS:
        wrong = unknown_name("scheduler", str(given), list(MODELS))
        raise spec_errors("search_scheduler", [error_line(("name",), wrong, given)])
    return MODELS[name].model_validate({**value, "name": name})


SchedulerSpec: TypeAlias = Annotated[
    SchedulerBlock,
    BeforeValidator(_by_name, json_schema_input_type=str | SchedulerBlock),
]
"""A scheduler by its name, or the block of its arguments."""
