"""`meta.search_scheduler`: stops trials of a search early, or changes them while they
run."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from slm_lab.spec.schema.block import Block, key_error, spec_error
from slm_lab.spec.schema.fields import AnyList, Count, FramesOrFraction
from slm_lab.spec.schema.messages import unknown_name
from slm_lab.spec.schema.rules import Limit

WITHIN_BUDGET = Limit(
    sign="<=", of="env.max_frame", text=', or a share of it, as "10%"'
)


class HalvingSpec(Block):
    """The common keys of schedulers that stop trials at frames grace_period · r^k."""

    COUNTS_ALL_TRIALS: ClassVar[bool] = False
    """Whether it needs all trials before the first ends."""

    name: str
    grace_period: Annotated[
        FramesOrFraction | None,
        WITHIN_BUDGET,
        Limit(sign="<=", of="max_t", when="meta.search_scheduler"),
    ] = Field(
        None,
        gt=0,
        description="frames before which no trial is stopped; null: max_t / "
        "reduction_factor²",
    )
    reduction_factor: float = Field(gt=1, description="r; of r trials one continues")
    max_t: Annotated[FramesOrFraction | None, WITHIN_BUDGET] = Field(
        None,
        gt=0,
        description="frames at which all trials are stopped; null: env.max_frame",
    )


class AshaSpec(HalvingSpec):
    """Asynchronous successive halving (arXiv:1810.05934). Trials are compared at frames
    grace_period · r^k. The best 1 / r of those that have reached that frame
    continue."""

    name: Literal["asha"] = Field("asha", description="scheduler")
    reduction_factor: float = Field(
        4.0, gt=1, description="r; of r trials one continues"
    )
    brackets: Count = Field(
        1, description="groups of trials; each group starts halving a factor r later"
    )
    stop_last_trials: bool = Field(
        True, description="whether a trial that reaches max_t is ended"
    )


class HyperBandSpec(HalvingSpec):
    """HyperBand (arXiv:1603.06560). Trials pause at frames grace_period · r^k until all
    trials of their group arrive; the best 1 / r of them continue."""

    COUNTS_ALL_TRIALS = True

    name: Literal["hyperband"] = Field("hyperband", description="scheduler")
    reduction_factor: float = Field(
        3.0, gt=1, description="r; of r trials one continues"
    )


class MedianStoppingSpec(Block):
    """The median stopping rule (Golovin et al. 2017). It stops a trial whose best score
    is below the median of other trials' average scores up to its frame."""

    COUNTS_ALL_TRIALS: ClassVar[bool] = False

    name: Literal["median_stopping"] = Field("median_stopping", description="scheduler")
    grace_period: Annotated[FramesOrFraction | None, WITHIN_BUDGET] = Field(
        None,
        gt=0,
        description="frames before which no trial is stopped; null: max_frame / 10",
    )
    min_samples_required: Count = Field(
        3, description="fewest other trials for a median"
    )


class PbtSpec(Block):
    """Population based training (arXiv:1711.09846). At intervals the worst trials copy
    the weights and searched keys of one of the best, and perturb the keys."""

    COUNTS_ALL_TRIALS: ClassVar[bool] = True

    name: Literal["pbt"] = Field("pbt", description="scheduler")
    perturbation_interval: Annotated[FramesOrFraction | None, WITHIN_BUDGET] = Field(
        None,
        gt=0,
        description="frames between two perturbations of a trial, several "
        "log_frequency; null: max_frame / 10",
    )
    burn_in_period: Annotated[FramesOrFraction, WITHIN_BUDGET] = Field(
        0.0,
        ge=0,
        description="frames before the first perturbation, if more than "
        "perturbation_interval",
    )
    quantile_fraction: float = Field(
        0.25, gt=0, le=0.5, description="share of trials that copy, and that are copied"
    )
    resample_probability: float = Field(
        0.25,
        ge=0,
        le=1,
        description="probability that a key is resampled instead of perturbed",
    )
    perturbation_factors: AnyList = Field(
        (1.2, 0.8), description="factors of a perturbation"
    )

    @field_validator("perturbation_factors")
    @classmethod
    def _two_factors(cls, value: tuple[Any, ...]) -> tuple[float, ...]:
        numbers = [
            f for f in value if isinstance(f, int | float) and not isinstance(f, bool)
        ]
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
"""The names of Ray Tune's classes, as aliases."""


def _by_name(value: Any) -> Any:
    """The block of the named scheduler; without a name, ASHA."""
    if value is None or isinstance(value, BaseModel):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise spec_error(f"must be a block {{…}} or one of {', '.join(MODELS)}")
    word = value.get("name", "asha")
    name = _CLASSES.get(str(word), str(word))
    if name not in MODELS:
        raise key_error(
            "name", unknown_name("scheduler", str(word), list(MODELS)), word
        )
    return MODELS[name].model_validate({**value, "name": name})


SchedulerSpec: TypeAlias = Annotated[
    SchedulerBlock,
    BeforeValidator(_by_name, json_schema_input_type=str | SchedulerBlock),
]
"""The name of a scheduler, or a block of its arguments."""
