"""A spec as one training, where seeds are counted outside of it."""

from dataclasses import replace

from slm_lab.core.errors import SpecError
from slm_lab.records.run_source import RunSource
from slm_lab.spec.override import parse_setting
from slm_lab.spec.schema.spec import Spec
from slm_lab.studies.requirements import check_machine, check_spaces

ONE_RUN = "meta.max_run=1"
ONE_SESSION = "meta.max_session=1"
"""What makes one training of a spec that repeats it, or whose Sessions are seeds."""


def one_training(source: RunSource) -> tuple[RunSource, Spec]:
    """The source with the settings that make its spec one training, even where the spec
    repeats it. With it comes the spec, which is checked. Raises SpecError,
    UsageError."""
    typed = {parse_setting(text).key for text in source.sets}
    added = [ONE_RUN]
    if source.load(warn=False).meta.distributed is False:
        added.append(ONE_SESSION)
    missing = [text for text in added if parse_setting(text).key not in typed]
    source = replace(source, sets=(*source.sets, *missing))
    spec = source.load()
    where = source.where(spec)
    if spec.meta.max_run > 1 or (
        spec.meta.distributed is False and spec.meta.max_session > 1
    ):
        message = "must be 1: the command counts the seeds"
        raise SpecError.of(where, "meta.max_session", message)
    check_spaces(where, spec)
    check_machine(where, spec)
    return source, spec
