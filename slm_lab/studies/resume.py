"""Begins the record of a run, and makes a resumed run's spec: the recorded one with
`-s`."""

import hashlib
import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from slm_lab.core.errors import Problem, SpecError, UsageError, undone_on_failure
from slm_lab.core.files import read_file as read_bytes
from slm_lab.core.files import read_object, write_json
from slm_lab.core.recorded import differences, recordable, value_at
from slm_lab.env.versions import env_record
from slm_lab.metrics.reader import RowFile
from slm_lab.records.annotations import annotate
from slm_lab.records.lock import RunLock, names_locked
from slm_lab.records.lookup import find_labelled
from slm_lab.records.origin import provenance, read_origin, starts_of, typed_settings
from slm_lab.records.run_record import trial_metrics
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import check_allowed, check_cluster_allowed, modules_of
from slm_lab.spec.budget import decays, stretched
from slm_lab.spec.load import load_spec
from slm_lab.spec.override import parse_setting
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.schema.rules import is_within
from slm_lab.spec.schema.spec import ROWS, Spec
from slm_lab.storage.manifest import FORMAT, Manifest
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import (
    ORDER,
    RUN_BLOCK,
    RunDir,
    order_after,
    runs_in,
    sets_env,
)

if TYPE_CHECKING:
    from slm_lab.records.init_from import Initial

SHOWN = 5
"""The maximum number of differences in a message."""
MANY_ROWS = 10 * ROWS
"""Rows of a Session, from which on a larger budget tells of them."""


def begin_run(
    source: RunSource,
    spec: Spec,
    mode: str,
    initial: "Initial | None" = None,
    **more: Any,
) -> tuple[RunDir, RunLock, tuple[str, ...]]:
    """Makes a new run folder, and writes its spec file with its origin, which gets
    `more` entries. Returns the folder, its lock, and notes for the user."""
    env = None
    if any(map(sets_env, source.sets)):
        env = spec.env.name
    with alone(source):
        order = order_after(runs_in(source.data_dir), datetime.now(UTC))
        run_dir = RunDir.create(source.data_dir, spec.name, datetime.now(), env)
        with undone_on_failure(lambda: shutil.rmtree(run_dir.root)):
            lock = RunLock(run_dir.root)
        with undone_on_failure(lock.release):
            origin = _origin(source, spec, mode, **more)
            notes: tuple[str, ...] = ()
            if order is not None:
                origin[ORDER] = order
            if initial is not None:
                origin["init_from"] = initial.write(run_dir)
                notes = initial.notes
            if mode == "search":
                run_dir.event_log_file.touch()
            write_spec(run_dir, spec, origin)
            if source.tags:
                annotate(run_dir, add=source.tags)
    return run_dir, lock, (*notes, *clock_notes(origin))


def write_spec(run_dir: RunDir, spec: Spec, origin: Mapping[str, Any]) -> None:
    """Writes the spec file of a run, and the spec file of its Trial, unless it is a
    search."""
    resolved = {spec.name: spec.to_json()}
    write_json(run_dir.spec_file, {**resolved, RUN_BLOCK: origin})
    if not run_dir.is_search:
        write_json(run_dir.trial_spec_file(0), resolved)


def clock_notes(origin: Mapping[str, Any]) -> Iterator[str]:
    """A line if an earlier run has a later time, as after the clock was set back."""
    order = origin.get(ORDER)
    if order is not None:
        yield (
            f"a run of this folder was started at {str(order)[:16]} (UTC), after now: "
            "the clock was set back. This run counts as the latest"
        )


def _origin(source: RunSource, spec: Spec, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **provenance(spec.meta.random_seed or 0),
        "environment": env_record(spec.env),
        "spec_file": recordable(source.spec_file),
        "file_spec": _recorded_spec(
            read_file(find_file(source.spec_file)).get(spec.name)
        ),
        "set": list(source.sets),
        "mode": mode,
        "imports": list(source.imports),
        **more,
        "name": recordable(source.label),
        "note": recordable(source.note),
        "track": list(source.track),
    }


def _recorded_spec(spec: object) -> Any:
    """A spec as it stands in the file, for `file_notes`; a table of data in it is
    cut."""
    return recordable(spec, most=10_000)


@contextmanager
def alone(source: RunSource) -> Iterator[None]:
    """A context in which a run begins. If it has to be the only one of its name, no
    other may begin meanwhile. Raises UsageError if one has just begun."""
    if not source.resume or source.label is None:
        yield
        return
    with names_locked(source.data_dir):
        other = find_labelled(source.label, source.data_dir)
        if other is not None:
            raise UsageError(
                f"--name {source.label}: another command has just begun {other.root}"
            )
        yield


def check_same(
    run_dir: RunDir,
    source: RunSource,
    may_change: Collection[str],
    for_search: bool = False,
) -> None:
    """Raises UsageError if the run in `run_dir` was not started with the spec of
    `source`. The keys `may_change` may differ, and so may the seed if `source` has
    none. With another budget schedules may differ too, and a log frequency that is not
    typed."""
    before = load_spec(run_dir.spec_file, run_dir.spec_name, warn=False)
    now = with_known_precision(source.load(for_search=for_search, warn=False))
    ignored = {*may_change}
    if now.meta.random_seed is None:
        ignored.add("meta.random_seed")
    if now.env.max_frame != before.env.max_frame:
        ignored |= {decay.path for decay in decays(before.to_json())}
        typed, _ = typed_settings(read_origin(run_dir), source.sets)
        if not any(setting.startswith("meta.log_frequency=") for setting in typed):
            ignored.add("meta.log_frequency")
    changed = [
        f"{path} {json.dumps(old)} (now {json.dumps(new)})"
        for path, old, new in differences(before.to_json(), now.to_json())
        if not any(is_within(path, key) for key in ignored)
    ]
    if changed:
        raise UsageError(
            f"--name {source.label} --resume: {run_dir.root} was started with another "
            f"spec: {_some(changed)}; give this one another --name"
        )


def with_known_precision(spec: Spec) -> Spec:
    """The spec with the precision of "auto" on this machine."""
    agent = spec.agent
    unknown = {key: net for key, net in agent.nets.items() if net.precision == "auto"}
    if unknown:
        from slm_lab.agent.from_spec.net import with_precision  # imports torch

        nets = {}
        for key, net in unknown.items():
            known = {"precision": with_precision(net).precision}
            nets[key] = getattr(agent, key).model_copy(update=known)
        spec = spec.model_copy(update={"agent": agent.model_copy(update=nets)})
    return spec


def resumed_spec(
    run_dir: RunDir,
    source: RunSource,
    may_change: Collection[str],
    is_search: bool = False,
) -> tuple[Spec, Spec]:
    """The recorded spec of the run in `run_dir`, and the same with the changes of
    `source`. Raises SpecError for a change outside the paths `may_change`, each a key
    or a block; schedules go with the budget. Raises UsageError for a run of another
    format, and for one that names modules not in `source.imports`. It does so too for a
    larger budget with schedules that end before it."""
    origin = read_origin(run_dir)
    saved = load_spec(run_dir.spec_file, run_dir.spec_name, warn=False)
    check_allowed(run_dir.root, modules_of(saved), source.imports)
    keys, problems = typed_settings(origin, source.sets)
    overrides = {} if source.seed is None else {"meta.random_seed": source.seed}
    load = partial(load_spec, run_dir.spec_file, run_dir.spec_name, overrides=overrides)
    schedules = _Schedules(saved, load(sets=keys, warn=False, for_search=is_search))
    # a shorter budget keeps it, too
    kept = [f"meta.log_frequency={saved.log_frequency}"]
    if source.schedules == "stretch":
        kept += schedules.stretched()
    # Without a change, all suspicious keys were already reported at the start.
    spec = load(sets=[*kept, *keys], warn=bool(keys), for_search=is_search)
    spec = with_known_precision(spec)
    if "env.max_frame" in may_change:
        may_change = (*may_change, *schedules.paths)
    problems += [
        Problem(
            path, f"the run was started with {json.dumps(old)}; start a new run", new
        )
        for path, old, new in differences(saved.to_json(), spec.to_json())
        if not any(is_within(path, key) for key in may_change)
    ]
    if problems:
        raise SpecError(f"-s for train@{run_dir.root}", problems)
    check_cluster_allowed(run_dir.root, spec, source.sets)
    if source.schedules is None and (open_ends := schedules.open_ends(keys)):
        raise UsageError(f"{run_dir.root}: {open_ends}")
    return saved, spec


class _Schedules:
    """The schedules of a run that resumes: `saved` is its spec, `changed` its spec with
    `-s`."""

    def __init__(self, saved: Spec, changed: Spec) -> None:
        self._saved = saved.to_json()
        self._old = saved.env.max_frame
        self._new = changed.env.max_frame
        self._decays = list(decays(self._saved))
        self._new_ends = {decay.path: decay.end for decay in decays(changed.to_json())}

    @property
    def paths(self) -> list[str]:
        """The dotted paths of their blocks."""
        return [decay.path for decay in self._decays]

    def stretched(self) -> list[str]:
        """Their frames, each `key=value`, at the same shares of the new budget."""
        frames = stretched(self._saved, self._old, self._new)
        return [f"{path}={frame}" for path, frame in frames.items()]

    def open_ends(self, settings: Sequence[str]) -> str:
        """Which schedules end before a larger budget does, and what to choose from; ""
        if none has. `settings` are the typed `-s`."""
        typed = {parse_setting(text).key for text in settings}
        ended = [
            decay
            for decay in self._decays
            if self._old < self._new
            and decay.end < self._new
            and self._new_ends.get(decay.path) == decay.end
            and not typed & {decay.path, decay.end_path}
        ]
        if not ended:
            return ""
        frames = stretched(self._saved, self._old, self._new)
        ends = ", ".join(f"{decay.end_path} {decay.end}" for decay in ended)
        anew = " ".join(
            f"-s {decay.end_path}={frames[decay.end_path]}" for decay in ended
        )
        return (
            f"schedules are those of the old env.max_frame ({self._old}): {ends}; for "
            f"{self._new} frames add --schedules stretch (to the same shares of the "
            "budget) or "
            '--schedules hold (as they are); in Python schedules="stretch" or "hold"; '
            "or set them: "
            f"{anew}"
        )


def file_notes(
    origin: Mapping[str, Any], spec_file: str, run_dir: RunDir
) -> Iterator[str]:
    """A line if the spec file has changed since the run was started."""
    file = find_file(spec_file)
    if file.resolve() == run_dir.spec_file.resolve():
        return
    then = _recorded_spec(origin.get("file_spec"))
    now = _recorded_spec(read_file(file).get(run_dir.spec_name))
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        changed = [
            f"{path} {json.dumps(new)} (before: {json.dumps(old)})"
            for path, old, new in differences(then, now)
        ]
    else:
        changed = [] if then == now else [f"it has no spec {run_dir.spec_name}"]
    if changed:
        yield (
            f"{spec_file} has changed since the run was started, and the run keeps "
            f"its own spec: {_some(changed)}"
        )


def rows_notes(spec: Spec, budget_before: int) -> Iterator[str]:
    """A line if a larger budget has very many rows. They stay even: metrics are means
    over them."""
    budget = spec.env.max_frame
    rows = spec.meta.share_of(budget) // spec.log_frequency
    if budget > budget_before and rows > MANY_ROWS:
        yield (
            f"meta.log_frequency stays {spec.log_frequency}, as at the start: "
            f"{rows:,} rows per Session, which make graphs slow. For {ROWS} rows "
            "begin a new run, or the first one with -s "
            f"meta.log_frequency={spec.default_log_frequency}"
        )


def versions_notes(
    origin: Mapping[str, Any], start: Mapping[str, Any], verb: str = "resuming"
) -> Iterator[str]:
    """Yields a line if the run was last trained with other versions or another commit
    than `start`. `verb` says what is done with it."""
    then = _versions(starts_of(origin)[-1])
    now = _versions(start)
    changed = [
        f"{name} {now.get(name, 'missing')} (before: {then.get(name, 'missing')})"
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    ]
    if changed:
        yield (
            f"{verb} with {_some(changed)}: numbers may differ from those of an "
            "uninterrupted run; the run's spec file keeps both records"
        )


def check_checkpoints(
    spec: Spec, run_dir: RunDir, manifests: Sequence[Manifest | None]
) -> None:
    """Raises UsageError if a Session that has rows and ended without an error, per the
    run's metrics, has no checkpoint. It would restart and overwrite its rows."""
    # Empty if the run was killed before it had metrics, or the file was edited.
    recorded = value_at(trial_metrics(run_dir, 0), "sessions", [])
    ends = [end for end in recorded if value_at(end, "error") is None]
    reached = {value_at(end, "session", -1): value_at(end, "frame", 0) for end in ends}
    for session, manifest in enumerate(manifests):
        paths = run_dir.session(0, session)
        if (
            manifest is not None
            or session not in reached
            or spec.meta.is_actor(session)
        ):
            continue
        if len(RowFile(paths.rows).read()):
            raise UsageError(
                f"{run_dir.root}: Session {session} had reached frame "
                f"{reached[session]:,}, but its checkpoint "
                f"{paths.manifest.relative_to(run_dir.root)} is missing: restore the "
                f"files of {paths.models.name}, or start a new run"
            )


def check_initial(run_dir: RunDir, origin: Mapping[str, Any]) -> None:
    """Raises UsageError if the weights that the run began with are lost or damaged.
    Without them Sessions that have no checkpoint would begin with fresh weights."""
    recorded = origin.get("init_from")
    if recorded is None:
        return
    file = run_dir.initial_file
    with suppress(OSError):
        if hashlib.sha256(read_bytes(file)).hexdigest() == value_at(recorded, "sha256"):
            return
    parent = value_at(recorded, "run", "another run")
    raise UsageError(
        f"{file} is missing or damaged, and the run has to begin with it again: "
        f"restore it, or start a new run with --init-from {parent}"
    )


def reopen(run_dir: RunDir, ended: Sequence[bool]) -> None:
    """Takes back the final return in the run's metrics, and the end of the Sessions
    that train on. A resumed run that is killed is then no finished one."""
    file = run_dir.trial_metrics_file(0)
    metrics = read_object(file)
    unfinished = [session for session, over in enumerate(ended) if not over]
    for end in value_at(metrics, "sessions", []):
        if (
            value_at(end, "ending") == Ending.FINISHED
            and value_at(end, "session") in unfinished
        ):
            end["ending"] = Ending.INTERRUPTED
    kept = {
        key: value
        for key, value in metrics.items()
        if not key.startswith("final_return")
    }
    for path in (file, run_dir.root / "info" / file.name) if metrics else ():
        write_json(path, kept)


def check_budget(
    spec: Spec,
    budget_before: int,
    run_dir: RunDir,
    manifests: Sequence[Manifest | None],
) -> None:
    """Raises SpecError for a new budget that a training has already spent."""
    budget = spec.env.max_frame
    if budget >= budget_before:
        return
    for sessions in spec.meta.trainings:
        frames = [
            0 if (saved := manifests[session]) is None else saved.frame
            for session in sessions
        ]
        reached = sum(frames)
        if reached > budget:
            why = (
                f"the run has trained {reached:,} frames already; set at least as many"
            )
            where = f"-s for train@{run_dir.root}"
            raise SpecError.of(where, "env.max_frame", why, budget)


def _versions(start: Mapping[str, Any]) -> dict[str, str]:
    """Versions by name: of packages and Python, and the commit of the lab."""
    commit, dash, dirty = str(start.get("git_sha")).partition("-")
    packages = {
        str(name): str(version) for name, version in start.get("packages", {}).items()
    }
    return {
        **packages,
        "python": str(start.get("python")),
        "commit": commit[:7] + dash + dirty,
    }


def _some(changed: Sequence[str]) -> str:
    more = ""
    if len(changed) > SHOWN:
        more = f" and {len(changed) - SHOWN} more"
    return ", ".join(changed[:SHOWN]) + more
