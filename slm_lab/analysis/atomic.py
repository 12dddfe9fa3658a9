"""Files that appear whole or not at all."""

import json
import os
from pathlib import Path

from slm_lab.core.files import new_file


def write_atomically(path: Path, content: bytes) -> None:
    """Replaces `path` by `content` in one step, so that nobody ever reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with new_file(temporary) as stream:
            stream.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: object) -> None:
    """Writes JSON data, as `write_atomically` does."""
    write_atomically(path, json.dumps(content, indent=2).encode() + b"\n")
