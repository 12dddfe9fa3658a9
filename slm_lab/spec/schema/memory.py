"""`agent.memory`: rollouts and replay memories."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from slm_lab.spec.schema import bounds
from slm_lab.spec.schema.fields import Count
from slm_lab.spec.schema.rules import ANY, Limit, Needed, NoEffect, Refused
from slm_lab.spec.schema.schedule import MAY_CHANGE, ChangingBlock, Fraction

Family = Literal["on_policy", "replay"]

OF_IMITATION = Needed("{algorithm.name} has a replay memory", when="algorithm.TWIN")
ONE_SEQUENCE = ", one sequence of each environment"
ON_THE_CPU = 'prepares sampled observations on the CPU; use "memory"'
NOT_ONE_SAMPLE = Refused(
    "is one sample, which batch_norm cannot normalise",
    when="blocks.batch_normalised",
    value=1,
)


class MemorySpec(ChangingBlock):
    """The keys of every memory."""

    FAMILY: ClassVar[Family | None] = None
    """Whether it holds on-policy or replayed data; None (a plug-in): fits any
    algorithm."""

    COUNTS_STEPS: ClassVar[bool] = False
    """Whether `training_frequency` of an on-policy algorithm counts steps of each
    environment with it, not episodes."""

    TOTALS: ClassVar[Mapping[str, bool]] = {"max_size": False}
    """Sizes in total over all ranks; whether each must be a multiple of their
    number."""

    SAMPLES: ClassVar[tuple[str, ...]] = ("batch_size",)
    """Samples of a gradient step, in total over all ranks with meta.scale "strong"."""

    name: str = Field(description="kind of memory")


class OnPolicySpec(MemorySpec):
    """Memories of data of the current policy. The keys below configure the additional
    replay memory of SIL and PPOSIL; other algorithms do not use them."""

    FAMILY = "on_policy"

    sil_replay_name: Annotated[
        Literal["Replay", "PrioritizedReplay"] | None, OF_IMITATION
    ] = Field(None, description="SIL: additional replay memory")
    batch_size: Annotated[Count | None, bounds.BATCH, OF_IMITATION, NOT_ONE_SAMPLE] = (
        Field(None, description="SIL: transitions per batch B")
    )
    max_size: Annotated[
        Count | None,
        bounds.REPLAYED,
        OF_IMITATION,
        Limit(sign=">=", of="batch_size", when="algorithm.TWIN"),
    ] = Field(None, description="SIL: capacity in transitions")
    use_cer: bool = Field(
        False, description="SIL: combined experience replay, arXiv:1712.01275"
    )


class OnPolicyReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` whole episodes."""

    name: str = Field("OnPolicyReplay", description="kind of memory")


class OnPolicyBatchReplaySpec(OnPolicySpec):
    """Trains after `training_frequency` (PPO: `time_horizon`) steps of each
    environment."""

    COUNTS_STEPS = True

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
    batch_size: Annotated[
        Count,
        bounds.BATCH,
        NOT_ONE_SAMPLE,
        Limit(
            sign="%",
            of="net.sequence_length",
            called="agent.net.{net.sequence_key}",
            text=": it counts steps",
            when="net.is_recurrent",
        ),
        Limit(
            sign=">",
            of="env.num_envs",
            text=" with use_cer: the newest step of every environment is part of each "
            "batch, and would fill it",
            when="use_cer",
        ),
    ] = Field(description="transitions per batch B")
    max_size: Annotated[
        Count,
        bounds.REPLAYED,
        Limit(sign=">=", of="batch_size"),
        Limit(
            sign=">=",
            of=("env.num_envs", "blocks.num_step_returns"),
            text=", or no n-step return is ever whole",
        ),
        Limit(
            sign=">=",
            of=("net.sequence_length", "env.num_envs"),
            called="seq_len × num_envs",
            text=ONE_SEQUENCE,
            when=("net.is_recurrent", "algorithm.ACTS_ON_Q"),
        ),
    ] = Field(description="capacity in transitions; the oldest are replaced first")
    use_cer: Annotated[
        bool,
        Refused(
            "adds single steps, and a RecurrentNet learns from sequences; set it to "
            "false",
            when="net.is_recurrent",
        ),
    ] = Field(
        False,
        description="combined experience replay: every batch contains the newest step "
        "of each environment, with the weight of a uniform sample",
    )
    storage: Annotated[
        Literal["memory", "memmap", "device"],
        Refused(f"env.normalize_obs {ON_THE_CPU}", "env.normalize_obs", value="device"),
        Refused(f"RecurrentNet {ON_THE_CPU}", "blocks.is_recurrent", value="device"),
        NoEffect(
            'gpu is false, so that "device" is the CPU',
            unless="net.gpu",
            value="device",
        ),
    ] = Field(
        "memory",
        description="storage of the ring buffer: memory, a memory-mapped file, or "
        '"device": '
        "observations on the GPU of the networks",
    )


class PrioritizedReplaySpec(ReplaySpec):
    """A ring buffer of transitions, sampled by their error (arXiv:1511.05952)."""

    name: Annotated[
        str,
        Refused(
            "draws single steps, and a RecurrentNet learns from sequences; use Replay",
            when="net.is_recurrent",
            value=ANY,
        ),
    ] = Field("PrioritizedReplay", description="kind of memory")
    alpha: Annotated[float, MAY_CHANGE] = Field(
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
