"""The keys of a schedule become its arguments."""

from slm_lab.agent.schedule import Schedule
from slm_lab.spec.schema.schedule import ScheduleSpec


def build_schedule(spec: ScheduleSpec) -> Schedule:
    """The schedule of the spec."""
    return Schedule(
        start_val=spec.start_val,
        end_val=spec.end_val,
        start_step=spec.start_step,
        end_step=spec.end_step,
        shape=spec.name,
    )
