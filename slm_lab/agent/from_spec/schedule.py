"""The keys of schedules become numbers at the trial's clock."""

from collections.abc import Mapping
from typing import final

from slm_lab.core.schedule import Schedule
from slm_lab.spec.schema.schedule import ChangingBlock


def schedule_of(block: ChangingBlock, key: str) -> Schedule:
    """The schedule of a number of the block, constant if the spec has none."""
    spec = block.schedules.get(key)
    if spec is None:
        return Schedule(dict(block)[key])
    return spec.build()


@final
class ScheduledNumbers:
    """The numbers of a block that have schedules."""

    def __init__(self, block: ChangingBlock) -> None:
        self._schedules = {key: spec.build() for key, spec in block.schedules.items()}

    def at(self, frame: int) -> Mapping[str, float]:
        """Their values at `frame`, by key."""
        return {key: schedule.at(frame) for key, schedule in self._schedules.items()}
