"""`agent.memory`: rollouts and replay memories."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.block import Block, key_error
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.schedule import Fraction

Family = Literal["on_policy", "replay"]


class MemorySpec(Block):
    """The keys of every memory."""

    FAMILY: ClassVar[Family | None] = None
    """Whether it holds on-policy or replayed data; None (a plug-in): fits any
    algorithm."""

    name: str = Field(description="kind of memory")


class OnPolicySpec(MemorySpec):
    """Memories of data of the current policy. The keys below configure the additional
    replay memory of SIL and PPOSIL; other algorithms do not use them."""

    FAMILY = "on_policy"

    sil_replay_name: Literal["Replay", "PrioritizedReplay"] | None = Field(
        None, description="SIL: additional replay memory"
    )
    batch_size: Annotated[Count | None, bounds.BATCH] = Field(
        None, description="SIL: transitions per batch B"
    )
    max_size: Annotated[Count | None, bounds.REPLAYED] = Field(
        None, description="SIL: capacity in transitions"
    )
    use_cer: bool = Field(
        False, description="SIL: combined experience replay, arXiv:1712.01275"
    )


class OnPolicyReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` whole episodes."""

    name: str = Field("OnPolicyReplay", description="kind of memory")


class OnPolicyBatchReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` (PPO: `time_horizon`) steps of each
    environment."""

    name: str = Field("OnPolicyBatchReplay", description="kind of memory")


class OnPolicyCrossEntropySpec(OnPolicySpec):
    """Trains on the best episodes only."""

    name: str = Field("OnPolicyCrossEntropy", description="kind of memory")
    cross_entropy: float = Field(
        1.0, gt=0, le=1, description="share of episodes kept, best first"
    )


class ReplaySpec(MemorySpec):
    """A ring buffer of transitions, sampled uniformly."""

    FAMILY = "replay"

    name: str = Field("Replay", description="kind of memory")
    batch_size: Annotated[Count, bounds.BATCH] = Field(
        description="transitions per batch B"
    )
    max_size: Annotated[Count, bounds.REPLAYED] = Field(
        description="capacity in transitions; the oldest are replaced first"
    )
    use_cer: bool = Field(
        False,
        description="combined experience replay: every batch contains the newest step "
        "of each environment, with the weight of a uniform sample",
    )
    storage: Literal["memory", "memmap", "device"] = Field(
        "memory",
        description="storage of the ring buffer: memory, a memory-mapped file, or "
        '"device": '
        "observations on the GPU of the networks",
    )

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
        if self.max_size < self.batch_size:
            message = f"must be >= batch_size ({self.batch_size})"
            raise key_error("max_size", message, self.max_size)
        return self


class PrioritizedReplaySpec(ReplaySpec):
    """A ring buffer of transitions, sampled by their error (arXiv:1511.05952)."""

    name: str = Field("PrioritizedReplay", description="kind of memory")
    alpha: float = Field(
        0.6,
        ge=0,
        le=1,
        description="α: 0 samples uniformly, 1 in proportion to the error",
    )
    epsilon: float = Field(1e-4, ge=0, description="ε added to every error")
    beta: Fraction | None = Field(
        None,
        description="β of the importance weights over the run, 0 to 1 (full "
        "correction); null: no weights",
    )
