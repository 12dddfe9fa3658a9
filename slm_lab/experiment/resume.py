"""Begins the record of a run, and makes a resumed run's spec: the recorded one with `-s`."""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, final

from slm_lab.core.errors import Problem, SpecError, UsageError, undone_on_failure
from slm_lab.core.files import read_object, write_json
from slm_lab.core.recorded import recordable
from slm_lab.env.versions import env_record
from slm_lab.experiment.run_source import RunSource
from slm_lab.experiment.trust import check_allowed, check_cluster_allowed, modules_of
from slm_lab.metrics.reader import RowFollower
from slm_lab.spec.load import load_spec
from slm_lab.spec.read import find_file, read_file
from slm_lab.spec.schema.spec import Spec
from slm_lab.storage.lock import RunLock
from slm_lab.storage.manifest import FORMAT, Manifest
from slm_lab.storage.maybe_damaged import trial_metrics, value_at
from slm_lab.storage.origin import read_origin, starts_of, typed_settings
from slm_lab.storage.provenance import provenance
from slm_lab.storage.result import Ending
from slm_lab.storage.run_dir import ORDER, RunDir, order_after, runs_in, sets_env
from slm_lab.storage.run_lookup import required_seed

SHOWN = 5
"""The maximum number of differences in a message."""


@final
@dataclass(frozen=True)
class ResumedSpec:
    """The spec and seed of a resumed run."""

    spec: Spec
    root_seed: int
    is_changed: bool
    """Whether `-s` changes the spec."""
    budget_before: int
    origin: Mapping[str, Any]
    """The record of how the run was started, see `storage.origin`."""


def begin_run(
    source: RunSource, spec: Spec, mode: str, **more: Any
) -> tuple[RunDir, RunLock, dict[str, Any]]:
    """A new run folder, its lock, and the block about its origin, with `more` entries."""
    env = spec.env.name if any(map(sets_env, source.sets)) else None
    order = order_after(runs_in(source.data_dir), datetime.now(UTC))
    run_dir = RunDir.create(source.data_dir, spec.name, datetime.now(), env)
    with undone_on_failure(lambda: shutil.rmtree(run_dir.root)):
        lock = RunLock(run_dir.root)
        ordered = {} if order is None else {ORDER: order}
        return run_dir, lock, {**_origin(source, spec, mode, **more), **ordered}


def about_clock(origin: Mapping[str, Any]) -> Iterator[str]:
    """A line if an earlier run has a later time, as after the clock was set back."""
    if (order := origin.get(ORDER)) is not None:
        yield (
            f"a run of this folder was started at {str(order)[:16]} (UTC), after now: the clock "
            "was set back. This run counts as the latest"
        )


def _origin(source: RunSource, spec: Spec, mode: str, **more: Any) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **provenance(spec.meta.random_seed or 0),
        "environment": env_record(spec.env),
        "spec_file": recordable(source.spec_file),
        "file_spec": _recorded_spec(read_file(find_file(source.spec_file)).get(spec.name)),
        "set": list(source.sets),
        "mode": mode,
        "imports": list(source.imports),
        **more,
        "name": recordable(source.label),
        "note": recordable(source.note),
    }


def _recorded_spec(spec: object) -> Any:
    """A spec as it stands in the file, for `about_file`; a table of data in it is cut."""
    return recordable(spec, most=10_000)


def with_known_precision(spec: Spec) -> Spec:
    """The spec with the precision of "auto" on this machine."""
    agent = spec.agent
    unknown = {key: net for key, net in agent.nets.items() if net.precision == "auto"}
    if unknown:
        from slm_lab.agent.net.precision import with_precision  # imports torch

        known = {key: {"precision": with_precision(net).precision} for key, net in unknown.items()}
        nets = {key: getattr(agent, key).model_copy(update=one) for key, one in known.items()}
        spec = spec.model_copy(update={"agent": agent.model_copy(update=nets)})
    return spec


def resumed_spec(
    run_dir: RunDir, source: RunSource, may_change: Collection[str], is_search: bool = False
) -> ResumedSpec:
    """The recorded spec of the run in `run_dir`, with the changes of `source`. Raises SpecError for
    a change outside the paths `may_change`, each a key or a block. Raises UsageError for a run of
    another format, or one that names modules not in `source.imports`."""
    origin = read_origin(run_dir)
    saved = load_spec(run_dir.spec_file, run_dir.spec_name, warn=False)
    check_allowed(run_dir.root, modules_of(saved), source.imports)
    root_seed = required_seed(run_dir, saved.meta.random_seed)
    keys, problems = typed_settings(origin, source.sets)
    overrides = {} if source.seed is None else {"meta.random_seed": source.seed}
    # Without a change, all suspicious keys were already reported at the start.
    how = {"warn": bool(keys), "for_search": is_search}
    spec = load_spec(run_dir.spec_file, run_dir.spec_name, keys, overrides, **how)
    spec = with_known_precision(spec)
    changed = differences(saved.to_json(), spec.to_json())
    problems += [
        Problem(path, f"the run was started with {json.dumps(old)}; start a new run", new)
        for path, old, new in changed
        if not any(path == each or path.startswith(f"{each}.") for each in may_change)
    ]
    if problems:
        raise SpecError(f"-s for train@{run_dir.root}", problems)
    check_cluster_allowed(run_dir.root, spec, source.sets)
    return ResumedSpec(spec, root_seed, bool(changed), saved.env.max_frame, origin)


def about_file(origin: Mapping[str, Any], spec_file: str, run_dir: RunDir) -> Iterator[str]:
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
            f"{spec_file} has changed since the run was started, and the run keeps its own spec: "
            f"{_some(changed)}"
        )


def about_versions(origin: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[str]:
    """A line if the run was last trained with other versions or another commit than `about`."""
    then, now = _versions(starts_of(origin)[-1]), _versions(about)
    changed = [
        f"{name} {now.get(name, 'missing')} (before: {then.get(name, 'missing')})"
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    ]
    if changed:
        yield (
            f"resuming with {_some(changed)}: numbers may differ from those of an uninterrupted "
            "run; the run's spec file keeps both records"
        )


def check_checkpoints(spec: Spec, run_dir: RunDir, manifests: Sequence[Manifest | None]) -> None:
    """Raises UsageError if a Session that has rows and ended without an error, per the run's
    metrics, has no checkpoint. It would restart and overwrite its rows."""
    # Empty if the run was killed before it had metrics, or the file was edited.
    recorded = value_at(trial_metrics(run_dir, 0), "sessions", [])
    ends = [each for each in recorded if value_at(each, "error") is None]
    reached = {value_at(each, "session", -1): value_at(each, "frame", 0) for each in ends}
    for session, manifest in enumerate(manifests):
        paths = run_dir.session(0, session)
        if manifest is not None or session not in reached or spec.meta.is_actor(session):
            continue
        if len(RowFollower(paths.rows).read()):
            raise UsageError(
                f"{run_dir.root}: Session {session} had reached frame {reached[session]:,}, but "
                f"its checkpoint {paths.manifest.relative_to(run_dir.root)} is missing: restore "
                f"the files of {paths.models.name}, or start a new run"
            )


def reopen(run_dir: RunDir, ended: Sequence[bool]) -> None:
    """Takes back the final return in the run's metrics, and the end of the Sessions that train on.
    A resumed run that is killed is then no finished one."""
    file = run_dir.trial_metrics_file(0)
    metrics = read_object(file)
    left = [session for session, over in enumerate(ended) if not over]
    for each in value_at(metrics, "sessions", []):
        if value_at(each, "ending") == Ending.FINISHED and value_at(each, "session") in left:
            each["ending"] = Ending.INTERRUPTED
    kept = {key: each for key, each in metrics.items() if not key.startswith("final_return")}
    for path in (file, run_dir.root / "info" / file.name) if metrics else ():
        write_json(path, kept)


def check_budget(
    recorded: ResumedSpec, run_dir: RunDir, manifests: Sequence[Manifest | None]
) -> None:
    """Raises SpecError for a new budget that a training has already spent."""
    budget, meta = recorded.spec.env.max_frame, recorded.spec.meta
    if budget >= recorded.budget_before:
        return
    for sessions in meta.trainings:
        frames = [0 if (saved := manifests[each]) is None else saved.frame for each in sessions]
        if (reached := sum(frames)) > budget:
            why = f"the run has trained {reached:,} frames already; set at least as many"
            raise SpecError(f"-s for train@{run_dir.root}", [Problem("env.max_frame", why, budget)])


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Sequence[str] = ()
) -> list[tuple[str, Any, Any]]:
    """Dotted path, old and new value of every leaf that differs between two nested specs."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        here = [*path, str(key)]
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, here)
        elif before != after:
            found.append((".".join(here), before, after))
    return found


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    """Versions by name: of packages and Python, and the commit of the lab."""
    commit, dash, dirty = str(about.get("git_sha")).partition("-")
    packages = {str(name): str(found) for name, found in about.get("packages", {}).items()}
    return {**packages, "python": str(about.get("python")), "commit": commit[:7] + dash + dirty}


def _some(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return ", ".join(changed[:SHOWN]) + more
