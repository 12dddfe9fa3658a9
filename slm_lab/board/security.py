"""Who may ask the server for what: this machine's browsers, for files of the data
folder."""

import logging
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from socketserver import BaseServer
from threading import Lock
from typing import Any, final
from urllib.parse import urlsplit

from flask import Flask, Request, Response, abort, request, send_file
from typing_extensions import override
from werkzeug.exceptions import BadRequest, HTTPException, NotFound
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

logger = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""The most open connections. A further one closes the oldest, so slow clients cannot
block others."""
MOST_SECONDS = 30
"""The time that a connection may send nothing."""

HOSTS = ("127.0.0.1", "localhost", "::1")
"""The names of this machine: a page that rebinds its own name to 127.0.0.1 has
another."""
SERVED = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".png": "image/png",
    ".mp4": "video/mp4",
    ".csv": "text/plain",
    ".json": "text/plain",
    ".jsonl": "text/plain",
    ".log": "text/plain",
}
"""The kinds of files that are served."""
_POLICY_OF_FILES = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src "
    "'unsafe-inline'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; img-src data: "
    "blob:; frame-ancestors 'self'"
)
"""The Content-Security-Policy of a run's files, which may come from anywhere. A page
may run scripts to draw, but reads and sends nothing."""


def secure(server: Flask, root: Path, script_hashes: Sequence[str]) -> None:
    """Checks every request, adds headers to every answer, and serves files of the
    folder `root`."""
    # plotly's parallel coordinates compile their own drawing code: 'unsafe-eval'.
    scripts = f"'self' 'unsafe-eval' {' '.join(script_hashes)}"
    policy = (
        f"default-src 'none'; script-src {scripts}; connect-src 'self'; style-src "
        "'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "media-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'none'"
    )

    @server.before_request
    def check() -> None:
        if not is_allowed(request):
            abort(403)

    @server.after_request
    def add_headers(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Opener-Policy"] = "same-origin"
        return response

    @server.errorhandler(Exception)
    def refuse(error: Exception) -> HTTPException:
        """A request that cannot be answered is at fault: parts of pages report their
        own errors."""
        if isinstance(error, HTTPException):
            return error
        logger.debug("refused", exc_info=error)
        if isinstance(error, OSError):
            return NotFound()
        return BadRequest()

    @server.get("/files/<path:path>")
    def file(path: str) -> Response:
        place = served(root, path)
        if place is None:
            abort(404)
        response = send_file(place, SERVED[place.suffix], conditional=True, max_age=0)
        response.headers["Content-Security-Policy"] = _POLICY_OF_FILES
        return response


def is_allowed(asked: Request) -> bool:
    """Whether a request is for a name of this machine, and does not come from another
    page."""
    if urlsplit(f"//{asked.host}").hostname not in HOSTS:
        return False
    origin = asked.headers.get("Origin")
    site = asked.headers.get("Sec-Fetch-Site", "none")
    if origin not in (None, f"http://{asked.host}") and asked.method != "GET":
        return False
    is_own = site in ("same-origin", "none")
    is_opened = asked.headers.get("Sec-Fetch-Mode") == "navigate"
    is_script = asked.path.startswith("/files/") and asked.path.endswith(".js")
    return is_own or (asked.method == "GET" and (is_opened or is_script))


def served(root: Path, path: str) -> Path | None:
    """The file at a path in the folder `root`. None if it lies elsewhere, through links
    or not, or if its kind is not served."""
    try:
        place = Path(os.path.realpath(root / path))
    except ValueError:  # a zero byte
        return None
    is_inside = place.suffix in SERVED and place.is_relative_to(root)
    # unlike the method, the function is false for a name too long
    if not is_inside or not os.path.isfile(place):
        return None
    if any(part.startswith(".") for part in place.relative_to(root).parts):
        return None
    return place


class _Handler(WSGIRequestHandler):
    """Answers one request, unless its connection sends nothing for too long."""

    timeout = MOST_SECONDS

    @override
    def log(self, type: str, message: str, *args: Any) -> None:
        pass  # a bad request is no news for the terminal


@final
class BoundedServer(ThreadedWSGIServer):
    """A thread for each connection, of which there are at most `MOST_CONNECTIONS`."""

    def __init__(self, host: str, port: int, app: Flask, fd: int) -> None:
        super().__init__(host, port, app, _Handler, fd=fd)
        self._lock = Lock()
        self._open: dict[Any, None] = {}

    @override
    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serves until `shutdown`; Ctrl-C raises KeyboardInterrupt, as everywhere."""
        BaseServer.serve_forever(self, poll_interval)

    @override
    def log(self, type: str, message: str, *args: Any) -> None:
        pass

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open[request] = None
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # ends its thread
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        # it has ended in the middle of an answer
        logger.debug("a connection has failed", exc_info=True)
