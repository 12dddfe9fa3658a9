"""The commands `runs`, `diff` and `tidy` on a terminal and for scripts."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from slm_lab.core import files
from slm_lab.core.errors import UsageError
from slm_lab.records.lookup import find_folder
from tests.faults.lab import LAB, lab
from tests.support import ppo
from tests.unit.cli.trained import assert_bad_input
from tests.unit.records.runs import write_ended


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    write_ended(
        data, "alpha", set=["env.name=Pendulum-v1", "agent.algorithm.gamma=0.9"], days=2
    )
    write_ended(data, "beta", endings=("failed",), days=1, note="too fast")
    write_ended(data, "gamma", mode="dev")
    return tmp_path


def printed(folder, *words):
    done = lab(folder, *words)
    assert (done.code, done.err) == (0, "")
    return done.out


def names(output):
    return [line.split("_2026")[0] for line in output.splitlines() if "_2026" in line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ["alpha", "beta", "gamma"]),
        (["alp"], ["alpha"]),
        (["*eta*"], ["beta"]),
        (["too fast"], ["beta"]),
        (["--status", "failed"], ["beta"]),
        (["--status", "dev"], ["gamma"]),
        (["--sort", "name"], ["alpha", "beta", "gamma"]),
        (["nothing"], []),
        (["alp", "gam"], ["alpha", "gamma"]),
    ],
)
def test_runs_are_listed_oldest_first_and_can_be_chosen(folder, words, expected):
    assert names(printed(folder, "runs", *words)) == expected
    listed = json.loads(printed(folder, "runs", "--json", *words))
    assert [run["name"] for run in listed] == expected


def test_the_slm_lab_command_lists_runs_too(folder):
    assert (
        printed(folder, "list")
        == printed(folder, "plot-list")
        == printed(folder, "runs")
    )


def test_the_table_shows_what_was_changed_and_how_a_run_ended(folder):
    output = printed(folder, "runs")
    assert "gamma=0.9" in output
    assert "Pendulum" not in output  # the environment has a column, of the spec
    assert "12.5 ± 0.500" in output
    assert "done (dev)" in output


def test_a_folder_without_runs_is_no_error(tmp_path):
    assert printed(tmp_path, "runs", "--data", "nowhere") == (
        "there is no folder nowhere; slm-lab run makes it\n"
    )
    assert json.loads(printed(tmp_path, "runs", "--json")) == []


def test_names_stay_in_one_line_and_unreadable_rows_are_damage(folder):
    run = write_ended(folder / "data", "delta")
    run.session(0, 0).rows.write_bytes(b"frame\n\xb4\n")
    run.root.rename(run.root.with_name("two\nlines_2026_01_01_000000"))
    (line,) = [
        x
        for x in printed(folder, "runs").splitlines()
        if x.startswith("two\\nlines_2026")
    ]
    assert "damaged" in line


def test_a_comparison_is_listed_beside_runs(folder):
    inside = folder / "data" / "compare_x"
    run = write_ended(inside, "small_false")
    spec = json.loads(run.spec_file.read_text())["small_false"]
    variants = [{"spec": "small_false", "mode": "false", "workers": 1}]
    about = {
        "name": "small",
        "variants": variants,
        "seeds": [0, 1],
        "started": "2026-01-02T03:04",
    }
    plan = {"small_false": spec, "_compare": about}
    (inside / "small_compare_specs.json").write_text(json.dumps(plan))
    (found,) = json.loads(printed(folder, "runs", "compare", "--json"))
    assert (found["run"], found["mode"]) == (
        "compare_x",
        "comparison, 1 of 2 trainings",
    )
    (inside / "small_compare_specs.json").write_text("{")
    (found,) = json.loads(printed(folder, "runs", "compare", "--json"))
    assert found["status"] == "damaged"


def test_a_diff_is_three_tables(folder):
    output = printed(folder, "diff", "alpha", "alpha")
    assert "Differences of the specs: none" in output
    assert "Versions and machine: none" in output
    assert "Results" in output


def test_tidy_shows_first_and_deletes_when_asked(folder):
    assert "--yes would delete 2 runs" in printed(folder, "tidy", "--dev", "--failed")
    assert len(names(printed(folder, "runs"))) == 3
    assert "deleted gamma" in printed(folder, "tidy", "--dev", "--yes")
    assert names(printed(folder, "runs")) == ["alpha", "beta"]
    assert "nothing to delete" in printed(folder, "tidy", "--older", "30d")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runs", "--sort", "retrun"], ["--sort retrun", "final_return"]),
        (["runs", "--status", "trained"], ["--status trained", "training"]),
        (["tidy"], ["--dev, --failed, --older"]),
        (["tidy", "--older", "30"], ["--older 30", "d (days)"]),
        (["tidy", "--dev", "--data", "a_file"], ["a_file: must be a folder"]),
        (["runs", "--json", "--data", "a_file"], ["a_file: must be a folder"]),
        (["diff", "alpha", "omega"], ["there is no run folder omega"]),
    ],
)
def test_wrong_arguments_are_refused(folder, words, message):
    (folder / "a_file").touch()
    assert_bad_input(folder, words, message, code=3 if "omega" in words else 2)


@pytest.mark.medium
def test_a_run_has_the_name_the_note_and_the_environment_of_its_command(tmp_path):
    words = ["--name", "short run", "--note", "a try", "-s", "env.name=CartPole-v1"]
    settings = ["-s", "env.max_frame=1000", "-s", "meta.max_session=1"]
    done = lab(tmp_path, "run", *words, *settings, "--json")
    assert done.code == 0, done.err
    trained = json.loads(done.out)
    assert trained["metrics"]["final_return"] == trained["final_return"]
    assert trained["exit_code"] == 0
    (run,) = json.loads(printed(tmp_path, "runs", "--json"))
    assert run.items() <= trained.items()
    plotted = json.loads(printed(tmp_path, "plot", "latest", "--json"))
    assert plotted["runs"][0]["mean"] == run["final_return"]
    assert (run["label"], run["note"]) == ("short run", "a try")
    assert run["run"].startswith("ppo_cartpole_CartPole-v1_20")
    done = lab(tmp_path, "run", "eval@short run", "--episodes", "1")
    assert done.code == 0, done.err
    done = lab(tmp_path, "run", "train@latest", "--note", "again")
    assert (done.code, "works only where a run begins" in done.err) == (2, True)


@pytest.mark.medium
def test_a_list_imports_nothing_that_takes_long(folder):
    code = (
        "import atexit, sys\natexit.register(lambda: "
        "print(*sorted({'slm_lab.spec.schema.agent', 'gymnasium', 'torch', 'pandas', "
        "'matplotlib', 'ray'} & set(sys.modules)), 'end'))\nfrom slm_lab.cli.main "
        "import main\nmain()\n"
    )
    words = [sys.executable, "-c", code, "runs"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "end"


def test_what_a_shell_makes_of_a_star_lists_the_runs_among_it(folder):
    data = folder / "data"
    (data / "plotly-7.1.0.min.js").write_text("")
    (data / "random_returns.json").write_text("{}")
    every = sorted(f"data/{each.name}" for each in data.iterdir())
    assert names(printed(folder, "runs", *every)) == ["alpha", "beta", "gamma"]
    assert names(printed(folder, "runs", *every[:1])) == ["alpha"]


@pytest.fixture
def closed(folder, monkeypatch):
    """A run whose folder this user may not read, for any user that runs the tests."""
    (place,) = (folder / "data").glob("beta_*")
    may_access = os.access

    def access(path, mode, **how):
        return not str(path).endswith(place.name) and may_access(path, mode, **how)

    monkeypatch.setattr(files.os, "access", access)
    return place


def test_a_run_that_may_not_be_read_is_shown_as_such_beside_the_others(folder, closed):
    listed = json.loads(printed(folder, "runs", "--json"))
    assert {run["run"]: run["status"] for run in listed}[closed.name] == "unreadable"
    assert sorted(run["name"] for run in listed) == ["", "alpha", "gamma"]
    assert "unreadable" in printed(folder, "runs", "--status", "unreadable")
    assert find_folder("alpha", folder / "data")[0].spec_name == "alpha"
    for word in (closed.name, str(closed)):
        with pytest.raises(UsageError, match="may not be read by this user"):
            find_folder(word, folder / "data")


@pytest.mark.medium
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_another_user_sees_the_runs_and_gets_one_line_for_the_closed_one(folder, mode):
    (place,) = (folder / "data").glob("beta_*")
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    for parent in (folder, *folder.parents):
        if parent.is_relative_to(root) and parent.stat().st_uid == 0:
            parent.chmod(parent.stat().st_mode | 0o055)
    place.chmod(mode)
    as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(LAB)]

    def call(*words):
        env = {**os.environ, "HOME": "/nonexistent"}
        return subprocess.run(
            [*as_other, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )

    listed = call("runs", "--json")
    assert listed.returncode == 0, listed.stderr
    assert len(json.loads(listed.stdout)) == 3
    for words in (
        ["doctor", place.name],
        ["plot", f"data/{place.name}"],
        ["watch", place.name],
    ):
        done = call(*words)
        assert done.returncode in {1, 2}
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert "report it" not in done.stderr


def test_runs_are_tagged_and_noted_later_and_found_by_it(folder):
    changed = printed(
        folder,
        "runs",
        *("--tag", "alpha=good", "--tag", "latest=good", "--tag", "alpha=old"),
        *("--note", "beta=too slow, = really"),
    )
    lines = [line.split("_2026")[0] for line in changed.splitlines()]
    assert lines == ["alpha", "beta"]
    assert names(printed(folder, "runs", "--tag", "good")) == ["alpha", "beta"]
    assert names(printed(folder, "runs", "--tag", "good", "--tag", "old")) == ["alpha"]
    assert names(printed(folder, "runs", "old")) == ["alpha"]
    (beta,) = json.loads(printed(folder, "runs", "really", "--json"))
    assert (beta["tags"], beta["note"]) == (["good"], "too slow, = really")
    table = printed(folder, "runs")
    assert "good, old" in table
    printed(folder, "runs", "--untag", "alpha=good", "--note", "beta=")
    assert names(printed(folder, "runs", "--tag", "good")) == ["beta"]
    assert json.loads(printed(folder, "runs", "beta", "--json"))[0]["note"] == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tag", "alpha=x", "--tag", "nowhere=x"], "there is no run folder nowhere"),
        (["--tag", "=x"], "must be NAME=…"),
        (["--tag", "alpha="], "must have 1 to 60"),
        (["--untag", "alpha"], "must be NAME=…"),
        (["alpha", "--tag", "alpha=x"], "list them in a second command"),
        (["--tag", "good", "--tag", "alpha=x"], "list them in a second command"),
    ],
)
def test_a_wrong_tag_changes_nothing(folder, words, message):
    done = lab(folder, "runs", *words)
    assert done.code in (2, 3)
    assert message in done.err
    assert all(not run["tags"] for run in json.loads(printed(folder, "runs", "--json")))


def test_keys_that_differ_are_columns(tmp_path):
    for i, gamma in enumerate((0.9, 0.95)):
        write_ended(tmp_path / "data", f"run{i}", ppo(agent__algorithm__gamma=gamma))
    header, *lines = printed(tmp_path, "runs").splitlines()
    assert "gamma" in header.split()
    assert [line.split()[2] for line in lines] == ["0.9", "0.95"]
    runs = json.loads(printed(tmp_path, "runs", "--json"))
    path = "agent.algorithm.gamma"
    assert [run["params"] for run in runs] == [{path: 0.9}, {path: 0.95}]
