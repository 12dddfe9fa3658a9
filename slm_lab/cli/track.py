"""The option `--track`: the process that sends a training to trackers."""

import sys

from rich.console import Console

from slm_lab.cli.display.screen import print_line
from slm_lab.core.errors import LabError
from slm_lab.records.origin import trackers_of
from slm_lab.records.run_source import RunSource
from slm_lab.storage.run_dir import RunDir, origin_of
from slm_lab.trackers.process import NONE, TrackerProcess


def check_named(source: RunSource) -> None:
    """Raises LabError for a tracker that is unknown, or not installed."""
    names = [name for name in source.track if name != NONE]
    if names:
        from slm_lab.trackers.callbacks import check_trackers

        check_trackers(names)


def tracked(console: Console, source: RunSource, run_dir: RunDir) -> TrackerProcess:
    """The process that follows a run: a context, whose end waits for it. A run that
    resumes keeps its trackers."""
    names = source.track
    is_resumed = source.run is not None
    if is_resumed and not names:
        names = trackers_of(origin_of(run_dir.spec_file))
        names = _usable(console, names) if NONE not in names else ()
    if NONE in names:
        names = ()
    return TrackerProcess(run_dir, names, source.imports, is_resumed)


def _usable(console: Console, names: tuple[str, ...]) -> tuple[str, ...]:
    """The trackers of a run that resumes, with a line about them; none if they are not
    installed here."""
    if not names:
        return ()
    from slm_lab.trackers.callbacks import check_trackers

    try:
        check_trackers(names)
    except LabError as error:
        print(f"{error}; the training goes on without", file=sys.stderr)
        return ()
    text = f"tracked by {', '.join(names)}, as before; --track none ends that"
    print_line(console, text, "yellow")
    return names
