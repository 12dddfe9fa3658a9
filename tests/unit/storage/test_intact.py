"""A resumed run begins with the newest checkpoints that are whole."""

import json
import shutil

import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError, UsageError
from slm_lab.metrics.writer import Extent
from slm_lab.parallel.worker import note_in_log
from slm_lab.records.run_record import RowCache
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.intact import fall_back
from slm_lab.storage.manifest import pending_path, previous_path, read_manifest
from slm_lab.storage.run_dir import FOLDERS, RunDir
from tests.support import parse, ppo

HEADER = "frame,total_frame,recent_return\n"


@pytest.fixture
def run_dir(tmp_path):
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    return RunDir(tmp_path, "small")


def spec(**meta):
    return parse(ppo(**{f"meta__{key}": value for key, value in meta.items()}))


def save(paths, frame, writes=True, **parts):
    """A checkpoint of a Session that has a row for every hundred frames."""
    rows = {}
    if writes:
        content = HEADER + "".join(f"{f},{f},1.0\n" for f in range(100, frame + 1, 100))
        paths.rows.write_text(content)
        rows = {paths.rows.name: Extent.of(content.encode())}
    states = {"state": frame, **parts}
    states = {
        name: {"frame": number, "w": np.full(9, number)}
        for name, number in states.items()
    }
    CheckpointStore(paths.models, paths.prefix).save(frame, rows, states)


def file_of(paths, part="state", at=None):
    manifest = read_manifest(at or paths.manifest)
    return paths.models / manifest.files[part].name


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def frame_of(paths):
    return read_manifest(paths.manifest).frame


def test_intact_checkpoints_are_unchanged(run_dir):
    paths = run_dir.session(0, 0)
    assert fall_back(spec(), run_dir, 0) == []
    for frame in (100, 200):
        save(paths, frame)
        before = {path.name: path.read_bytes() for path in paths.models.iterdir()}
        assert fall_back(spec(), run_dir, 0) == []
        assert {
            path.name: path.read_bytes() for path in paths.models.iterdir()
        } == before


@pytest.mark.parametrize("harm", [flip, cut, lambda path: path.unlink()])
@pytest.mark.parametrize("what", ["state", "manifest"])
def test_where_the_newest_is_damaged_the_one_before_takes_its_place(
    run_dir, what, harm
):
    paths = run_dir.session(0, 0)
    for frame in (100, 200, 300):
        save(paths, frame, best=frame)
    path = paths.manifest
    if what != "manifest":
        path = file_of(paths, what)
    if what == "manifest" and harm is flip:
        path.write_text("{")  # a flipped bit of a manifest may be none of its meaning
    else:
        harm(path)
    (line,) = fall_back(spec(), run_dir, 0)
    assert line.startswith("small_t0_s0 falls back to the checkpoint at frame 200: ")
    assert path.name in line
    assert frame_of(paths) == 200
    assert CheckpointStore(paths.models, paths.prefix).load(
        read_manifest(paths.manifest)
    )
    assert fall_back(spec(), run_dir, 0) == []


@pytest.mark.parametrize(
    "harm",
    [
        lambda saved: saved["files"]["state"].update(bytes="x"),
        lambda saved: saved["files"]["state"].pop("bytes"),
        lambda saved: saved["files"]["state"].pop("sha256"),
        lambda saved: saved["rows"]["small_t0_s0_session_df_train.csv"].update(size=-1),
    ],
    ids=[
        "a size that is no number",
        "no size",
        "no checksum",
        "rows of a negative size",
    ],
)
def test_a_manifest_with_invalid_values_is_a_damaged_checkpoint(run_dir, harm):
    paths = run_dir.session(0, 0)
    for frame in (100, 200):
        save(paths, frame)
    content = json.loads(paths.manifest.read_text())
    harm(content)
    paths.manifest.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="cannot read the checkpoint"):
        read_manifest(paths.manifest)
    (line,) = fall_back(spec(), run_dir, 0)
    assert paths.manifest.name in line
    assert frame_of(paths) == 100


@pytest.mark.parametrize("row", [1, 2])
def test_rows_that_were_edited_are_noticed(run_dir, row):
    paths = run_dir.session(0, 0)
    for frame in (100, 200):
        save(paths, frame)
    lines = paths.rows.read_text().splitlines(keepends=True)
    lines[row] = lines[row].replace("1.0", "9.0")
    paths.rows.write_text("".join(lines))
    with pytest.raises(UsageError, match="do not match the checksum"):
        RowCache().read(paths, paths.rows)
    if row == 2:  # the checkpoint before was made without it
        (line,) = fall_back(spec(), run_dir, 0)
        assert "at frame 100: " in line
        assert paths.rows.name in line
        assert len(RowCache().read(paths, paths.rows)) == 2
        return
    with pytest.raises(
        CheckpointError, match=r"no checkpoint is intact.*start a new run"
    ):
        fall_back(spec(), run_dir, 0)
    assert frame_of(paths) == 200


def test_rows_that_no_checkpoint_has_yet_are_read(run_dir):
    paths = run_dir.session(0, 0)
    save(paths, 100)
    with paths.rows.open("a") as file:
        file.write("200,200,1.0\n300,3")
    assert len(RowCache().read(paths, paths.rows)) == 2
    paths.manifest.unlink()
    assert len(RowCache().read(paths, paths.rows)) == 2
    paths.rows.unlink()
    assert len(RowCache().read(paths, paths.rows)) == 0


def test_if_both_checkpoints_are_damaged_each_file_is_reported_and_nothing_changes(
    run_dir,
):
    paths = run_dir.session(0, 0)
    for frame in (100, 200):
        save(paths, frame)
    older = file_of(paths, at=previous_path(paths.manifest))
    newer = file_of(paths)
    flip(older)
    flip(newer)
    before = paths.manifest.read_bytes()
    with pytest.raises(CheckpointError, match="no checkpoint is intact") as caught:
        fall_back(spec(), run_dir, 0)
    assert older.name in str(caught.value)
    assert newer.name in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert paths.manifest.read_bytes() == before


@pytest.mark.parametrize("older", [True, False])
def test_without_its_best_agent_a_run_is_trained_from_its_newest_checkpoint(
    run_dir, older
):
    paths = run_dir.session(0, 0)
    save(paths, 100, best=60)
    save(paths, 200, **({"best": 160} if older else {}))
    flip(file_of(paths, "best"))
    (line,) = fall_back(spec(), run_dir, 0)
    assert (
        "the one before it stays" if older else "the next better one is saved"
    ) in line
    assert frame_of(paths) == 200
    store = CheckpointStore(paths.models, paths.prefix)
    assert ("best" in store.manifest().files) == older
    if older:
        assert store.load(store.manifest(), "best")["frame"] == 60
    assert fall_back(spec(), run_dir, 0) == []


def test_independent_sessions_fall_back_alone(run_dir):
    for session in (0, 1):
        for frame in (100, 200):
            save(run_dir.session(0, session), frame)
    flip(file_of(run_dir.session(0, 1)))
    assert len(fall_back(spec(max_session=2), run_dir, 0)) == 1
    assert [frame_of(run_dir.session(0, session)) for session in (0, 1)] == [200, 100]


@pytest.mark.parametrize("mode", ["all_reduce", "shared", "synced"])
def test_sessions_that_train_together_fall_back_together(run_dir, mode):
    together = spec(max_session=2, distributed=mode)
    members = [run_dir.session(0, session) for session in range(2)]
    for frame in (100, 200):
        for paths in members:
            save(paths, frame, writes=mode != "all_reduce" or paths is members[0])
    flip(file_of(members[1]))
    lines = fall_back(together, run_dir, 0)
    assert [frame_of(paths) for paths in members] == [100] * 2
    if mode == "all_reduce":
        (line,) = lines
        assert line.startswith(
            "small_t0_s0 to small_t0_s1 fall back to the checkpoint at frame 200"
        )
    else:
        assert len(lines) == 2
    assert fall_back(together, run_dir, 0) == []


def test_ranks_agree_on_a_checkpoint_of_which_one_manifest_waits(run_dir):
    """A kill between the renames of two ranks; the checkpoint of the first is
    damaged."""
    ranks = spec(max_session=2, distributed="all_reduce")
    members = [run_dir.session(0, session) for session in range(2)]
    for frame in (100, 200, 300):
        for paths in members:
            save(paths, frame, writes=paths is members[0])
    waiting = members[1]
    shutil.move(waiting.manifest, pending_path(waiting.manifest))
    shutil.copy(previous_path(waiting.manifest), waiting.manifest)
    assert frame_of(waiting) == 200
    assert fall_back(ranks, run_dir, 0) == []
    assert [frame_of(paths) for paths in members] == [300, 300]
    assert not pending_path(waiting.manifest).exists()

    shutil.move(waiting.manifest, pending_path(waiting.manifest))
    shutil.copy(previous_path(waiting.manifest), waiting.manifest)
    flip(file_of(members[0]))
    assert len(fall_back(ranks, run_dir, 0)) == 1
    assert [frame_of(paths) for paths in members] == [200, 200]


def test_ranks_without_a_common_checkpoint_are_one_clear_line(run_dir):
    ranks = spec(max_session=2, distributed="all_reduce")
    members = [run_dir.session(0, session) for session in range(2)]
    for paths in members:
        save(paths, 100, writes=paths is members[0])
    members[1].manifest.unlink()
    with pytest.raises(CheckpointError, match="not of the same checkpoint"):
        fall_back(ranks, run_dir, 0)


def test_a_pending_checkpoint_of_one_rank_alone_is_ignored(run_dir):
    """It was being written when the process was killed."""
    paths = run_dir.session(0, 0)
    save(paths, 100)
    waits = paths.manifest.read_text().replace('"serial": 1', '"serial": 2')
    pending_path(paths.manifest).write_text(waits)
    assert fall_back(spec(), run_dir, 0) == []
    assert read_manifest(paths.manifest).serial == 1


def test_a_first_checkpoint_of_ranks_that_was_never_complete_is_none(run_dir):
    """A rank was killed while it wrote; another one waited for it."""
    ranks = spec(max_session=2, distributed="all_reduce")
    waiting = run_dir.session(0, 0)
    save(waiting, 100)
    shutil.move(waiting.manifest, pending_path(waiting.manifest))
    assert fall_back(ranks, run_dir, 0) == []


def test_the_checkpoint_saved_by_the_parent_of_workers_is_verified_too(run_dir):
    workers = spec(max_session=2, distributed="shared")
    strategy = run_dir.shared_by_training(0, 0)
    for session in range(2):
        save(run_dir.session(0, session), 100)
    for frame in (100, 200):
        save(strategy, frame, writes=False)
    flip(file_of(strategy))
    (line,) = fall_back(workers, run_dir, 0)
    assert line.startswith("small_t0_s0_shared falls back")
    assert frame_of(strategy) == 100


def test_actors_have_no_checkpoints_and_need_none(run_dir):
    with_actors = spec(max_session=2, distributed="actor_learner")
    learner = run_dir.session(0, 0)
    for frame in (100, 200):
        save(learner, frame)
    flip(file_of(learner))
    assert len(fall_back(with_actors, run_dir, 0)) == 1
    assert frame_of(learner) == 100


def test_the_log_of_a_trial_says_that_it_fell_back(run_dir):
    note_in_log(run_dir.session(3, 0).log, ["falls back"])
    (line,) = run_dir.session(3, 0).log.read_text().splitlines()
    assert line.endswith("WARNING slm_lab: falls back")
