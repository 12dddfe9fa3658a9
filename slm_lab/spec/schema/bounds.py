"""The greatest numbers that make sense in a spec, and why: what lies beyond is a slip of the hand.

Each is far above what anybody has published, and below what takes a machine down before it fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from slm_lab.spec.schema.block import spec_error


@dataclass(frozen=True)
class Most:
    """An upper bound of a number, or of each in a list; stands in `Annotated`. null passes."""

    number: int
    why: str

    def error_line(self, value: object) -> str | None:
        """What to say of a value beyond the bound; None of any other."""
        numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        if any(isinstance(each, int | float) and each > self.number for each in numbers):
            return f"must be <= {self}: {self.why}"
        return None

    @override
    def __str__(self) -> str:
        power = f"1e{len(str(self.number)) - 1}"
        return power if self.number >= 10**7 and self.number == float(power) else f"{self.number:,}"

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        found = handler(schema)
        for part in (found, *found.get("anyOf", ()), found.get("items", {})):
            if part.get("type") == "integer":
                part["maximum"] = self.number
        return found

    def _checked(self, value: Any) -> Any:
        message = self.error_line(value)
        if message is not None:
            raise spec_error(message)
        return value


@dataclass(frozen=True)
class MostEntries:
    """An upper bound of the entries of a list."""

    number: int
    why: str

    def error_line(self, value: object) -> str | None:
        """What to say of a list beyond the bound; None of any other value."""
        if isinstance(value, list | tuple) and len(value) > self.number:
            return f"has {len(value):,} entries, at most {self.number:,}: {self.why}"
        return None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._checked, handler(source))

    def _checked(self, value: Any) -> Any:
        message = self.error_line(value)
        if message is not None:
            raise spec_error(message)
        return value


STEPS_PER_FRAME = 1000
"""Gradient steps, far beyond the greatest ratios that were published (128: SR-SPR, SR-SAC). All
that one vector step makes due is one training event, and a run neither stops nor saves within one:
where somebody slips by some zeros the first would never end."""

FRAMES = Most(10**15, "a machine that plays a million frames a second takes 30 years for as many")
SESSIONS = Most(1024, "each Session is a process of some 300 MB")
RUNS = Most(10_000, "the trainings follow one another")
TRIALS = Most(100_000, "the search keeps every trial in memory")
CONFIRMED = Most(1000, "each is trained again")
SEED = Most(10**18, "files and generators take seeds of 63 bits")
THREADS = Most(1024, "every process starts as many")
ENVS = Most(100_000, "each is a copy of the environment in memory")
FRAMES_JOINED = Most(1000, "each observation is as many in one")
PIXELS = Most(10_000, "an image has the square of it")
UNROLLS = Most(10_000, "room for them is taken at the start")

STEPS_OF_EVENT = Most(10_000, "a run neither stops nor saves within a training event")
STEPS_OF_ROLLOUT = Most(1_000_000, STEPS_OF_EVENT.why)
EPOCHS = Most(1000, STEPS_OF_EVENT.why)
ROLLOUT = Most(10**7, "room for a rollout is taken at the start")
REPLAYED = Most(10**9, "room for all transitions is taken at the start")
BATCH = Most(10**7, "a batch goes through the net as a whole")
STEPS_OF_TARGET = Most(10_000, "every target is summed over as many steps")
SEQUENCE = Most(100_000, "gradients flow back over every step of a sequence")

WIDTH = Most(65_536, "between two layers of that width lie 17 GB of weights")
LAYERS = MostEntries(1000, "every layer keeps what it puts out for the gradient")
STACKED = Most(1000, "every layer keeps what it puts out for the gradient")
KERNEL = Most(10_000, "no image has as many pixels in a row")

CHOICES = MostEntries(1000, "the spec is checked with each of them")
NAME_BYTES = 150
"""Of a spec's name in UTF-8: its files add up to 80, and 255 is the most of a file system."""
ENV_NAME = 200
"""Characters."""

SIZES = frozenset(
    {"in_features", "out_features", "in_channels", "out_channels", "num_features", "num_channels",
     "num_groups", "groups", "normalized_shape", "kernel_size", "stride", "padding", "dilation",
     "output_size", "output_padding", "size", "scale_factor", "unflattened_size", "upscale_factor",
     "downscale_factor"}
)  # fmt: skip
"""Arguments of torch.nn's layers that `WIDTH` holds for."""

WEIGHTS = Most(10**9, "with gradients and moments they take 16 GB")
FRAMES_OF_ROLLOUT = Most(10**8, "they take 400 MB for each number in an observation")
ENV_PROCESSES = Most(1024, 'each copy is a process with vectorization_mode "async"')
