"""The spec of a run that goes on: the one that it was started with, and what may change of it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.experiment.manifest import Manifest
from slm_lab.experiment.recorded import recorded_seed
from slm_lab.experiment.result import Ending
from slm_lab.experiment.run_dir import RunDir
from slm_lab.spec.load import load_spec
from slm_lab.spec.schema.spec import Spec


@final
@dataclass(frozen=True)
class Continued:
    """What a run goes on with."""

    spec: Spec
    root_seed: int
    is_changed: bool
    """Whether `-s` changes the spec."""
    notes: tuple[str, ...]
    """What the user should know of it."""


def continued(
    run_dir: RunDir,
    asked: Spec,
    sets: Sequence[str],
    seed: int | None,
    may_change: Collection[str],
) -> Continued:
    """What the run in `run_dir` goes on with, if `asked` is what the file says by now.

    What `-s` (`sets`) and `--seed` say is done, if it `may_change`, or refused by SpecError; where
    the file says something else by now, the run keeps what it was started with, and a note says so.
    """
    saved = load_spec(run_dir.spec_file, run_dir.spec_name, warn=False)
    root_seed = recorded_seed(run_dir, saved.meta.random_seed)
    explicit = {text.partition("=")[0] for text in sets}
    if seed is not None:
        explicit.add("meta.random_seed")
    changed = differences(saved.to_json(), asked.to_json())
    told = [change for change in changed if _is_set(change[0], explicit)]
    refused = [
        Problem(path, f"the run was started with {json.dumps(old)}; start a new run", new, True)
        for path, old, new in told
        if not _is_set(path, may_change)
    ]
    if refused:
        raise SpecError(f"{run_dir.root}: what was set for resuming", refused)
    notes = tuple(
        f"the run keeps {path} = {json.dumps(old)}, the file now says {json.dumps(new)}"
        for path, old, new in changed
        if not _is_set(path, explicit) and path != "meta.random_seed"
    )
    if not told:
        return Continued(saved, root_seed, False, notes)
    settings = [f"{path}={json.dumps(new)}" for path, _, new in told]
    spec = load_spec(run_dir.spec_file, run_dir.spec_name, settings, warn=False)
    return Continued(spec, root_seed, True, notes)


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


def _is_set(path: str, given: Collection[str]) -> bool:
    """Whether `path`, or a block around it, is among those that are `given`."""
    return any(path == each or path.startswith(f"{each}.") for each in given)
