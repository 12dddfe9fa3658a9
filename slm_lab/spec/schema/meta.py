"""`meta`: how often, on what, and how parallel the spec is run."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from slm_lab.spec.schema.block import Block, refusal, refuse_all
from slm_lab.spec.schema.types import Distributed, Int
from slm_lab.spec.schema.wording import not_among, unknown_name

ASHA_KEYS = (
    "max_t", "grace_period", "reduction_factor", "brackets", "stop_last_trials",
)  # fmt: skip
TUNE_SCHEDULERS = (
    "ASHAScheduler", "AsyncHyperBandScheduler", "HyperBandScheduler", "MedianStoppingRule",
    "FIFOScheduler", "PopulationBasedTraining", "HyperBandForBOHB",
)  # fmt: skip


class ActorLearnerSpec(Block):
    """How actors and the learner work together (`distributed: "actor_learner"`)."""

    unroll_length: Int | None = Field(
        None, ge=1, description="steps per unroll sent; null: the algorithm's rollout"
    )
    learn_queue: Int = Field(1, ge=1, description="unrolls that one training event waits for")
    queue_size: Int = Field(4, ge=1, description="unrolls waiting before actors pause")
    correction: Literal["none", "vtrace"] = Field(
        "vtrace", description="correction of stale unrolls (V-trace: arXiv:1802.01561)"
    )
    publish_frequency: Int = Field(
        1, ge=1, description="training events between weight publications"
    )
    inference: Literal["actor", "learner"] = Field(
        "actor", description="who computes actions: each actor, or the learner in batches"
    )
    train_ratio: float | None = Field(
        None, gt=0, description="most gradient steps per frame; null: as they come"
    )
    serial: bool = Field(False, description="actors and learner take turns, for debugging")


class ConfirmSpec(Block):
    """The best specs of a search, run again with fresh seeds."""

    top: Int = Field(ge=1, description="how many specs")
    max_session: Int = Field(ge=1, description="seeds of each")


class SearchResourcesSpec(Block):
    """What Ray reserves for one trial of a search."""

    cpu: float = Field(1.0, ge=0, description="CPU cores, may be a fraction")
    gpu: float = Field(0.0, ge=0, description="GPUs, may be a fraction")


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
    max_session: Int = Field(
        1, ge=1, description="Sessions of a Trial: seeds, or workers of one distributed training"
    )
    max_trial: Int = Field(1, ge=1, description="trials of a search")
    log_frequency: Int = Field(10_000, ge=1, description="frames between rows, per Session")
    eval_frequency: Int = Field(10_000, ge=1, description="frames between evaluations, per Session")
    rigorous_eval: Int = Field(
        0, ge=0, description="evaluation environments; 0: the training returns stand in"
    )
    random_seed: Int | None = Field(
        None, ge=0, description="root seed of everything; null: drawn, and written down"
    )
    save_interval: float = Field(
        10.0,
        ge=0,
        description="least seconds between checkpoints; 0: one at every row, of Hogwild! workers "
        "one a second",
    )
    threads: Int = Field(1, ge=1, description="torch threads per process")
    stop_return: float | None = Field(
        None, description="end the run once total_reward_ma reaches it"
    )
    max_run: Int = Field(
        1, ge=1, description="independent seeds of a distributed training, one after another"
    )
    max_restart: Int = Field(
        3, ge=0, description="restarts of a dead worker, rank or actor; retries of a failed trial"
    )
    scale: Literal["linear", "strong", "weak"] = Field(
        "linear", description="all_reduce: how totals are divided among the ranks"
    )
    scale_lr: bool = Field(True, description="all_reduce: scale the learning rate with the ranks")
    actor_learner: ActorLearnerSpec = Field(
        ActorLearnerSpec(), description="settings of the mode of that name"
    )
    cluster: str | None = Field(None, description='Ray address, or "auto"; null: this machine')
    record_video: Int | None = Field(
        None, ge=1, description="frames between recorded evaluation episodes; null: none"
    )
    search_alg: Literal["random", "optuna", "hyperopt"] = Field(
        "random", description="what proposes the specs of a search"
    )
    confirm: ConfirmSpec | None = Field(
        None, description="re-run the best specs of a search with fresh seeds"
    )
    search_resources: SearchResourcesSpec = Field(
        SearchResourcesSpec(), description="Ray resources of one trial"
    )
    search_scheduler: dict[str, Any] | None = Field(
        None, description="arguments of ASHA, or `name` and arguments of another Tune scheduler"
    )

    @property
    def num_sessions(self) -> int:
        """Of one Trial."""
        return self.max_session * self.max_run

    @property
    def trainings(self) -> list[range]:
        """The Sessions of one Trial by the trainings that they are part of: each is one of its own,
        or `max_session` are the workers of one."""
        size = 1 if self.distributed is False else self.max_session
        return [range(first, first + size) for first in range(0, self.num_sessions, size)]

    @property
    def writers(self) -> list[int]:
        """The Sessions that write rows: of ranks, who have one agent in common, the first."""
        if self.distributed == "all_reduce":
            return [ranks[0] for ranks in self.trainings]
        return list(range(self.num_sessions))

    def is_first_of_training(self, session: int) -> bool:
        """Whether a Session trains alone, or is the first of those that train together."""
        return any(session == training[0] for training in self.trainings)

    @field_validator("search_scheduler")
    @classmethod
    def _known_scheduler(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        name = value.get("name", "ASHAScheduler")
        if name not in TUNE_SCHEDULERS:
            raise refuse_all(
                "search_scheduler", [refusal(("name",), not_among(name, TUNE_SCHEDULERS), name)]
            )
        if name not in ("ASHAScheduler", "AsyncHyperBandScheduler"):
            return value
        wrong = [
            refusal((key,), message, given)
            for key, given in value.items()
            if key != "name" and (message := _asha_message(key, given))
        ]
        if wrong:
            raise refuse_all("search_scheduler", wrong)
        return value


def _asha_message(key: str, value: object) -> str:
    if key not in ASHA_KEYS:
        return unknown_name("key", key, ASHA_KEYS)
    if key == "stop_last_trials":
        return "" if isinstance(value, bool) else "must be true or false"
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return "must be a number > 0"
    return ""
