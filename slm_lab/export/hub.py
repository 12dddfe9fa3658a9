"""Shared runs on the Hugging Face Hub: a repository holds the archive and its card."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import ModuleType

from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.files import read_file, write_atomically
from slm_lab.core.process import quietly
from slm_lab.env.extras import require
from slm_lab.export.shared_run import shared_files, zipped
from slm_lab.records.archive import MAX_BYTES, naming, unpacked
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.lookup import find_folder
from slm_lab.records.playable_run import PlayableRun

ARCHIVE = "run.zip"
LOCAL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS)
"""Error numbers of this machine's disk."""
SILENT_SECONDS = 30.0
"""How long the Hub may leave a request without any answer."""


def push(run: PlayableRun, saved: AgentCheckpoint, repo: str, private: bool) -> str:
    """Uploads the agent `saved` of `run` to the repository OWNER/NAME, made if needed;
    returns its address. Raises UsageError without a token, MissingExtraError, LabError
    if the Hub refuses."""
    file = f"{_name(repo)}.zip"
    with _hub() as hub:
        if hub.get_token() is None:
            raise UsageError("no token for the Hub: run hf auth login, or set HF_TOKEN")
        files = shared_files(run, saved, file, repo)
        shown = {
            name: content
            for name, content in files.items()
            if name.endswith((".md", ".png"))
        }
        page = hub.HfApi().create_repo(repo, private=private, exist_ok=True)
        operations = [
            hub.CommitOperationAdd(name, content)
            for name, content in {**shown, ARCHIVE: zipped(files)}.items()
        ]
        message = f"Agent of {run.spec.name}"
        hub.HfApi().create_commit(page.repo_id, operations, commit_message=message)
        return str(page)


def pull(repo: str, out: Path | None) -> Path:
    """Downloads the archive of OWNER/NAME to `out`, by default NAME.zip, and returns
    its path. Raises UsageError if there is none, it is no shared run, or the file
    exists."""
    path = out
    if path is None:
        path = Path(f"{_name(repo)}.zip")
    if path.suffix != ".zip":
        raise UsageError(f"--out {path}: must end in .zip")
    _refuse_existing(path)
    with _hub() as hub, TemporaryDirectory() as folder:
        api = hub.HfApi()
        size = api.get_hf_file_metadata(url=hub.hf_hub_url(repo, ARCHIVE)).size or 0
        if size > MAX_BYTES:
            raise UsageError(
                f"{repo} has {size >> 20} MiB; a shared run has {MAX_BYTES >> 20}"
            )
        file = Path(api.hf_hub_download(repo, ARCHIVE, local_dir=folder))
        with naming(Path(repo), Path(folder)), unpacked(str(file)) as run:
            find_folder(run, Path(folder))
            content = read_file(file)
    _refuse_existing(path)  # the download took its time
    write_atomically(path, content)
    return path


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path} exists; choose another file with --out")


def _name(repo: str) -> str:
    owner, _, name = repo.partition("/")
    if not owner or not name or "/" in name:
        raise UsageError(f"{repo!r}: must be OWNER/NAME")
    return name


@contextmanager
def _hub() -> Iterator[ModuleType]:
    """The package of the Hub. Its errors become one line."""
    require("huggingface_hub", "hub")
    import huggingface_hub as hub
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HTTPError,
        RepositoryNotFoundError,
    )
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    hub.get_session().timeout = SILENT_SECONDS  # by default a request may wait for ever
    try:
        with quietly():
            yield hub
    except LabError:
        raise
    except (EntryNotFoundError, RepositoryNotFoundError) as error:
        reason = "there is no such shared run; a private one needs a token"
        raise UsageError(f"the Hub: {reason}") from error
    except (OSError, ValueError, RuntimeError, HTTPError) as error:
        if isinstance(error, OSError) and error.errno in LOCAL:
            error.filename = error.filename or gettempdir()
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if isinstance(error, json.JSONDecodeError):
            reason = f"{hub.constants.ENDPOINT} answers as no Hub does: {reason}"
        if isinstance(error, HTTPError) and not isinstance(error, HfHubHTTPError):
            reason = f"no connection to {hub.constants.ENDPOINT}: {reason}"
        raise UsageError(f"the Hub: {reason}") from error
