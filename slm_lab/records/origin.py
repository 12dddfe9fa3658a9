"""The origin of a run: the block `_run` beside the spec in the run's spec file.

It records how the run was started and, under "resumed", how it was resumed. Each entry
has the versions, the commit and the machine."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.recorded import recordable, recordable_text, value_at
from slm_lab.core.text import public_words
from slm_lab.spec.override import parse_setting
from slm_lab.spec.read import read_file
from slm_lab.storage.manifest import FORMAT
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir

PACKAGES = (
    "slm-lab",
    "torch",
    "gymnasium",
    "numpy",
    "pandas",
    "ale-py",
    "mujoco",
    "box2d",
    "pybullet",
    "envpool",
)
DESCRIBE = "describe --always --abbrev=40 --dirty --exclude=*"
"""The git command that names the checked-out commit."""
GIT_SECONDS = 30.0
"""The longest wait for git. On a busy machine it compares the files for over five."""

MOST_RESUMES = 200
"""Resumes in the record of a run, the last; more would exceed what its readers
accept."""


def resumed(
    origin: Mapping[str, Any],
    facts: Mapping[str, Any],
    sets: Sequence[str],
    **more: Any,
) -> dict[str, Any]:
    """The block of a resumed run: `origin` with this resume appended."""
    _, *resumes = starts_of(origin)
    newest = {**facts, "set": list(sets), **more}
    return {**origin, "resumed": [*resumes[-MOST_RESUMES + 1 :], newest]}


def read_origin(run_dir: RunDir) -> dict[str, Any]:
    """The block of a run to be resumed. Raises UsageError if this version cannot resume
    the run's format, SpecError if its spec file cannot be read."""
    where = str(run_dir.spec_file)
    origin = read_file(run_dir.spec_file).get(RUN_BLOCK, {})
    if not isinstance(origin, dict):
        raise SpecError.of(where, RUN_BLOCK, "must be a block {…}")
    check_format(run_dir.root, origin.get("format"))
    for start in starts_of(origin):
        sets = None
        if isinstance(start, dict):
            sets = start.get("set")
        if not isinstance(sets, list) or not all(
            isinstance(text, str) for text in sets
        ):
            raise SpecError.of(where, f"{RUN_BLOCK}.set", "must be a list of key=value")
        if not isinstance(start.get("packages"), dict):
            message = "must be a block {name: version}"
            raise SpecError.of(where, f"{RUN_BLOCK}.packages", message)
    return origin


def check_format(folder: Path, version: object) -> None:
    """Raises UsageError if a run folder is not of the present format."""
    if version == FORMAT:
        return
    is_newer = isinstance(version, int) and version > FORMAT
    fix = "start a new run; eval@, enjoy@ and plot still read this one"
    if is_newer:
        fix = "update slm-lab, or start a new run"
    kind = "an older format"
    if version is not None:
        kind = f"format {version}"
    raise UsageError(
        f"{folder} has {kind}, but this version resumes format {FORMAT}: {fix}"
    )


def typed_settings(
    origin: Mapping[str, Any], sets: Sequence[str]
) -> tuple[list[str], list[Problem]]:
    """Splits the `-s` settings for an existing run: settings of spec keys, and
    problems. A problem is a variable whose value differs from its value at the start.
    An equal value is ignored."""
    recorded = origin.get("set")
    texts = [] if not isinstance(recorded, list) else recorded
    settings = [parse_setting(text) for text in texts if _is_setting(text)]
    variables = {
        setting.key: setting.value for setting in settings if "." not in setting.key
    }
    keys = []
    problems = []
    for text in sets:
        name = text.partition("=")[0].strip()
        if name not in variables or not _is_setting(text):
            keys.append(text)
        elif (value := parse_setting(text).value) != variables[name]:
            started = json.dumps(variables[name])
            message = f"the run was started with {started}; start a new run"
            problems.append(Problem(f"-s {name}", message, value))
    return keys, problems


def _is_setting(text: object) -> bool:
    """Whether it is "key=value"; the check of the spec reports malformed settings."""
    return (
        isinstance(text, str) and bool(text.partition("=")[0].strip()) and "=" in text
    )


def starts_of(origin: Mapping[str, Any]) -> list[Any]:
    """How the run was started, and then resumed."""
    resumes = origin.get("resumed")
    return [origin, *(resumes if isinstance(resumes, list) else [])]


def trackers_of(origin: Mapping[str, Any]) -> tuple[str, ...]:
    """The trackers that the user named last, when the run began or was resumed."""
    for start in reversed(starts_of(origin)):
        names = value_at(start, "track", [])
        if names:
            return tuple(map(str, names))
    return ()


def provenance(root_seed: int) -> dict[str, Any]:
    """The root seed, the time, the commit, package versions and the machine, as bounded
    JSON."""
    origin = {
        "started": datetime.now(UTC).isoformat(),
        "random_seed": root_seed,
        "git_sha": git_sha(),
        "packages": {name: number for name in PACKAGES if (number := installed(name))},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "command": public_words(sys.argv),
    }
    recorded: dict[str, Any] = recordable(origin)
    return recorded


def git_sha() -> str | None:
    """The commit of the lab's source, with "-dirty" if files differ; None outside a
    clone."""
    here = Path(__file__)
    revision = ""
    for command in (f"ls-files --error-unmatch {here.name}", DESCRIBE):
        git = ["git", "-C", str(here.parent), *command.split()]
        try:
            done = subprocess.run(
                git, capture_output=True, text=True, timeout=GIT_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        revision = done.stdout.strip()
    return revision


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """The name of this machine's processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return recordable_text(line.partition(":")[2].strip())
    return recordable_text(platform.processor())
