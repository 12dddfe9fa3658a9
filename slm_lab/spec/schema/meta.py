"""`meta`: Sessions, seeds, rows, devices, and the mode of parallel training."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import InitErrorDetails
from typing_extensions import override

from slm_lab.spec.modes import MODES, Mode, mode_of
from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import (
    Block,
    error_line,
    lines_of,
    missing_key_error,
    spec_error,
    with_further_errors,
)
from slm_lab.spec.schema.fields import (
    Count,
    CountOrFrames,
    Distributed,
    Int,
    SecondsList,
    SecondsOfNetworks,
    SpecOrRatio,
)
from slm_lab.spec.schema.messages import choice_message, show, unknown_name
from slm_lab.spec.schema.rules import NoEffect, Refused
from slm_lab.spec.schema.scheduler import SchedulerSpec

ACTORS = "meta.actor_learner"
"""The path of the settings of modes with actors and a learner."""

CorrectionName: TypeAlias = Literal["none", "vtrace"]

OF_NO_CORRECTION = NoEffect(
    'bounds a correction, but that is "none"',
    when="meta.mode.has_learner",
    unless="meta.actor_learner.correction.corrects",
)
IN_TURN = NoEffect(
    "with serial, actors and learner take turns in one process",
    when=("meta.mode.has_learner", "serial"),
)
BETWEEN_RANKS = NoEffect(
    "divides a spec among the ranks of {blocks.modes_with_ranks}",
    unless="meta.mode.has_ranks",
)


class CorrectionSpec(Block):
    """The correction of unrolls whose policy is older than the learner's."""

    name: CorrectionName = Field(
        description="none: unrolls count as fresh; vtrace: truncated importance "
        "weights (arXiv:1802.01561)"
    )
    rho_bar: Annotated[float, OF_NO_CORRECTION] = Field(
        1.0, gt=0, description="ρ̄, bound of the weight of a temporal difference"
    )
    c_bar: Annotated[float, OF_NO_CORRECTION] = Field(
        1.0, gt=0, description="c̄, bound of how far a difference reaches back"
    )

    @property
    def corrects(self) -> bool:
        """Whether unrolls are corrected."""
        return self.name != "none"


def _word_as_correction(value: Any) -> Any:
    words = get_args(CorrectionName)
    if isinstance(value, str):
        if value not in words:
            raise spec_error(choice_message(value, words))
        return {"name": value}
    if not isinstance(value, Mapping | BaseModel):
        raise spec_error(
            f"must be {', '.join(show(word) for word in words)} or a block {{…}}"
        )
    if isinstance(value, Mapping) and "name" not in value:
        raise missing_key_error(
            "name", "is missing: the correction, none or vtrace", value
        )
    return value


Correction: TypeAlias = Annotated[
    CorrectionSpec,
    BeforeValidator(
        _word_as_correction, json_schema_input_type=CorrectionName | CorrectionSpec
    ),
]
"""The name of a correction, or a block of its name and bounds."""


class ActorLearnerSpec(Block):
    """Settings of `distributed: "actor_learner"`. An unroll is the block of steps that
    an actor sends at once: `unroll_length` steps of each of its environments."""

    unroll_length: Annotated[Count | None, bounds.ROLLOUT] = Field(
        None,
        description="steps of each environment in one unroll; null: the algorithm's "
        "rollout, or 8 for replay algorithms",
    )
    learn_queue: Annotated[
        Count,
        bounds.UNROLLS,
        NoEffect(
            "{algorithm.name} stores every unroll in its replay memory",
            when=("meta.mode.has_learner", "algorithm.replays"),
        ),
    ] = Field(1, description="unrolls per training event of an on-policy algorithm")
    queue_size: Annotated[Count, bounds.UNROLLS, IN_TURN] = Field(
        1,
        description="unrolls of one actor that the learner has not finished; the "
        "actor pauses when there are more",
    )
    correction: Correction = Field(
        CorrectionSpec(name="none"),
        description="correction of unrolls of an older policy: none, vtrace, or a "
        "block",
    )
    publish_frequency: Annotated[Count, bounds.FRAMES] = Field(
        1,
        description="minimum number of training events between two publications of "
        "the weights",
    )
    inference: Annotated[
        Literal["local", "learner"],
        Refused(
            "computes actions from observations alone, and the state of a "
            '{blocks.recurrent_type} stays with each actor; use "local"',
            when=("blocks.has_actors", "blocks.is_recurrent"),
            unless="serial",
        ),
        Refused(
            "makes each step wait for the learner, which is too slow from a node of "
            'meta.cluster; use "local"',
            when=("blocks.has_actors", "meta.cluster"),
            unless="serial",
        ),
        Refused(
            'has no costs in virtual time (meta.simulate); use "local"',
            when=("blocks.has_actors", "meta.simulate"),
            unless="serial",
        ),
        IN_TURN,
    ] = Field(
        "local",
        description="where actions are computed: in each actor, or in the learner for "
        "all actors",
    )
    train_ratio: Annotated[
        SpecOrRatio,
        NoEffect(
            "{algorithm.name} learns from every unroll once, and replays nothing",
            when="meta.mode.has_learner",
            unless="algorithm.replays",
        ),
    ] = Field(
        "spec",
        description="gradient steps per frame of a replay algorithm: a number > 0 and "
        "<= 1000; spec: as its own keys say; null: as many as the learner can make",
    )
    serial: Annotated[
        bool,
        Refused(
            "makes the actors take turns with the learner in one process, which needs "
            "no nodes of meta.cluster; remove one of the two",
            when=("blocks.has_actors", "meta.cluster"),
        ),
        Refused(
            "makes actors take turns; in virtual time (meta.simulate) they do not; "
            "remove one of the two",
            when=("blocks.has_actors", "meta.simulate"),
        ),
    ] = Field(
        False,
        description="run actors and learner in turn in one process, for debugging and "
        "tests",
    )


class ConfirmSpec(Block):
    """Repeats the best specs of a search with fresh seeds."""

    top: Annotated[Count, bounds.CONFIRMED] = Field(description="number of specs")
    max_session: Annotated[Count, bounds.SESSIONS] = Field(description="seeds per spec")


class SearchResourcesSpec(Block):
    """The resources of one trial of a search."""

    cpu: float = Field(
        1.0,
        gt=0,
        description="CPU cores, may be a fraction; 1: one per training process of the "
        "trial",
    )
    gpu: float = Field(
        0.0, ge=0, description="GPUs: a fraction up to 1, or a whole number"
    )

    @field_validator("gpu")
    @classmethod
    def _whole_or_a_share(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise spec_error("must be a whole number, or <= 1")
        return value


class CostsSpec(Block):
    """What the work of one worker takes, in seconds. One value of a kind is drawn each
    time; all are equally likely."""

    acting: SecondsList | None = Field(
        None, description="the choice of an action in all environments of a worker"
    )
    environment: SecondsList | None = Field(
        None, description="a step of all these environments"
    )
    memory: SecondsList | None = Field(None, description="the storage of this step")
    gradient: SecondsOfNetworks = Field(
        None,
        description="the work up to the gradient of one optimizer step; also an object "
        "with the seconds of each network, such as critic",
    )
    step: SecondsOfNetworks = Field(
        None,
        description="an optimizer step, with what Hogwild! workers exchange in it; "
        "also for each network",
    )
    update: SecondsList | None = Field(
        None,
        description="the rest of a training event; where steps are not told apart, "
        "all of it",
    )
    receive: SecondsList | None = Field(
        None,
        description="what a learner does with an unroll before it learns; with a "
        "replay memory, with one step of it",
    )
    publish: SecondsList | None = Field(
        None, description="a copy of the learner's weights for its actors"
    )
    exchange: SecondsList | None = Field(
        None, description="a message of each rank to all, without waiting for them"
    )
    exchanged_float: SecondsList | None = Field(
        None, description="what an exchange takes more for each number of each rank"
    )

    @model_validator(mode="after")
    def _has_costs(self) -> Self:
        if not any(getattr(self, kind) for kind in type(self).model_fields):
            raise spec_error(
                "must have the seconds of at least one kind of work; without costs "
                "they are measured"
            )
        return self


class SimulateSpec(Block):
    """Workers that run one at a time, in virtual time. The times are as if each worker
    had a core of its own, on a machine that has fewer."""

    costs: CostsSpec | None = Field(
        None,
        description="null: measured when the run begins, and recorded",
    )
    contention: float = Field(
        0.0,
        ge=0,
        description="share by which each further worker slows all others down, as by "
        "the memory that they share",
    )


def _as_simulation(value: Any) -> Any:
    """The block that a value stands for; true is a block of defaults."""
    if value is True:
        return {}
    if value is False:
        return None
    return value


class MetaSpec(Block):
    """How a spec is run: processes, seeds, rows, checkpoints, and the mode of parallel
    training."""

    model_config = ConfigDict(extra="allow")

    LEGACY: ClassVar[Mapping[str, str]] = {
        "num_gpus": "the GPU is chosen by agent.net.gpu",
        "num_cpus": "processes are chosen by max_session and threads",
        "param_spec_process": "spec_params are not run in parallel; use -s var=value",
        "search": "search_alg chooses the searcher",
        "max_generation": "no searcher has generations",
        "resources": "processes are chosen by max_session and threads, those of a "
        "trial by search_resources",
        "max_tick_unit": "the budget env.max_frame counts frames",
    }

    distributed: Distributed = Field(
        False,
        description="mode of parallel training: none (independent seeds), Hogwild! "
        "with shared or synced weights, all-reduced gradients, or actors and a learner",
    )
    max_session: Annotated[Count, bounds.SESSIONS] = Field(
        1,
        description="Sessions of a Trial: seeds, or workers of one distributed "
        "training; with actor_learner the number of actors, without the learner",
    )
    max_trial: Annotated[Count, bounds.TRIALS] = Field(
        1, description="trials of a search; more if a grid has more points"
    )
    log_frequency: Annotated[Count | None, bounds.FRAMES] = Field(
        None,
        description="frames between rows, per Session; null: 1/200 of a Session's "
        "share of the budget, recorded at the start",
    )
    eval_frequency: Annotated[Count, bounds.FRAMES] = Field(
        10_000, description="frames between evaluations, per Session"
    )
    rigorous_eval: Annotated[Int, bounds.ENVS] = Field(
        0,
        ge=0,
        description="evaluation environments; 0: no evaluation, training returns are "
        "used",
    )
    random_seed: Annotated[Int | None, bounds.SEED] = Field(
        None,
        ge=0,
        description="root seed of all random numbers; null: drawn at the start and "
        "recorded",
    )
    save_interval: float = Field(
        10.0,
        ge=0,
        description="minimum seconds between checkpoints; 0: one at every row "
        "(Hogwild!: one per second)",
    )
    keep_checkpoints: Annotated[
        CountOrFrames,
        Refused(
            "is for runs on this machine; nodes of a cluster send back only their "
            "newest checkpoints",
            when="meta.cluster",
        ),
    ] = Field(
        0,
        description="checkpoints that are kept for forks: a number, evenly over the "
        "budget, or a list of frames of the whole training",
    )
    threads: Annotated[Count, bounds.THREADS] = Field(
        1, description="torch threads per process"
    )
    stop_return: float | None = Field(
        None, description="recent_return at which the run ends"
    )
    max_run: Annotated[
        Count,
        bounds.RUNS,
        Refused(
            "repeats a distributed training; with distributed false set max_session "
            "instead",
            unless="meta.distributed",
        ),
    ] = Field(
        1, description="independent seeds of a distributed training, run sequentially"
    )
    max_restart: Int = Field(
        3,
        ge=0,
        description="restarts per failed worker or actor, or of all ranks; retries "
        "per failed trial",
    )
    step_seconds: float = Field(
        300.0,
        gt=0,
        description="how long a step of the environment may take; after that the "
        "Session hangs: it is ended, or replaced as one that died",
    )
    reset_seconds: float | None = Field(
        None,
        gt=0,
        description="the same of a reset, and of making an environment; null: any time",
    )
    scale: Annotated[Literal["linear", "strong", "weak"], BETWEEN_RANKS] = Field(
        "linear",
        description="modes with ranks: how the spec's totals are divided among ranks",
    )
    scale_lr: Annotated[
        Literal[True, False, "sqrt"],
        BETWEEN_RANKS,
        NoEffect(
            'scale "strong" leaves the learning rate as it is',
            when="meta.scales_strongly",
        ),
    ] = Field(
        True,
        description="modes with ranks: scale learning rates and target updates with "
        'the ranks; true: rates by N; "sqrt": rates by √N, for optimizers such as Adam '
        "and RMSprop (arXiv:2205.10287)",
    )
    actor_learner: ActorLearnerSpec = Field(
        ActorLearnerSpec(), description="settings of that mode"
    )
    simulate: Annotated[
        SimulateSpec | None,
        BeforeValidator(_as_simulation),
        Refused(
            "runs workers one at a time; a cluster has room for all",
            when="meta.cluster",
        ),
        Refused(
            "is for {blocks.modes_in_virtual_time} and independent Sessions",
            unless="meta.mode.in_virtual_time",
        ),
    ] = Field(
        None,
        description="whether workers run one at a time in virtual time, as if each had "
        "a core; true: with the defaults of the block",
    )
    cluster: Annotated[
        str | None,
        Refused(
            "is for {blocks.modes_on_clusters} and independent Sessions; the "
            '{own.mode.member}s of distributed "{own.mode.word}" share the memory of '
            "one machine",
            unless="meta.mode.cluster_launch",
        ),
    ] = Field(
        None, description='address of a Ray cluster, or "auto"; null: this machine'
    )
    record_video: Annotated[Count | None, bounds.FRAMES] = Field(
        None, description="frames between recorded evaluation episodes; null: none"
    )
    search_alg: Literal["random", "optuna", "hyperopt"] = Field(
        "random", description="searcher: proposes the specs of trials"
    )
    confirm: ConfirmSpec | None = Field(
        None, description="repeats the best specs of a search with fresh seeds"
    )
    search_resources: SearchResourcesSpec = Field(
        SearchResourcesSpec(), description="resources of one trial"
    )
    search_scheduler: SchedulerSpec | None = Field(
        None,
        description="stops trials of a search early: arguments of ASHA, or `name` and "
        "arguments of another scheduler",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _with_blocks_of_modes(
        cls, data: Any, handler: ModelWrapValidatorHandler[Self]
    ) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        blocks = dict[str, BaseModel]()
        wrong = list[InitErrorDetails]()
        for word, model in MODES.models(BaseModel).items():
            try:
                blocks[word] = model.model_validate(data.get(word, {}))
            except ValidationError as error:
                wrong += lines_of(error, word)
        known = [*cls.file_keys(), *MODES.models(BaseModel)]
        for key in (key for key in data if key not in known):
            wrong.append(
                error_line((key,), unknown_name("key", str(key), known), data[key])
            )
        return with_further_errors(handler, {**data, **blocks}, wrong)

    @property
    def unused_plug_ins(self) -> list[str]:
        """The modes of other packages that this spec neither uses nor changes. Without
        their blocks it can be read where these packages are not installed."""
        blocks = self.model_extra or {}
        return [
            word
            for word, block in blocks.items()
            if word != self.distributed and block == type(block)()
        ]

    @classmethod
    @override
    def extend_schema(
        cls, schema: JsonSchemaValue, handler: GetJsonSchemaHandler
    ) -> None:
        schema["additionalProperties"] = False
        for word, model in MODES.models(BaseModel).items():
            schema["properties"][word] = handler(model.__pydantic_core_schema__)

    @property
    def mode(self) -> Mode:
        """The facts about the mode that `distributed` names."""
        return mode_of(self.distributed)

    @property
    def scales_strongly(self) -> bool:
        """Whether updates of N ranks equal the updates of one process."""
        return self.scale == "strong"

    def rate_factor(self, samples: float) -> float:
        """The factor of scaled learning rates. `samples` is how many times as many
        samples a step of all ranks has as a step of one process. The factor is
        `samples`, as for SGD (arXiv:1706.02677), or its root, as for Adam and RMSprop
        (arXiv:2205.10287)."""
        if self.scale_lr == "sqrt":
            return math.sqrt(samples)
        return samples

    @property
    def replaces_ratio(self) -> bool:
        """Whether a learner sets the gradient steps of a replay algorithm."""
        return self.mode.has_learner and self.actor_learner.train_ratio != "spec"

    @property
    def trains_freely(self) -> bool:
        """Whether a learner trains on its replay memory as fast as it can."""
        return self.replaces_ratio and self.actor_learner.train_ratio is None

    @property
    def sets_ratio(self) -> bool:
        """Whether a learner makes an exact number of gradient steps per frame."""
        return self.replaces_ratio and not self.trains_freely

    def share_of(self, max_frame: int) -> int:
        """The part of a frame budget that each Session counts. Workers and ranks share
        a budget. A learner counts the frames of all its actors."""
        if self.mode.shares_budget:
            return max_frame // self.max_session
        return max_frame

    def kept_frames(self, max_frame: int) -> tuple[int, ...]:
        """The total frames of a training at which a checkpoint is kept, ascending."""
        kept = self.keep_checkpoints
        if isinstance(kept, tuple):
            return kept
        return tuple(-(-max_frame * n // kept) for n in range(1, kept + 1))

    @property
    def sessions_per_training(self) -> int:
        """Sessions per training: 1 for independent seeds, 1 + the number of actors for
        a learner. It is 1 too if the actors are in the learner's process."""
        if self.distributed is False or self.has_local_actors:
            return 1
        if self.mode.has_learner:
            return 1 + self.max_session
        return self.max_session

    @property
    def has_local_actors(self) -> bool:
        """Whether actors are in the learner's process: in turn, or in virtual time."""
        in_virtual_time = self.simulate is not None and self.simulate.costs is not None
        return self.mode.has_learner and (self.actor_learner.serial or in_virtual_time)

    @property
    def num_sessions(self) -> int:
        """The Sessions of one Trial."""
        trainings = 1
        if self.distributed is False:
            trainings = self.max_session
        return trainings * self.sessions_per_training * self.max_run

    @property
    def trainings(self) -> list[range]:
        """The Sessions of each training of one Trial; a learner precedes its actors."""
        size = self.sessions_per_training
        return [
            range(first, first + size) for first in range(0, self.num_sessions, size)
        ]

    @property
    def writers(self) -> list[int]:
        """The Sessions that write rows: the first one if they have one common agent,
        else all."""
        if self.mode.one_agent:
            return [sessions[0] for sessions in self.trainings]
        return list(range(self.num_sessions))

    @property
    def writers_per_training(self) -> int:
        """The Sessions per training that write rows."""
        return len(self.writers) // len(self.trainings)

    def runs_of(self, sessions: Iterable[int]) -> list[int] | None:
        """The training of each Session if trainings repeat (`max_run`); else None."""
        per_training = self.sessions_per_training
        if self.max_run > 1:
            return [session // per_training for session in sessions]
        return None

    def is_first_of_training(self, session: int) -> bool:
        """Whether a Session trains alone, or is the first one of its training."""
        return session % self.sessions_per_training == 0

    def is_actor(self, session: int) -> bool:
        """Whether a Session only acts; the first Session of its training is the
        learner."""
        return self.mode.has_learner and not self.is_first_of_training(session)
