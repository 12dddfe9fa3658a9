"""The parts of a machine that the lab uses, and what may hold it back there."""

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.process import memory_kills, usable_cores
from slm_lab.env.extras import pip_command
from slm_lab.env.lookup import EXTRAS
from slm_lab.records.origin import installed

SHARED = Path("/dev/shm")
LEAST_SHARED = 2**28
LEAST_DISK = 2**30
LEAST_FILES = 1024
OF_SEVERAL = ("all", "bench", "dev", "tests")
"""Extras that serve no single part of the lab."""


class MachinePart(NamedTuple):
    """A part of the machine."""

    name: str
    found: str
    advice: str = ""
    """The advice for a user; empty if nothing is wrong."""


def examine(data_dir: Path) -> Iterator[MachinePart]:
    """The parts of this machine, for runs in `data_dir`. Imports torch."""
    yield from _software()
    yield _cores()
    yield from _space(data_dir)
    yield from _limits()
    yield from _extras()


def _software() -> Iterator[MachinePart]:
    """Python and torch, and the GPUs that it finds."""
    import torch

    python = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    yield MachinePart("Python", python)
    yield MachinePart("torch", torch.__version__)
    gpus = [
        torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())
    ]
    built = "" if torch.version.cuda else ": this torch is built for the CPU"
    yield MachinePart("GPU", ", ".join(gpus) or f"none{built}")


def _cores() -> MachinePart:
    usable = usable_cores()
    load = os.getloadavg()[0]
    busy = ""
    if load > usable:
        busy = "other work takes cores: speeds will be lower"
    return MachinePart("cores", f"{usable} of {os.cpu_count()}, load {load:.1f}", busy)


def _space(data_dir: Path) -> Iterator[MachinePart]:
    """The free space for runs and for shared memory."""
    here = data_dir.resolve()
    place = next(folder for folder in (here, *here.parents) if os.path.exists(folder))
    space = "free some space: slm-lab tidy --older 30d shows what could go"
    shared = "more for a container: docker run --shm-size=2g"
    for name, folder, least, advice in (
        ("disk", place, LEAST_DISK, space),
        ("shared memory", SHARED, LEAST_SHARED, shared),
    ):
        if os.path.exists(folder):
            free = shutil.disk_usage(folder).free
            yield MachinePart(
                name, f"{free / 2**30:.1f} GiB free", advice if free < least else ""
            )
    if not os.access(place, os.W_OK) or not os.path.isdir(place):
        advice = "choose another folder with --data"
        yield MachinePart("data folder", f"{data_dir} cannot be written", advice)


def _limits() -> Iterator[MachinePart]:
    """The number of files that a process may open, and processes that were killed."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    more = "ulimit -n 4096" if limit < LEAST_FILES else ""
    yield MachinePart("open files", f"at most {limit:,}", more)
    kills = memory_kills()
    if kills:
        advice = "smaller agent.memory.max_size, or fewer Sessions at once"
        yield MachinePart("memory", f"processes killed for memory: {kills}", advice)


def _extras() -> Iterator[MachinePart]:
    """The extras of the lab that are installed, and the others."""
    packages_of = _packages_of_extras()
    # box2d needs a package that only Gymnasium names, so its module is looked for
    modules = {extra.name: extra.module for extra in EXTRAS}
    missing = [
        extra
        for extra, packages in packages_of.items()
        if not all(map(installed, packages))
        or find_spec(modules.get(extra, "os")) is None
    ]
    present = [extra for extra in packages_of if extra not in missing]
    yield MachinePart("extras", ", ".join(present) or "none")
    if missing:
        to_do = f"if you need one: {pip_command(missing[0])}"
        yield MachinePart("extras not installed", ", ".join(missing), to_do)


def _packages_of_extras() -> dict[str, list[str]]:
    """The packages of each extra of the lab, from its metadata."""
    packages_of: dict[str, list[str]] = {}
    for line in requires("slm-lab") or ():
        match = re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", line)
        if match and match[2] not in OF_SEVERAL and match[1] != "slm-lab":
            packages_of.setdefault(match[2], []).append(match[1])
    return packages_of
