"""A trial that copies the checkpoint of another."""

import numpy as np
import pytest

from slm_lab.core.errors import CheckpointError
from slm_lab.metrics.writer import Extent
from slm_lab.storage import copy
from slm_lab.storage.checkpoint import CheckpointStore
from slm_lab.storage.intact import fall_back
from slm_lab.storage.manifest import previous_path, read_manifest
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.search.population import copy_checkpoints, delete_models
from tests.support import make_session, parse, ppo, run_session

HEADER = "frame,total_frame,recent_return\n"


def state(mark):
    return {"weights": np.full(3, mark, np.float32), "rng": 2**127 + mark}


def write(run_dir, trial, session=0, frame=300, mark=0, more=2):
    """A checkpoint of a Session at `frame`, and `more` rows that were written after
    it."""
    paths = run_dir.session(trial, session)
    lines = [f"{f},{f},{f + mark}\n" for f in range(100, frame + 100 * more + 1, 100)]
    kept = HEADER + "".join(lines[: frame // 100])
    paths.rows.write_text(HEADER + "".join(lines))
    store = CheckpointStore(paths.models, paths.prefix)
    rows = {paths.rows.name: Extent.of(kept.encode())}
    store.save(frame, rows, {"state": state(mark), "best": state(mark + 1)})
    return kept


def spec(**changes):
    return parse(ppo(**changes))


def content(run_dir, trial):
    """The files of a trial, by name."""
    prefix = f"{run_dir.trial_prefix(trial)}_s"
    return {
        path.name: path.read_bytes()
        for folder in ("model", "info")
        for path in (run_dir.root / folder).iterdir()
        if path.name.startswith(prefix)
    }


def assert_has(run_dir, trial, session, frame, mark):
    """Asserts that a Session's checkpoint is its own, and was saved with `mark`."""
    paths = run_dir.session(trial, session)
    store = CheckpointStore(paths.models, paths.prefix)
    manifest = store.manifest()
    assert manifest.frame == frame
    assert all(name.startswith(f"{paths.prefix}_") for name in manifest.names)
    assert list(manifest.rows) == [paths.rows.name]
    for part, number in (("state", mark), ("best", mark + 1)):
        loaded = store.load(manifest, part)
        assert loaded["rng"] == 2**127 + number
        np.testing.assert_array_equal(loaded["weights"], state(number)["weights"])


@pytest.mark.parametrize(("donor", "trial"), [(1, 0), (1, 10), (10, 1)])
def test_a_copy_loads_as_the_trials_own(run_dir, donor, trial):
    two = spec(meta__max_session=2)
    for session in (0, 1):
        write(run_dir, donor, session, 300, mark=session)
        write(run_dir, trial, session, 500, mark=70)
    assert copy_checkpoints(run_dir, two, donor, trial) == 300
    for session in (0, 1):
        assert_has(run_dir, trial, session, 300, session)
        assert_has(run_dir, donor, session, 300, session)


def test_a_trial_that_took_over_does_not_fall_back_to_its_own_past(run_dir):
    for frame in (100, 200):
        write(run_dir, 1, frame=frame, mark=9)
    write(run_dir, 0, mark=1)
    copy_checkpoints(run_dir, spec(), 0, 1)
    assert fall_back(spec(), run_dir, 1) == []
    paths = run_dir.session(1, 0)
    (paths.models / read_manifest(paths.manifest).files["state"].name).write_bytes(b"")
    with pytest.raises(CheckpointError, match="no checkpoint is intact"):
        fall_back(spec(), run_dir, 1)


def test_the_rows_of_the_donor_end_at_its_checkpoint(run_dir):
    # Otherwise the scores that the donor had after it would be reported as those of the
    # trial.
    kept = write(run_dir, 0, frame=300, more=2)
    copy_checkpoints(run_dir, spec(), 0, 1)
    assert run_dir.session(1, 0).rows.read_text() == kept


def test_where_the_donor_has_no_checkpoint_nothing_is_touched(run_dir):
    two = spec(meta__max_session=2)
    write(run_dir, 0, 0)
    write(run_dir, 1, 0, mark=4)
    before = content(run_dir, 1)
    assert copy_checkpoints(run_dir, two, 0, 1) is None
    assert content(run_dir, 1) == before
    assert_has(run_dir, 1, 0, 300, 4)


@pytest.mark.parametrize(
    ("mode", "frame"),
    [(False, 300), ("shared", 500), ("synced", 500), ("all_reduce", 500)],
)
def test_frames_of_sessions_that_share_a_budget_are_added(run_dir, mode, frame):
    together = spec(
        meta__distributed=mode,
        meta__max_session=2,
        agent__net__optim_spec__name="GlobalAdam",
    )
    for session, reached in enumerate((200, 300)):
        write(run_dir, 0, session, reached)
    assert copy_checkpoints(run_dir, together, 0, 1) == frame


def test_with_actors_and_a_learner_the_learner_has_the_checkpoint(run_dir):
    together = spec(meta__distributed="actor_learner", meta__max_session=2)
    write(run_dir, 0, 0, 300, mark=6)
    assert copy_checkpoints(run_dir, together, 0, 1) == 300
    assert_has(run_dir, 1, 0, 300, 6)
    assert read_manifest(run_dir.session(1, 1).manifest) is None


@pytest.mark.parametrize("times", [1, 5])
def test_a_checkpoint_that_is_replaced_meanwhile_is_tried_again(
    run_dir, times, monkeypatch
):
    write(run_dir, 0, frame=300, mark=0)
    link, left = copy._link, list(range(1, times + 1))

    def linked(source, target):
        if left:
            for _ in range(2):  # the one before the newest is kept
                write(run_dir, 0, frame=300 + 100 * left[0], mark=left[0])
            left.pop(0)
        link(source, target)

    monkeypatch.setattr(copy, "_link", linked)
    assert copy_checkpoints(run_dir, spec(), 0, 1) == 300 + 100 * times
    assert_has(run_dir, 1, 0, 300 + 100 * times, times)


def test_a_copy_that_breaks_off_leaves_the_trial_its_own_checkpoint(
    run_dir, monkeypatch
):
    two = spec(meta__max_session=2)
    for session in (0, 1):
        write(run_dir, 0, session, 300, mark=1)
        write(run_dir, 1, session, 200, mark=8)
    link = copy._link

    def linked(source, target):
        if "_s1_" in source.name:
            raise OSError(28, "No space left on device")
        link(source, target)

    monkeypatch.setattr(copy, "_link", linked)
    with pytest.raises(OSError, match="No space"):
        copy_checkpoints(run_dir, two, 0, 1)
    for session in (0, 1):
        store = CheckpointStore(run_dir.root / "model", f"small_t1_s{session}")
        assert store.load(store.manifest())["rng"] == 2**127 + 8


def test_the_next_checkpoints_of_the_trial_leave_none_of_the_copies(run_dir):
    write(run_dir, 0, mark=1)
    write(run_dir, 1, mark=2)
    copy_checkpoints(run_dir, spec(), 0, 1)
    for frame in (400, 500):
        write(run_dir, 1, frame=frame, mark=3)
        assert_has(run_dir, 1, 0, frame, 3)
    newest = run_dir.session(1, 0).manifest
    files = [newest, previous_path(newest)]
    kept = {name for file in files for name in read_manifest(file).names}
    there = {path.name for path in (run_dir.root / "model").glob("small_t1_s0*")}
    assert there == kept | {file.name for file in files}
    assert len(there) == 3 + 3


def test_only_the_models_of_the_trial_are_deleted(run_dir):
    for trial in (1, 10, 11, 2):
        write(run_dir, trial, mark=trial)
        write(run_dir, trial, 1, mark=trial)
    others = {trial: content(run_dir, trial) for trial in (10, 11, 2)}
    delete_models(run_dir, 1)
    assert {trial: content(run_dir, trial) for trial in (10, 11, 2)} == others
    assert [path.name for path in (run_dir.root / "model").glob("small_t1_*")] == []
    assert run_dir.session(1, 0).rows.exists()
    delete_models(run_dir, 1)


def test_a_session_continues_from_a_copy_with_the_learning_rate_of_its_own_spec(
    tmp_path,
):
    donor, slower = ppo(env__max_frame=400), ppo(env__max_frame=800)
    slower["agent"]["net"]["optim_spec"]["lr"] = 3e-4
    run_session(parse(donor), tmp_path)
    run_dir = RunDir(tmp_path, "small")
    assert copy_checkpoints(run_dir, parse(donor), 0, 1) == 400
    # The Session that is made here is one of trial 0: it gets the copy under that name.
    delete_models(run_dir, 0)
    assert copy_checkpoints(run_dir, parse(donor), 1, 0) == 400
    unfinished(run_dir.session(0, 0).manifest)
    session = make_session(parse(slower), tmp_path, resume=True)
    try:
        assert session.clock.frame == 400
        session.run()
    finally:
        session.close()
    rates = np.genfromtxt(session.paths.rows, delimiter=",", names=True)["lr"]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(3e-4)


def unfinished(manifest):
    """The Session counts as stopped before its end."""
    manifest.write_text(
        manifest.read_text().replace('"finished": true', '"finished": false')
    )
