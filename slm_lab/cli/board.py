"""The command `slm-lab board`: starts the server of the pages, and opens the
browser."""

import os
import sys
import webbrowser
from pathlib import Path
from threading import Thread

from slm_lab.cli.display.screen import console, print_line
from slm_lab.cli.shell.signals import stopped_like_ctrl_c
from slm_lab.env.extras import require


def show_board(data: Path, port: int | None, no_open: bool) -> None:
    """Serves the pages until Ctrl-C, SIGTERM or SIGHUP. Raises LabError,
    KeyboardInterrupt."""
    for module in ("dash", "dash_ag_grid"):
        require(module, "board")
    from slm_lab.board.app import make_board

    server, address = make_board(data, port)
    with stopped_like_ctrl_c():
        print_line(console(), f"board of {data}: {address} (Ctrl-C ends it)")
        # Without a window, a browser may take over the terminal.
        has_screen = (
            sys.platform != "linux"
            or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
        )
        if not no_open and has_screen:
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.serve_forever()
