"""Upper bounds of the numbers in a spec, and the reasons: a larger number is a typing
error.

Each is far above published values, and below values that exhaust a machine before an
error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from annotated_types import GroupedMetadata, Le
from typing_extensions import override


@dataclass(frozen=True)
class UpperBound(GroupedMetadata):
    """An upper bound of a number, and the reason for it. In `Annotated` it is
    pydantic's `le`."""

    number: int
    why: str

    @override
    def __iter__(self) -> Iterator[object]:
        return iter([Le(self.number)])

    @property
    def message(self) -> str:
        """The message for a larger number."""
        return f"must be <= {short(self.number)}: {self.why}"

    def refusal(self, value: object) -> str | None:
        """The message for a number above the bound, or a list with one; None for other
        values."""
        numbers = (
            value
            if isinstance(value, Sequence) and not isinstance(value, str)
            else [value]
        )
        if any(
            isinstance(number, int | float) and number > self.number
            for number in numbers
        ):
            return self.message
        return None


def short(number: float) -> str:
    """A number as 0.5, 10,000 or 1e15."""
    power = f"1e{len(str(number)) - 1}"
    if number >= 10**7 and number == float(power):
        return power
    return f"{number:,}"


@dataclass(frozen=True)
class MaxEntries:
    """An upper bound of the number of entries of a list, and the reason for it."""

    number: int
    why: str

    def refusal(self, value: object) -> str | None:
        """The message for a list with more entries; None for other values."""
        if isinstance(value, list | tuple) and len(value) > self.number:
            return f"has {len(value):,} entries, at most {self.number:,}: {self.why}"
        return None


STEPS_PER_FRAME = 1000
"""Gradient steps per frame, far above the largest published ratios (128: SR-SPR,
SR-SAC). The steps due after one vector step are one training event, in which a run
cannot stop or save. With a few zeros too many the first event would never end."""

FRAMES = UpperBound(10**15, "at a million frames per second they take 30 years")
CRITICS = UpperBound(100, "each is a network that every step trains")
SESSIONS = UpperBound(1024, "each Session is a process of about 300 MB")
RUNS = UpperBound(10_000, "the trainings run one after another")
TRIALS = UpperBound(100_000, "the search keeps every trial in memory")
CONFIRMED = UpperBound(1000, "each is trained again")
KEPT = UpperBound(1000, "each is a whole checkpoint on the disk")
SEED = UpperBound(10**18, "files and generators support seeds of 63 bits")
THREADS = UpperBound(1024, "every process starts this many")
ENVS = UpperBound(100_000, "each is a copy of the environment in memory")
FRAMES_JOINED = UpperBound(1000, "each observation consists of this many")
PIXELS = UpperBound(10_000, "the size of an image is its square")
UNROLLS = UpperBound(10_000, "their memory is allocated at the start")

STEPS_OF_EVENT = UpperBound(10_000, "a run cannot stop or save within a training event")
STEPS_OF_ROLLOUT = UpperBound(1_000_000, STEPS_OF_EVENT.why)
EPOCHS = UpperBound(1000, STEPS_OF_EVENT.why)
ROLLOUT = UpperBound(10**7, "memory for a rollout is allocated at the start")
REPLAYED = UpperBound(10**9, "memory for all transitions is allocated at the start")
BATCH = UpperBound(10**7, "a batch goes through the net as a whole")
STEPS_OF_TARGET = UpperBound(10_000, "every target is a sum over this many steps")
SEQUENCE = UpperBound(100_000, "gradients flow back over every step of a sequence")

LOG_ALPHA = UpperBound(0, "it is ln α, and α begins at 1")
WIDTH = UpperBound(
    65_536, "two layers of this width have 17 GB of weights between them"
)
LAYERS = MaxEntries(1000, "every layer keeps its output for the gradient")
STACKED = UpperBound(1000, LAYERS.why)
KERNEL = UpperBound(10_000, "no image has this many pixels in a row")

LIST = MaxEntries(1000, "no key needs more")
CHOICES = MaxEntries(1000, "the spec is checked with each of them")
NAME_BYTES = 150
"""The most bytes of a spec's name in UTF-8. File names add up to 80 bytes; file systems
allow 255."""
INFO_KEY_BYTES = 60
"""The most bytes of a key of `env.info_keys` in UTF-8: it is part of the file names of
graphs."""
ENV_NAME = 200
"""The most characters of an environment's name."""

SIZES = frozenset(
    {
        "in_features",
        "out_features",
        "in_channels",
        "out_channels",
        "num_features",
        "num_channels",
        "num_groups",
        "groups",
        "normalized_shape",
        "kernel_size",
        "stride",
        "padding",
        "dilation",
        "output_size",
        "output_padding",
        "size",
        "scale_factor",
        "unflattened_size",
        "upscale_factor",
        "downscale_factor",
    }
)
"""Arguments of torch.nn's layers that `WIDTH` bounds."""

WEIGHTS = UpperBound(10**9, "with gradients and moments they take 16 GB")
FRAMES_OF_ROLLOUT = UpperBound(
    10**8, "they take 400 MB for each number in an observation"
)
