"""The command `slm-lab board`: starts the server of the pages, and opens the browser."""

import os
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from threading import Thread

from slm_lab.cli.display.screen import console, print_line
from slm_lab.env.lookup import require


def show_board(data: Path, port: int | None, no_open: bool) -> None:
    """Serves the pages until Ctrl-C. Raises LabError."""
    for module in ("dash", "dash_ag_grid"):
        require(module, "board")
    from slm_lab.board.app import make_board

    server, address = make_board(data, port)
    print_line(console(), f"board of {data}: {address} (Ctrl-C ends it)")
    # Without a window, a browser may take over the terminal.
    has_screen = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if not no_open and has_screen:
        Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.serve_forever()
