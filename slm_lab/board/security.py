"""Who may ask the server for what: this machine's browsers, for files of the data folder."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from flask import Flask, Request, Response, abort, request, send_file

HOSTS = ("127.0.0.1", "localhost", "::1")
"""The names of this machine: a page that rebinds its own name to 127.0.0.1 has another."""
SERVED = {
    ".html": "text/html", ".js": "text/javascript", ".png": "image/png", ".mp4": "video/mp4",
    ".csv": "text/plain", ".json": "text/plain", ".jsonl": "text/plain", ".log": "text/plain",
}  # fmt: skip
"""The kinds of files that are served."""
_OF_FILES = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'; img-src data: blob:"
)
"""A page of a run may come from anywhere: it draws, alone, and reads or sends nothing."""


def secure(server: Flask, root: Path, script_hashes: Sequence[str]) -> None:
    """Checks every request, adds headers to every answer, and serves files of the folder `root`."""
    # plotly's parallel coordinates compile their own drawing code: 'unsafe-eval'.
    scripts = f"'self' 'unsafe-eval' {' '.join(script_hashes)}"
    policy = (
        f"default-src 'none'; script-src {scripts}; connect-src 'self'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
        "media-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
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

    @server.get("/files/<path:path>")
    def file(path: str) -> Response:
        if (found := served(root, path)) is None:
            abort(404)
        response = send_file(found, SERVED[found.suffix], conditional=True, max_age=0)
        response.headers["Content-Security-Policy"] = _OF_FILES
        return response


def is_allowed(asked: Request) -> bool:
    """Whether a request is for a name of this machine, and does not come from another page."""
    if urlsplit(f"//{asked.host}").hostname not in HOSTS:
        return False
    origin, site = asked.headers.get("Origin"), asked.headers.get("Sec-Fetch-Site", "none")
    if origin not in (None, f"http://{asked.host}") and asked.method != "GET":
        return False
    is_own = site in ("same-origin", "none")
    is_opened = asked.headers.get("Sec-Fetch-Mode") == "navigate"
    is_script = asked.path.startswith("/files/") and asked.path.endswith(".js")
    return is_own or (asked.method == "GET" and (is_opened or is_script))


def served(root: Path, path: str) -> Path | None:
    """The file at a path in the folder `root`; None if it lies elsewhere, through links or not, or
    is of no kind that is served."""
    try:
        found = Path(os.path.realpath(root / path))
    except ValueError:  # a zero byte
        return None
    if found.suffix not in SERVED or not found.is_relative_to(root) or not found.is_file():
        return None
    is_hidden = any(part.startswith(".") for part in found.relative_to(root).parts)
    return None if is_hidden else found
