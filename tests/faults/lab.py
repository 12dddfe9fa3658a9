"""The real command line in its own process: started, watched, interrupted, killed."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from slm_lab.storage.run_dir import FOLDERS, RunDir
from slm_lab.testing.sessions import TIMING_COLUMNS

LAB = Path(sys.executable).with_name("slm-lab")
NAME = "small"
FEW_ROWS = re.compile(
    r"^.*suspicious setting: meta\.log_frequency = .*\n|; meta\.log_frequency = .*",
    re.M,
)
PATIENCE = 150.0
"""Seconds to wait for an expected event before the test fails."""


@contextmanager
def mounted_disk(place: Path, *what: str) -> Iterator[None]:
    """Has a disk mounted at `place`; `what` are the arguments of `mount` before it.
    Skips the test where that is not possible."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a disk")
    done = subprocess.run(
        ["mount", *what, str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a disk: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def outcome(self) -> tuple[int, str]:
        """The exit code, and what was reported."""
        return self.code, self.err

    @property
    def both(self) -> str:
        """What it has printed on both streams."""
        return self.out + self.err

    @classmethod
    def of(cls, code: int, out: str, err: str) -> "Done":
        """Without the warning that small specs write few rows, which is intended
        here."""
        return cls(code, out, FEW_ROWS.sub("", err))


@dataclass
class Running:
    """A command that runs, in its own process group."""

    process: subprocess.Popen[bytes]
    data: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal_group(self, number: int) -> None:
        """What a terminal does on Ctrl-C: the parent and all its children get the
        signal."""
        os.killpg(self.pid, number)

    def children(self) -> list[psutil.Process]:
        return children_of(self.pid)

    def forked(self) -> list[psutil.Process]:
        """What the fork server has started: Sessions, and the one that measures a
        random agent."""
        own = children_of(self.pid, recursive=False)
        return [process for child in own for process in children_of(child.pid)]

    def session(self, index: int) -> psutil.Process | None:
        """The process of a Session."""
        return session_of(self.pid, index)

    def end(self, timeout: float = PATIENCE) -> Done:
        """Waits for the end."""
        self.process.wait(timeout)
        return Done.of(
            self.process.returncode, *(_output(self.data, n) for n in ("out", "err"))
        )


def children_of(pid: int, recursive: bool = True) -> list[psutil.Process]:
    """All processes under one; none where it is gone."""
    try:
        return psutil.Process(pid).children(recursive)
    except psutil.NoSuchProcess:
        return []


def session_of(pid: int, index: int) -> psutil.Process | None:
    """The process of a Session under a Trial's: the one that holds its text log
    open."""
    return next((c for c in children_of(pid) if f"_s{index}.log" in _open(c)), None)


def command_line(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def write_spec(folder: Path, spec: Mapping[str, Any]) -> Path:
    """A spec file with one spec in it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "spec.json"
    path.write_text(json.dumps({NAME: spec}))
    return path


def command(folder: Path, mode: str, *options: str) -> list[str]:
    """The command that trains, or resumes, the spec in `folder`; the data are beside
    it."""
    spec = str(folder / "spec.json")
    data = str(folder / "data")
    return [str(LAB), "run", spec, NAME, mode, "--data", data, *options]


def call(args: list[str], cwd: Path) -> Done:
    """Runs a command to its end."""
    done = subprocess.run(
        args, cwd=cwd, capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    return Done.of(done.returncode, done.stdout, done.stderr)


def call_here(args: list[str], cwd: Path) -> Done:
    """The same in this process, which saves the imports.

    For a command that is not stopped and imports no plug-in."""
    # here: processes that tests start import this module
    from typer.testing import CliRunner

    from slm_lab.cli.main import app

    with contextlib.chdir(cwd):
        done = CliRunner().invoke(
            app, args[1:], env={"COLUMNS": "80"}, catch_exceptions=False
        )
    return Done.of(done.exit_code, done.stdout, done.stderr)


def lab(folder: Path, *words: object) -> Done:
    """What `slm-lab` with these words does in `folder`, in this process: see
    `call_here`."""
    return call_here([str(LAB), *map(str, words)], folder)


def run(folder: Path, mode: str, *options: str) -> Done:
    """Runs `command`, which must succeed without a word on stderr."""
    done = call(command(folder, mode, *options), folder)
    assert done.outcome == (0, "")
    return done


def run_here(folder: Path, mode: str, *options: str) -> Done:
    """The same in this process."""
    done = call_here(command(folder, mode, *options), folder)
    assert done.outcome == (0, "")
    return done


@contextmanager
def started(folder: Path, mode: str = "train", *options: str) -> Iterator[Running]:
    """Starts `command`, and ends all of its processes after the test."""
    with started_as(folder, command(folder, mode, *options)) as running:
        yield running


@contextmanager
def started_as(folder: Path, args: list[str]) -> Iterator[Running]:
    """The same of any command line."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            args, cwd=folder, stdout=out, stderr=err, start_new_session=True
        )
    running = Running(process, folder)
    try:
        yield running
    finally:
        left = running.children()
        if process.poll() is None:
            process.kill()
        process.wait()
        for child in left:
            if child.is_running():
                child.kill()


def wait_until(condition: Callable[[], Any], timeout: float = PATIENCE) -> Any:
    """The first value of `condition` that is true; fails when there is none in time."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"nothing happened in {timeout} s"
        time.sleep(0.005)  # the pause of a poll: the condition decides, not the time
    return value


def all_gone(processes: Iterable[psutil.Process]) -> bool:
    """Whether none of them runs any more."""
    return not any(_runs(process) for process in processes)


def _runs(process: psutil.Process) -> bool:
    """It may end between two calls."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def empty_run(folder: Path) -> RunDir:
    """The folder of a run that a test starts in this process."""
    run_dir = RunDir(folder / "data" / "run", NAME)
    for part in FOLDERS:
        (run_dir.root / part).mkdir(parents=True)
    return run_dir


def run_folder(folder: Path) -> Path:
    """The only run folder in the data of `folder`."""
    (found,) = (path for path in (folder / "data").iterdir() if path.is_dir())
    return found


def rows_file(folder: Path, session: int = 0) -> Path:
    return run_folder(folder) / "info" / f"{NAME}_t0_s{session}_session_df_train.csv"


def row_count(folder: Path, session: int = 0) -> int:
    """Complete rows written so far, without the header; 0 where there is no run yet."""
    pattern = f"data/*/info/{NAME}_t0_s{session}_session_df_train.csv"
    return max(
        (path.read_bytes().count(b"\n") - 1 for path in folder.glob(pattern)), default=0
    )


def repeatable(path: Path) -> list[list[str]]:
    """The cells of a file of rows as they were written, less those that depend on
    time."""
    lines = [line.split(",") for line in path.read_text().splitlines()]
    keep = [i for i, column in enumerate(lines[0]) if column not in TIMING_COLUMNS]
    return [[line[i] for i in keep] for line in lines]


def manifest(folder: Path, session: int = 0) -> Path:
    return run_folder(folder) / "model" / f"{NAME}_t0_s{session}_latest.json"


def trial_metrics(folder: Path) -> dict[str, Any]:
    path = run_folder(folder) / f"{NAME}_t0_trial_metrics_scalar.json"
    content: dict[str, Any] = json.loads(path.read_text(), parse_constant=_refuse)
    return content


def interrupt(running: Running) -> None:
    running.signal_group(signal.SIGINT)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _open(process: psutil.Process) -> str:
    try:
        return " ".join(file.path for file in process.open_files())
    except psutil.Error:
        return ""


def _output(folder: Path, name: str) -> str:
    return (folder / name).read_text()
