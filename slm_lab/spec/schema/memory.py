"""`agent.memory`: what is kept of experience."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, error_line, spec_errors
from slm_lab.spec.schema.fields import Int
from slm_lab.spec.schema.schedule import Fraction

Family = Literal["on_policy", "replay"]


class MemorySpec(Block):
    """What every memory has."""

    FAMILY: ClassVar[Family | None] = None
    """Whether it holds fresh experience only; None (a plug-in): fits any algorithm."""

    name: str = Field(description="kind of memory")


class OnPolicySpec(MemorySpec):
    """Memories that hold only what the present policy did. The keys below belong to the replay
    memory that SIL and PPOSIL keep beside it; other algorithms have no use for them."""

    FAMILY: ClassVar[Family | None] = "on_policy"

    sil_replay_name: Literal["Replay", "PrioritizedReplay"] | None = Field(
        None, description="SIL: replay memory beside this one"
    )
    batch_size: Annotated[Int | None, bounds.BATCH] = Field(
        None, ge=1, description="SIL: transitions per batch B"
    )
    max_size: Annotated[Int | None, bounds.REPLAYED] = Field(
        None, ge=1, description="SIL: transitions kept"
    )
    use_cer: bool = Field(False, description="SIL: combined experience replay, arXiv:1712.01275")


class OnPolicyReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` whole episodes."""

    name: str = Field("OnPolicyReplay", description="kind of memory")


class OnPolicyBatchReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` (PPO: `time_horizon`) steps of every environment."""

    name: str = Field("OnPolicyBatchReplay", description="kind of memory")


class OnPolicyCrossEntropySpec(OnPolicySpec):
    """Trains on the best episodes only."""

    name: str = Field("OnPolicyCrossEntropy", description="kind of memory")
    cross_entropy: float = Field(
        1.0, gt=0, le=1, description="fraction of episodes kept, best first"
    )


class ReplaySpec(MemorySpec):
    """A ring of transitions, drawn uniformly."""

    FAMILY: ClassVar[Family | None] = "replay"

    name: str = Field("Replay", description="kind of memory")
    batch_size: Annotated[Int, bounds.BATCH] = Field(ge=1, description="transitions per batch B")
    max_size: Annotated[Int, bounds.REPLAYED] = Field(
        ge=1, description="transitions kept, the oldest go first"
    )
    use_cer: bool = Field(
        False,
        description="combined experience replay: every batch holds the newest step of every "
        "environment, with the weight of a uniform draw",
    )
    storage: Literal["memory", "memmap"] = Field(
        "memory", description="where the ring lies: in memory, or in a file that is mapped"
    )

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
        if self.max_size < self.batch_size:
            message = f"must be >= batch_size ({self.batch_size})"
            raise spec_errors("ReplaySpec", [error_line(("max_size",), message, self.max_size)])
        return self


class PrioritizedReplaySpec(ReplaySpec):
    """A ring of transitions, drawn by their error (arXiv:1511.05952)."""

    name: str = Field("PrioritizedReplay", description="kind of memory")
    alpha: float = Field(0.6, ge=0, le=1, description="α: 0 draws uniformly, 1 by error")
    epsilon: float = Field(1e-4, ge=0, description="ε added to every error")
    beta: Fraction | None = Field(
        None,
        description="β of the importance weights over the run, 0 to 1 (whole correction); null: no "
        "weights",
    )
