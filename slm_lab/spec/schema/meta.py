"""`meta`: how often, on what, and how parallel the spec is run."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    create_model,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from slm_lab.spec.modes import MODES, Mode, mode_of
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, missing_key_error, spec_error
from slm_lab.spec.schema.fields import Distributed, Int, SpecOrRatio
from slm_lab.spec.schema.messages import not_among, show
from slm_lab.spec.schema.scheduler import SchedulerSpec

CorrectionName: TypeAlias = Literal["none", "vtrace"]


class CorrectionSpec(Block):
    """What is done about unrolls that an older policy than the learner's has played."""

    name: CorrectionName = Field(
        description="none: they are taken as fresh; vtrace: weights that are cut off (V-trace, "
        "arXiv:1802.01561)"
    )
    rho_bar: float = Field(1.0, gt=0, description="ρ̄, bounds the weight of a temporal difference")
    c_bar: float = Field(1.0, gt=0, description="c̄, bounds how far a difference reaches back")


def _word_as_correction(value: Any) -> Any:
    words = get_args(CorrectionName)
    if isinstance(value, str):
        if value not in words:
            raise spec_error(not_among(value, words))
        return {"name": value}
    if not isinstance(value, Mapping | BaseModel):
        raise spec_error(f"must be {', '.join(show(word) for word in words)} or a block {{…}}")
    if isinstance(value, Mapping) and "name" not in value:
        raise missing_key_error("name", "is missing: the correction, none or vtrace", value)
    return value


Correction: TypeAlias = Annotated[
    CorrectionSpec,
    BeforeValidator(_word_as_correction, json_schema_input_type=CorrectionName | CorrectionSpec),
]
"""A correction by its name, or a block of the name and its bounds."""


class ActorLearnerSpec(Block):
    """How actors and the learner work together (`distributed: "actor_learner"`). An unroll is what
    an actor hands over at once, a number of steps of each of its environments."""

    unroll_length: Annotated[Int | None, bounds.ROLLOUT] = Field(
        None,
        ge=1,
        description="steps of each environment that an actor hands over at once; null: the rollout "
        "of the algorithm, or 8 where it replays",
    )
    learn_queue: Annotated[Int, bounds.UNROLLS] = Field(
        1,
        ge=1,
        description="unrolls that one training event of an on-policy algorithm learns from",
    )
    queue_size: Annotated[Int, bounds.UNROLLS] = Field(
        1,
        ge=1,
        description="unrolls of one actor that may wait for the learner, or lie with it, while the "
        "actor goes on; it pauses when there are more",
    )
    correction: Correction = Field(
        CorrectionSpec(name="none"),
        description="correction of unrolls of an older policy: none or vtrace, or a block",
    )
    publish_frequency: Annotated[Int, bounds.FRAMES] = Field(
        1,
        ge=1,
        description="least training events between two publications of the weights",
    )
    inference: Literal["local", "learner"] = Field(
        "local", description="who computes actions: each actor, or the learner for all of them"
    )
    train_ratio: SpecOrRatio = Field(
        "spec",
        description="gradient steps per frame of an algorithm that replays: a number > 0 and "
        "<= 1000; spec: what its own keys ask for; null: as many as the learner can make",
    )
    serial: bool = Field(
        False,
        description="actors and learner take turns in one process, for debugging and tests",
    )


class ConfirmSpec(Block):
    """The best specs of a search, run again with fresh seeds."""

    top: Annotated[Int, bounds.CONFIRMED] = Field(ge=1, description="how many specs")
    max_session: Annotated[Int, bounds.SESSIONS] = Field(ge=1, description="seeds of each")


class SearchResourcesSpec(Block):
    """What one trial of a search occupies while it runs."""

    cpu: float = Field(
        1.0,
        gt=0,
        description="CPU cores, may be a fraction; 1: one for each process of it that trains",
    )
    gpu: float = Field(0.0, ge=0, description="GPUs: a fraction of one, or a whole number")

    @field_validator("gpu")
    @classmethod
    def _whole_or_a_share(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise spec_error("must be a whole number, or <= 1")
        return value


class MetaSpec(Block):
    """How a spec is run: processes, seeds, rows, checkpoints, and the way of parallel training."""

    LEGACY: ClassVar[Mapping[str, str]] = {
        "num_gpus": "the GPU is chosen by agent.net.gpu",
        "num_cpus": "processes are chosen by max_session and threads",
        "param_spec_process": "spec_params are not run in parallel; use -s var=value",
    }

    distributed: Distributed = Field(
        False,
        description="what the Sessions do together: nothing (independent seeds), Hogwild! with "
        "shared or synced weights, averaged gradients, or acting for one learner",
    )
    max_session: Annotated[Int, bounds.SESSIONS] = Field(
        1,
        ge=1,
        description="Sessions of a Trial: seeds, or workers of one distributed training; of "
        "actor_learner the actors, and the learner is one process more",
    )
    max_trial: Annotated[Int, bounds.TRIALS] = Field(
        1, ge=1, description="trials of a search; more where a grid has more points"
    )
    log_frequency: Annotated[Int | None, bounds.FRAMES] = Field(
        None,
        ge=1,
        description="frames between rows, per Session; null: a 200th of a Session's share of the "
        "budget, written down at the start",
    )
    eval_frequency: Annotated[Int, bounds.FRAMES] = Field(
        10_000, ge=1, description="frames between evaluations, per Session"
    )
    rigorous_eval: Annotated[Int, bounds.ENVS] = Field(
        0, ge=0, description="evaluation environments; 0: the training returns stand in"
    )
    random_seed: Annotated[Int, bounds.SEED] | None = Field(
        None, ge=0, description="root seed of everything; null: drawn, and written down"
    )
    save_interval: float = Field(
        10.0,
        ge=0,
        description="least seconds between checkpoints; 0: one at every row, of Hogwild! workers "
        "one a second",
    )
    threads: Annotated[Int, bounds.THREADS] = Field(
        1, ge=1, description="torch threads per process"
    )
    stop_return: float | None = Field(None, description="end the run once recent_return reaches it")
    max_run: Annotated[Int, bounds.RUNS] = Field(
        1, ge=1, description="independent seeds of a distributed training, one after another"
    )
    max_restart: Int = Field(
        3,
        ge=0,
        description="restarts of each worker or actor that dies, or of all ranks; retries of a "
        "failed trial",
    )
    scale: Literal["linear", "strong", "weak"] = Field(
        "linear", description="all_reduce: how totals are divided among the ranks"
    )
    scale_lr: bool = Field(
        True,
        description="all_reduce: scale learning rates with the ranks, and how fast targets follow",
    )
    actor_learner: ActorLearnerSpec = Field(
        ActorLearnerSpec(), description="settings of the mode of that name"
    )
    cluster: str | None = Field(None, description='Ray address, or "auto"; null: this machine')
    record_video: Annotated[Int | None, bounds.FRAMES] = Field(
        None, ge=1, description="frames between recorded evaluation episodes; null: none"
    )
    search_alg: Literal["random", "optuna", "hyperopt"] = Field(
        "random", description="what proposes the specs of a search"
    )
    confirm: ConfirmSpec | None = Field(
        None, description="re-run the best specs of a search with fresh seeds"
    )
    search_resources: SearchResourcesSpec = Field(
        SearchResourcesSpec(), description="what one trial occupies"
    )
    search_scheduler: SchedulerSpec | None = Field(
        None,
        description="which trials of a search are stopped early: arguments of ASHA, or `name` and "
        "arguments of another scheduler",
    )

    @property
    def mode(self) -> Mode:
        """The facts about the mode that `distributed` names."""
        return mode_of(self.distributed)

    def share_of(self, max_frame: int) -> int:
        """The frames of a budget that each Session counts: workers and ranks share them, a learner
        counts what all its actors play."""
        return max_frame // self.max_session if self.mode.shares_budget else max_frame

    @property
    def sessions_per_training(self) -> int:
        """Of independent seeds each is a training; the learner is one more than its actors, unless
        they take turns with it in one process."""
        if self.distributed is False:
            return 1
        if self.mode.has_learner:
            return 1 if self.actor_learner.serial else 1 + self.max_session
        return self.max_session

    @property
    def num_sessions(self) -> int:
        """Of one Trial."""
        trainings = self.max_session if self.distributed is False else 1
        return trainings * self.sessions_per_training * self.max_run

    @property
    def trainings(self) -> list[range]:
        """The Sessions of one Trial by the trainings that they are part of; of a learner and its
        actors the learner is the first."""
        size = self.sessions_per_training
        return [range(first, first + size) for first in range(0, self.num_sessions, size)]

    @property
    def writers(self) -> list[int]:
        """The Sessions that write rows: of those with one agent in common, ranks or actors and
        their learner, the first."""
        if self.mode.one_agent:
            return [sessions[0] for sessions in self.trainings]
        return list(range(self.num_sessions))

    @property
    def writers_per_training(self) -> int:
        """Of the Sessions that train one agent."""
        return len(self.writers) // len(self.trainings)

    def is_first_of_training(self, session: int) -> bool:
        """Whether a Session trains alone, or is the first of those that train together."""
        return session % self.sessions_per_training == 0

    def is_actor(self, session: int) -> bool:
        """Whether a Session only acts, for the learner that is the first of its training."""
        return self.mode.has_learner and not self.is_first_of_training(session)


class _ExtendedMetaSpec(MetaSpec):
    """With blocks of modes from packages. Its class is made at run time, so it pickles as data."""

    BLOCKS: ClassVar[tuple[tuple[str, type[Block]], ...]] = ()

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.BLOCKS, self.model_dump(mode="json", exclude_unset=True))


def _unpickled(blocks: tuple[tuple[str, type[Block]], ...], data: dict[str, Any]) -> MetaSpec:
    return _extended(blocks).model_validate(data)


@cache
def _extended(blocks: tuple[tuple[str, type[Block]], ...]) -> type[MetaSpec]:
    about = "settings of the mode of that name"
    fields: dict[str, Any] = {
        word: (model, Field(model(), description=about)) for word, model in blocks
    }
    extended = create_model("MetaSpec", __base__=_ExtendedMetaSpec, **fields)
    extended.BLOCKS = blocks
    return extended


def meta_model() -> type[MetaSpec]:
    """`MetaSpec`, with a block for each mode of a package that has keys of its own."""
    entries = ((word, MODES.get(word)) for word in MODES.names())
    blocks = tuple(
        (word, entry.params)
        for word, entry in entries
        if entry is not None and entry.params is not None
    )
    return _extended(blocks) if blocks else MetaSpec


class MetaBlock:
    """The type of the block `meta`: a `MetaSpec` as `meta_model` makes it."""

    def validate(self, value: Any) -> MetaSpec:
        """The block as its model."""
        return value if isinstance(value, MetaSpec) else meta_model().model_validate(value)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda block: block.model_dump(mode="json")
            ),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        model = meta_model()
        return model.__get_pydantic_json_schema__(model.__pydantic_core_schema__, handler)


META = MetaBlock()
