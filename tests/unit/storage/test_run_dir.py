import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slm_lab.core.errors import UsageError
from slm_lab.records.lookup import find_folder
from slm_lab.storage.run_dir import RunDir, safe_name

NOON = datetime(2026, 3, 4, 12, 0, 0)
SECOND = timedelta(seconds=1)


def begin(data, spec_name, now):
    """A run that got as far as its spec file."""
    run = RunDir.create(data, spec_name, now)
    run.spec_file.write_text("{}")
    return run


def latest(data, spec_name):
    return find_folder("latest", data, spec_name)[0]


needs_permissions = pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write everywhere"
)


def test_a_run_folder_is_named_after_the_spec_and_the_time_and_has_its_parts(tmp_path):
    run = RunDir.create(tmp_path / "data", "ppo", NOON)
    assert run.root == tmp_path / "data" / "ppo_2026_03_04_120000"
    assert {path.name for path in run.root.iterdir()} == {
        "info",
        "graph",
        "log",
        "model",
    }


def test_the_folders_of_all_session_files_are_there(tmp_path):
    paths = RunDir.create(tmp_path, "ppo", NOON).session(1, 2)
    assert paths.prefix == "ppo_t1_s2"
    for file in (paths.rows, paths.metrics, paths.manifest, paths.log):
        assert file.parent.is_dir()
        assert file.name.startswith("ppo_t1_s2")
    assert paths.graphs.is_dir()
    assert paths.models.is_dir()


def test_two_runs_in_the_same_second_get_two_folders_and_the_later_one_is_the_latest(
    tmp_path,
):
    first = begin(tmp_path, "ppo", NOON)
    second = begin(tmp_path, "ppo", NOON)
    assert first.root != second.root
    assert latest(tmp_path, "ppo") == second


def test_the_search_for_a_free_name_ends(tmp_path):
    for _ in range(100):
        RunDir.create(tmp_path, "ppo", NOON)
    with pytest.raises(UsageError, match="free name"):
        RunDir.create(tmp_path, "ppo", NOON)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ppo", "ppo_2026"),
        ("ppo", "ppo_cartpole"),
        ("ppo", "ppo_2026_03_04_120000"),
        ("ppo", "ppo_2026_03_04_120000_1"),
        ("ppo_1", "ppo"),
        ("ppo", "my_ppo"),
        ("ppo", "PPO"),
        ("a.b", "a_b"),
        ("p", "p_2026_03_04"),
    ],
)
def test_the_latest_run_is_the_newest_of_this_spec_only(tmp_path, one, other, order):
    later = {
        name: NOON + SECOND * days for name, days in ((one, order), (other, -order))
    }
    newest = {}
    for name, time in later.items():
        begin(tmp_path, name, time - 10 * SECOND)
        newest[name] = begin(tmp_path, name, time)
    assert latest(tmp_path, one) == newest[one]
    assert latest(tmp_path, other) == newest[other]


def test_files_and_folders_that_are_no_runs_are_passed_over(tmp_path):
    run = begin(tmp_path, "ppo", NOON)
    (tmp_path / "ppo_2027_01_01_000000").write_text("a file")
    for name in ("ppo", "ppo_notes", "ppo_2027_01_01_000000_old", "ppo_2027_01_01"):
        (tmp_path / name).mkdir()
    assert latest(tmp_path, "ppo") == run


def test_a_run_killed_before_its_spec_was_written_is_passed_over(tmp_path):
    run = begin(tmp_path, "ppo", NOON)
    RunDir.create(tmp_path, "ppo", NOON + SECOND)
    assert latest(tmp_path, "ppo") == run


def test_a_run_in_the_dev_mode_is_the_latest_only_where_there_is_no_other(tmp_path):
    run, dev = (begin(tmp_path, "ppo", NOON + late) for late in (0 * SECOND, SECOND))
    dev.spec_file.write_text(json.dumps({"ppo": {}, "_run": {"mode": "dev"}}))
    run.spec_file.write_text(json.dumps({"ppo": {}, "_run": {"mode": "train"}}))
    assert latest(tmp_path, "ppo") == run
    run.spec_file.unlink()
    assert latest(tmp_path, "ppo") == dev


@pytest.mark.parametrize("folder", [".", "nowhere"])
def test_a_missing_run_is_reported_with_its_name_and_the_place(tmp_path, folder):
    with pytest.raises(UsageError, match="no run of ppo in") as caught:
        latest(tmp_path / folder, "ppo")
    assert str(tmp_path) in str(caught.value)
    assert "mode train" in str(caught.value)


def test_an_existing_run_opens_as_it_was_created(tmp_path):
    created = RunDir.create(tmp_path, "ppo", NOON)
    created.spec_file.write_text("{}")
    assert find_folder(str(created.root), tmp_path, "ppo")[0] == created


def test_opening_a_folder_that_is_not_there_names_it(tmp_path):
    with pytest.raises(UsageError, match=r"no run folder .*missing"):
        find_folder(str(tmp_path / "missing"), tmp_path, "ppo")


def test_opening_the_run_of_another_spec_names_the_file_that_lacks(tmp_path):
    created = RunDir.create(tmp_path, "ppo", NOON)
    created.spec_file.write_text("{}")
    with pytest.raises(UsageError, match=r"not a run of dqn.*dqn_spec\.json"):
        find_folder(str(created.root), tmp_path, "dqn")


@given(st.text('aZ9é中 ._-/\\:*?"<>|\n\0\u2028', max_size=40))
def test_a_safe_name_is_one_folder_deep_and_stays_the_same_when_made_safe_again(name):
    safe = safe_name(name)
    assert not set(safe) & set('/\\:*?"<>| \n\0')
    assert safe_name(safe) == safe
    assert len(safe) == len(name)
    assert (Path("data") / f"{safe}_x").parent == Path("data")


@pytest.mark.parametrize(
    "name", ["../escape", "/etc/ppo", "a b:c*", "déjà", "ppo-v2.1"]
)
def test_a_run_of_any_spec_name_lies_in_the_data_folder_and_is_found_again(
    tmp_path, name
):
    run = begin(tmp_path, name, NOON)
    assert run.root.parent == tmp_path
    assert run.spec_file.parent == run.root
    assert latest(tmp_path, name) == run


def test_a_data_folder_that_is_a_file_is_a_usage_error(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(UsageError, match="cannot make the folder"):
        RunDir.create(tmp_path / "data", "ppo", NOON)


@needs_permissions
def test_a_read_only_data_folder_is_a_usage_error(tmp_path):
    data = tmp_path / "data"
    data.mkdir(mode=0o500)
    with pytest.raises(UsageError, match="Permission denied"):
        RunDir.create(data, "ppo", NOON)


@pytest.mark.parametrize("broken_call", [1, 2, 3, 4, 5])
def test_a_disk_that_takes_no_folder_is_a_usage_error(
    tmp_path, monkeypatch, broken_call
):
    make = Path.mkdir
    calls = []

    def mkdir(self, *args, **kwargs):
        calls.append(self)
        if len(calls) == broken_call:
            raise OSError(30, "Read-only file system")
        make(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(UsageError, match="Read-only file system"):
        RunDir.create(tmp_path, "ppo", NOON)


def test_the_latest_run_is_the_one_that_was_started_last_wherever_on_earth(tmp_path):
    """In Tokyo first, and seventeen time zones west of it a minute later."""
    tokyo = RunDir.create(tmp_path, "ppo", datetime(2026, 3, 4, 12, 0, 0))
    los_angeles = RunDir.create(tmp_path, "ppo", datetime(2026, 3, 3, 19, 1, 0))
    for run, minute in ((tokyo, 0), (los_angeles, 1)):
        started = datetime(2026, 3, 4, 3, minute, tzinfo=UTC).isoformat()
        run.spec_file.write_text(json.dumps({"ppo": {}, "_run": {"started": started}}))
    assert latest(tmp_path, "ppo") == los_angeles


def test_runs_that_do_not_say_when_they_were_started_go_by_their_names(tmp_path):
    """Those of older versions, and those whose file was edited."""
    local = NOON.astimezone(UTC)
    older = begin(tmp_path, "ppo", NOON - SECOND)
    noon = RunDir.create(tmp_path, "ppo", NOON - 9 * SECOND)
    noon.spec_file.write_text(
        json.dumps({"ppo": {}, "_run": {"started": local.isoformat()}})
    )
    assert latest(tmp_path, "ppo") == noon
    newest = RunDir.create(tmp_path, "ppo", NOON + SECOND)
    for spoilt in ("not a time", 5, None, "0001-01-01T00:00:00+23:00"):
        newest.spec_file.write_text(
            json.dumps({"ppo": {}, "_run": {"started": spoilt}})
        )
        assert latest(tmp_path, "ppo") == newest
    assert older.root.is_dir()


def test_a_folder_without_a_time_in_its_name_is_the_oldest(tmp_path):
    odd = tmp_path / "ppo_2026_99_99_000000"
    odd.mkdir()
    (odd / "ppo_spec.json").write_text("{}")
    assert latest(tmp_path, "ppo").root == odd
    run = begin(tmp_path, "ppo", NOON)
    assert latest(tmp_path, "ppo") == run
