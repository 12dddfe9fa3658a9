"""The spec of a run that is resumed: the recorded one, and what `-s` may change of it."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.experiment.consent import check_allowed, modules_of
from slm_lab.experiment.manifest import Manifest
from slm_lab.experiment.origin import in_file, last_start, read_origin, typed_settings
from slm_lab.experiment.recorded import recorded_seed
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run_dir import RunDir
from slm_lab.spec.load import load_spec
from slm_lab.spec.read import find_file
from slm_lab.spec.schema.spec import Spec

SHOWN = 5
"""Differences that one line has room for."""


@final
@dataclass(frozen=True)
class Continued:
    """What a run is resumed with."""

    spec: Spec
    root_seed: int
    is_changed: bool
    """Whether `-s` changes the spec."""
    origin: Mapping[str, Any]
    """How the run came about, see `origin`."""


def continued(
    run_dir: RunDir,
    sets: Sequence[str],
    seed: int | None,
    may_change: Collection[str],
    imports: Sequence[str],
    is_search: bool = False,
) -> Continued:
    """The recorded spec of the run in `run_dir`, with the keys that `-s` (`sets`) and `--seed` give
    now, and no other change.

    Raises SpecError for a change of what is not among the paths that `may_change`; UsageError for
    a run of another format, or one that names modules which `imports` do not allow.
    """
    origin = read_origin(run_dir)
    saved = load_spec(run_dir.spec_file, run_dir.spec_name, warn=False)
    check_allowed(run_dir.root, modules_of(saved), imports)
    root_seed = recorded_seed(run_dir, saved.meta.random_seed)
    keys, problems = typed_settings(origin, sets)
    overrides = {} if seed is None else {"meta.random_seed": seed}
    # Without a change there is nothing to doubt that was not reported at the start.
    how = {"warn": bool(keys), "for_search": is_search}
    spec = load_spec(run_dir.spec_file, run_dir.spec_name, keys, overrides, **how)
    changed = differences(saved.to_json(), spec.to_json())
    problems += [
        Problem(path, f"the run was started with {json.dumps(old)}; start a new run", new, True)
        for path, old, new in changed
        if not _is_among(path, may_change)
    ]
    if problems:
        raise SpecError(f"{run_dir.root}: what was set for resuming", problems)
    return Continued(spec, root_seed, bool(changed), origin)


def about_file(origin: Mapping[str, Any], spec_file: str, run_dir: RunDir) -> Iterator[str]:
    """One line where the spec file no longer says what it said when the run was started."""
    file = find_file(spec_file)
    if file.resolve() == run_dir.spec_file.resolve():
        return
    then, now = origin.get("file_spec"), in_file(Path(file), run_dir.spec_name)
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
    """One line where the run was last trained under other versions, or another commit, than
    `about`, the provenance of now."""
    last = last_start(origin)
    then, now = _versions(last), _versions(about)
    changed = [
        f"{name} {now.get(name, 'missing')} (before: {then.get(name, 'missing')})"
        for name in dict.fromkeys([*then, *now])
        if then.get(name) != now.get(name)
    ]
    if changed:
        yield (
            f"resuming under {_some(changed)}: numbers may differ from those of one uninterrupted "
            "run; the run's spec file keeps both records"
        )


def check_checkpoints(spec: Spec, run_dir: RunDir, manifests: Sequence[Manifest | None]) -> None:
    """Raises UsageError where a Session that had finished, as the run's own metrics say, has no
    checkpoint: it would begin anew, over the rows that it has."""
    try:
        told = json.loads(run_dir.trial_metrics_file(0).read_text())["sessions"]
        finished = {
            each["session"]: each["frame"] for each in told if each["ending"] == Ending.FINISHED
        }
    except (OSError, ValueError, KeyError, TypeError):
        return  # it was killed before it had any, or somebody has edited them
    for session, manifest in enumerate(manifests):
        if manifest is None and session in finished and not spec.meta.is_actor(session):
            paths = run_dir.session(0, session)
            raise UsageError(
                f"{run_dir.root}: Session {session} had come to frame {finished[session]:,}, and "
                f"its checkpoint {paths.manifest.relative_to(run_dir.root)} is gone: put back what "
                f"was in {paths.models.name}, or start a new run"
            )


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], path: Sequence[str] = ()
) -> list[tuple[str, Any, Any]]:
    """Dotted path, old and new value of every leaf in which two nested specs differ."""
    found = []
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        here = [*path, str(key)]
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, here)
        elif before != after:
            found.append((".".join(here), before, after))
    return found


def _is_among(path: str, given: Collection[str]) -> bool:
    """Whether `path`, or a block around it, is among those that are `given`."""
    return any(path == each or path.startswith(f"{each}.") for each in given)


def _versions(about: Mapping[str, Any]) -> dict[str, str]:
    """Of packages, of Python, and the commit of the lab, by name."""
    commit, dash, dirty = str(about.get("git_sha")).partition("-")
    packages = {str(name): str(found) for name, found in about.get("packages", {}).items()}
    return {**packages, "python": str(about.get("python")), "commit": commit[:7] + dash + dirty}


def _some(changed: Sequence[str]) -> str:
    more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
    return ", ".join(changed[:SHOWN]) + more
