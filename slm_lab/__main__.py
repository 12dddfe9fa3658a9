"""The entry points. Until the command line is imported, a stop signal ends the process
at once."""

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():
    # `python -m` puts the working directory first, where a file would replace any
    # module. It stays only where the lab itself lies there.
    import slm_lab

    if not str(slm_lab.__file__).startswith(os.path.join(sys.path[0], "")):
        del sys.path[0]

import atexit
import signal
from contextlib import suppress

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOPPED = b'{"status": "stopped", "folder": null, "exit_code": 130}\n'
"""What `--json` prints if the command is stopped before it begins, see
`cli.shell.signals`."""


def main() -> None:
    """The command `slm-lab`, and `python -m slm_lab`."""
    _end_at_stop_signals()
    from slm_lab.cli.main import main as run_command_line

    run_command_line()


def run_lab() -> None:
    """The command `run_lab.py`."""
    _end_at_stop_signals()
    from slm_lab.cli.main import run_lab as run_command_line

    run_command_line()


def run_for_caller() -> None:
    """The command of a process that the Python API has started."""
    _end_at_stop_signals()
    from slm_lab.cli.dispatch import run_for_caller as run_request

    run_request()


def _end_at_stop_signals() -> None:
    """Exits with 130 at Ctrl-C, SIGTERM or a closed terminal, while there is nothing to
    save. While a command runs, `report_errors` handles them. They are ignored while the
    interpreter ends. It would restore their defaults, and a command that has ended
    would seem to be killed."""
    atexit.register(_ignore_stop_signals)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, _end)


def _end(*_: object) -> None:
    if "--json" in sys.argv:
        with suppress(OSError):  # the reader has closed the pipe
            os.write(1, STOPPED)
    os._exit(130)


def _ignore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
