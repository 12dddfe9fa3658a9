"""The entry points. Until the command line is imported, a stop signal ends the process silently."""

import atexit
import os
import signal

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


def _end_at_stop_signals() -> None:
    """Exits with 130 at Ctrl-C, SIGTERM or a closed terminal, while there is nothing to save. While
    a command runs, `report_errors` handles them. The end of the interpreter ignores them: it would
    restore their defaults, and an ended command would seem to be killed."""
    atexit.register(_ignore_stop_signals)
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda *_: os._exit(130))


def _ignore_stop_signals() -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()
