"""How a user may name a run."""

import json
from datetime import UTC, datetime, timedelta

import pytest

import slm_lab
from slm_lab.core.errors import UsageError
from slm_lab.records.lookup import find_folder, find_run, find_saved
from slm_lab.storage.run_dir import ORDER, RUN_BLOCK, RunDir, order_after, runs_in

NOON = datetime(2026, 3, 4, 12, 0, 0)


def begin(data, name, minute, is_search=False):
    run = RunDir.create(data, name, NOON + timedelta(minutes=minute))
    run.spec_file.write_text(json.dumps({name: {"env": {}}}))
    if is_search:
        run.event_log_file.touch()
    return run


@pytest.fixture
def runs(tmp_path):
    """Two specs in turn, the name of one a beginning of the other's."""
    names = ["ppo", "ppo_pong", "ppo", "ppo_pong"]
    return [begin(tmp_path, name, minute) for minute, name in enumerate(names)]


@pytest.mark.parametrize(
    ("target", "index"),
    [
        ("latest", 3),
        ("latest~0", 3),
        ("latest~2", 1),
        ("ppo", 2),
        ("ppo_pong", 3),
        ("ppo_2026_03_04_1200", 0),
        ("ppo_pong_2026_03_04_120300", 3),
    ],
)
def test_a_run_is_found_by_what_names_it(runs, tmp_path, target, index):
    assert find_folder(target, tmp_path)[0] == runs[index]


@pytest.mark.parametrize(
    ("target", "index"), [("latest", 3), ("latest~2", 1), ("ppo", 2)]
)
def test_a_folder_that_is_no_run_hides_none(runs, tmp_path, monkeypatch, target, index):
    elsewhere = tmp_path.parent / f"{tmp_path.name}_here"
    (elsewhere / target).mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    assert find_folder(target, tmp_path)[0] == runs[index]
    (elsewhere / "other").mkdir()
    with pytest.raises(UsageError, match="other is not a run: it has no spec file"):
        find_folder("other", tmp_path)


@pytest.mark.parametrize(("target", "index"), [("latest", 2), ("latest~1", 0)])
def test_with_a_spec_only_its_runs_count(runs, tmp_path, target, index):
    assert find_folder(target, tmp_path, "ppo")[0] == runs[index]


def test_a_trial_is_named_after_its_search(runs, tmp_path):
    search = begin(tmp_path, "ppo", 9, is_search=True)
    for target in ("latest", "ppo", str(search.root)):
        assert find_folder(f"{target}:t3", tmp_path) == (search, 3)
    assert find_saved("latest", tmp_path, None) == (runs[3], None)
    assert find_saved("latest:t0", tmp_path, None) == (search, 0)
    assert find_run("latest", tmp_path, None) == runs[3]
    assert find_run("latest", tmp_path, None, of_search=True) == search
    with pytest.raises(UsageError, match="a trial is resumed with its search"):
        find_run("latest:t0", tmp_path, None, of_search=True)


def test_a_run_without_a_file_is_found_by_algorithm_and_environment(
    tmp_path, monkeypatch
):
    """`slm-lab run ppo Line-v0` and a file with a spec ppo_Line-v0 are one name."""
    of_file = begin(tmp_path, "ppo_Line-v0", 0)
    other = RunDir.create(tmp_path, "ppo", NOON + timedelta(minutes=1), "Cart-v1")
    of_env = RunDir.create(tmp_path, "ppo", NOON + timedelta(minutes=2), "Line-v0")
    for run in (other, of_env):
        run.spec_file.write_text(json.dumps({"ppo": {"env": {}}}))
    assert find_folder("ppo_Line-v0", tmp_path)[0] == of_env
    assert find_folder("ppo_Cart-v1", tmp_path)[0] == other
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path.parent / "ppo_Cart-v1").mkdir()  # a folder that is no run hides none
    assert find_folder("ppo_Cart-v1", tmp_path)[0] == other
    assert find_folder("ppo", tmp_path)[0] == of_env
    assert find_folder("ppo_Line-v0", tmp_path, "ppo_Line-v0")[0] == of_file


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("latest~4", "^latest~4: the oldest run in .* is latest~3$"),
        (
            "ppo_2026",
            "2 runs in .* begin with ppo_2026, the last are ppo_2026_03_04_120000",
        ),
        ("ppo_pong_2027", "did you mean ppo_pong_2026_03_04_12"),
        ("latest~", "there is no run folder latest~"),
        ("sac", "there is no run folder sac"),
    ],
)
def test_a_name_of_no_run_or_of_several_is_refused(runs, tmp_path, target, words):
    with pytest.raises(UsageError, match=words):
        find_folder(target, tmp_path)


def test_the_spec_has_its_recorded_name_where_the_folder_has_a_safe_one(tmp_path):
    run = begin(tmp_path, "a b:c", 0)
    assert find_folder("latest", tmp_path)[0] == run
    assert find_folder("a b:c", tmp_path)[0] == run


@pytest.mark.parametrize("is_search", [False, True])
def test_where_there_are_too_few_runs_the_oldest_is_named(tmp_path, is_search):
    what = "search" if is_search else "run"
    with pytest.raises(
        UsageError, match=f"^there is no {what} of ppo in {tmp_path}; start one"
    ):
        find_run("latest~5", tmp_path, "ppo", of_search=is_search)
    for minute in range(2):
        begin(tmp_path, "ppo", minute, is_search)
    message = f"^latest~5: the oldest {what} of ppo in {tmp_path} is latest~1$"
    with pytest.raises(UsageError, match=message):
        find_run("latest~5", tmp_path, "ppo", of_search=is_search)
    assert find_run("latest~1", tmp_path, "ppo", of_search=is_search)


def started(data, name, time):
    """A run begun at `time` by the clock, recorded as `begin_run` does."""
    order = order_after(runs_in(data), time)
    run = RunDir.create(data, name, time)
    about = {"started": time.isoformat(), **({} if order is None else {ORDER: order})}
    run.spec_file.write_text(json.dumps({name: {"env": {}}, RUN_BLOCK: about}))
    return run


def test_the_latest_run_is_the_last_that_was_begun_also_after_the_clock_was_set_back(
    tmp_path,
):
    noon = datetime(2026, 3, 4, 12, 0, 0, tzinfo=UTC)
    hours = {"first": 0, "second": -2, "third": -1, "fourth": -24, "fifth": 1}
    runs = [
        started(tmp_path, name, noon + timedelta(hours=by))
        for name, by in hours.items()
    ]
    for back, run in enumerate(reversed(runs)):
        assert find_folder(f"latest~{back}", tmp_path)[0] == run


def test_a_run_after_the_end_of_time_hinders_no_other(tmp_path):
    started(tmp_path, "last", datetime.max.replace(tzinfo=UTC))
    started(tmp_path, "now", datetime(2026, 3, 4, tzinfo=UTC))
    assert len(runs_in(tmp_path)) == 2


def test_where_there_is_only_a_search_or_only_a_run_the_message_says_what_to_type(
    tmp_path,
):
    search = begin(tmp_path / "searches", "ppo", 0, is_search=True).root.name
    with pytest.raises(
        UsageError, match=rf"{search} is a search: eval@{search} and enjoy@"
    ):
        find_saved("latest", tmp_path / "searches", None)
    with pytest.raises(UsageError, match=rf"search@{search} resumes it"):
        find_run("latest", tmp_path / "searches", None)
    run = begin(tmp_path / "runs", "ppo", 0).root.name
    with pytest.raises(
        UsageError, match=rf"{run} is a run, no search: resume it by train@{run}"
    ):
        find_run("latest", tmp_path / "runs", None, of_search=True)


@pytest.mark.parametrize(
    "name", ["a" * 300, "a" * 300 + ":t1", "a" * 5000, "x/" + "a" * 300]
)
def test_a_name_that_no_file_can_have_names_no_run(tmp_path, name):
    for find in (
        slm_lab.load,
        slm_lab.load_run,
        lambda run, data: slm_lab.train(resume=run),
    ):
        with pytest.raises(UsageError, match="there is no run"):
            find(name, data=tmp_path)
