"""A run as one file to share: spec, agent, rows, metrics, graph and a card."""

import io
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from slm_lab.core.files import read_file, write_atomically, write_json
from slm_lab.experiment.export.card import card
from slm_lab.experiment.saved_run import SavedAgent, SavedRun
from slm_lab.spec import read
from slm_lab.storage.archive import naming
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.run_dir import RUN_BLOCK, RunDir, origin_of

SHARED = ("format", "started", "random_seed", "git_sha", "packages", "python", "set", "imports")
"""The keys of the run's origin that are kept: none about the machine or its folders."""
GRAPH = "_trial_graph_mean_returns_ma_vs_frames.png"


def shared_files(
    run: SavedRun, saved: SavedAgent, file: str, repo: str | None = None
) -> dict[str, bytes]:
    """A run folder with one agent: its files, and a card that names the archive `file` and the
    `repo` on the Hub. A trial of a search becomes a single run."""
    with naming(saved.folder, run.run_dir.root), TemporaryDirectory() as parent:
        folder = Path(parent)
        _fill(folder, run, saved)
        write_atomically(folder / "README.md", card(run, saved, folder, file, repo).encode())
        files = sorted(folder.rglob("*.*"))
        return {each.relative_to(folder).as_posix(): read_file(each) for each in files}


def zipped(files: Mapping[str, bytes]) -> bytes:
    """The archive with these files, which `storage.archive` reads."""
    content = io.BytesIO()
    with ZipFile(content, "w") as archive:
        for name, each in files.items():
            archive.writestr(name, each)
    return content.getvalue()


def _fill(folder: Path, run: SavedRun, saved: SavedAgent) -> None:
    source, shared, name = run.run_dir, RunDir(folder, run.spec.name), run.spec.name
    origin = origin_of(source.spec_file)
    about = {key: origin[key] for key in SHARED if key in origin}
    content = {name: read.read_file(run.spec_file)[name], RUN_BLOCK: about}
    write_json(shared.spec_file, content)
    write_json(shared.trial_spec_file(0), content)
    before, after = source.trial_prefix(run.trial), shared.trial_prefix(0)
    patterns = (
        f"{before}_trial_metrics_scalar.json",
        f"info/{before}_s*_session_*",
        f"**/{before}{GRAPH}",
    )
    for file in (file for pattern in patterns for file in source.root.glob(pattern)):
        target = file.relative_to(source.root).with_name(after + file.name.removeprefix(before))
        write_atomically(folder / target, read_file(file))
    (folder / "model").mkdir()
    store = CheckpointStore(folder / "model", shared.session(0, saved.session).prefix)
    store.save(saved.frame, {}, {"best": saved.snapshot})
