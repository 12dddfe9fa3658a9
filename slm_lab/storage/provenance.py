"""The provenance of a run, for repeating it: versions, commit, machine."""

import os
import platform
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from slm_lab.core.recorded import recordable, recordable_text
from slm_lab.core.text import public_words

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


def provenance(root_seed: int) -> dict[str, Any]:
    """The root seed, the time, the commit, package versions and the machine, as bounded
    JSON."""
    about = {
        "started": datetime.now(UTC).isoformat(),
        "random_seed": root_seed,
        "git_sha": git_sha(),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "python": platform.python_version(),
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "cores": os.cpu_count(),
        },
        "command": public_words(sys.argv),
    }
    recorded: dict[str, Any] = recordable(about)
    return recorded


def git_sha() -> str | None:
    """The commit of the lab's source, with "-dirty" if files differ; None outside a
    clone."""
    here, found = Path(__file__), ""
    for command in (f"ls-files --error-unmatch {here.name}", DESCRIBE):
        git = ["git", "-C", str(here.parent), *command.split()]
        try:
            done = subprocess.run(
                git, capture_output=True, text=True, timeout=5, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = done.stdout.strip()
    return found


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
