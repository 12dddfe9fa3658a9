"""Starts the process of `--track`, and waits for it at the end of a training."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, Self, final

from slm_lab.storage.run_dir import RunDir

LAST_SECONDS = 90.0
"""How long results, graphs and the agent may take to be sent."""
HURRIED_SECONDS = 15.0
"""The limit if the user has stopped the training."""
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""Settings of the libraries: by default MLflow asks a silent server for four minutes. A
tracker tries again by itself."""
NONE = "none"
"""The word that switches off the trackers that a run began with."""
MAIN = "from slm_lab.trackers.follow import main; main()"


@final
class TrackerProcess:
    """A process that sends what a training writes to trackers, until this block ends.

    It never affects the training. It ends with this process, however that ends."""

    def __init__(
        self,
        run_dir: RunDir,
        trackers: Sequence[str],
        imports: Sequence[str],
        resumes: bool,
    ) -> None:
        """Starts nothing without `trackers`. `imports` are the modules that offer
        callbacks."""
        self._process: subprocess.Popen[str] | None = None
        self._trackers = ", ".join(trackers)
        self._seconds = LAST_SECONDS
        if not trackers:
            return
        request = {
            "folder": str(run_dir.root),
            "spec_name": run_dir.spec_name,
            "trackers": list(trackers),
            "imports": list(imports),
            "resumes": resumes,
        }
        log = run_dir.root / "log" / f"{run_dir.prefix}_trackers.log"
        with ExitStack() as closed:
            errors: int | IO[bytes] = subprocess.DEVNULL
            with suppress(OSError):  # a full disk
                errors = closed.enter_context(log.open("ab"))
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", MAIN],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    errors="replace",
                    env={
                        **PATIENCE,
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(sys.path),
                    },
                    # what stops the training must not stop its last rows
                    start_new_session=True,
                )
            except OSError as error:
                print(
                    f"--track: {error.strerror}; the training goes on", file=sys.stderr
                )
                return
        self._is_given_up = False
        """Whether this process kills it; else its death is news to the user."""
        # the second does not wait for what a tracker has started, which holds the pipe
        self._threads = [
            threading.Thread(target=follow, daemon=True)
            for follow in (self._print, self._report_death)
        ]
        for thread in self._threads:
            thread.start()
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(OSError):  # it has ended, and has said why
            stdin.write(f"{json.dumps(request)}\n")
            stdin.flush()

    def __enter__(self) -> Self:
        return self

    def hurry(self) -> None:
        """Has the end wait less."""
        self._seconds = HURRIED_SECONDS

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Waits until the rest is sent, for a time; not at a second Ctrl-C. A signal
        ends the wait."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        try:
            with suppress(OSError):
                process.stdin.close()
            if kind is not KeyboardInterrupt:
                process.wait(self._seconds)
                for thread in self._threads:
                    thread.join(1.0)
        except subprocess.TimeoutExpired:
            print(
                f"{self._trackers}: not all was sent in {self._seconds:g} s; a resume "
                "sends the rest",
                file=sys.stderr,
            )
        finally:
            self._is_given_up = True
            # also what a tracker has started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _print(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with suppress(ValueError, OSError), self._process.stdout as lines:
            for line in lines:
                print(line.rstrip("\n"), file=sys.stderr)

    def _report_death(self) -> None:
        """Prints a line if the process dies by itself. One that returns has said why,
        or has sent all."""
        assert self._process is not None
        code = self._process.wait()
        if code == 0 or self._is_given_up:
            return
        how = f"ended early (exit code {code})"
        if code < 0:
            how = f"was killed by signal {-code}"
        print(
            f"{self._trackers}: its process {how}; the training goes "
            "on, and a resume sends the rest",
            file=sys.stderr,
        )
