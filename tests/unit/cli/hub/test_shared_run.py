"""A run as one file: what it holds, and that it plays anywhere as the run itself
does."""

import io
import json
import re
import shlex
import shutil
import socket
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import slm_lab
from slm_lab.core.errors import LabError, UsageError
from slm_lab.core.text import significant
from tests.faults.lab import NAME, lab, run_folder
from tests.support import made_once, ppo
from tests.unit.cli.trained import lab_run, table, trained

pytestmark = pytest.mark.medium

EMPTY = b"PK\5\6" + bytes(18)
"""An archive without files."""


def invoke(*words):
    return lab(Path.cwd(), *words)


@pytest.fixture(scope="session")
def shared(run, tmp_path_factory):
    """The archive of a run, alone in a folder."""
    path = tmp_path_factory.mktemp("shared") / "pole.zip"
    assert invoke("export", run_folder(run), "--to", "zip", "--out", path).code == 0
    return path


@pytest.fixture
def elsewhere(shared, tmp_path, monkeypatch):
    """A working directory without runs and specs."""
    monkeypatch.chdir(tmp_path)
    return shared


def repacked(path, target, change):
    """A copy of the archive with one file changed: `change` gets name and content."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(content, "w") as copy:
        for name in source.namelist():
            copy.writestr(name, change(name, source.read(name)))
    target.write_bytes(content.getvalue())
    return target


def test_it_is_evaluated_and_enjoyed_without_a_spec_file(elsewhere, run):
    done = invoke("run", f"eval@{elsewhere}", "--episodes", 20)
    assert done.code == 0
    (row,) = table(done.both)
    assert row == table(lab_run(run, "eval@latest", "--episodes", "20").both)[0]
    assert "Session 1 has no saved agent: left out" in done.both
    done = invoke("run", f"enjoy@{elsewhere}", "--episodes", 2)
    assert done.code == 0
    assert "episode 2: return " in done.both


def test_a_run_folder_is_evaluated_without_a_spec_file_too(run):
    done = invoke("run", "eval@latest", "--episodes", 20, "--data", run / "data")
    assert table(done.both) == table(
        lab_run(run, "eval@latest", "--episodes", "20").both
    )


def test_it_is_loaded_and_acts_as_the_run(elsewhere, run, tmp_path):
    agent, own = slm_lab.load(elsewhere), slm_lab.load(run_folder(run))
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(agent.act(obs), own.act(obs))
    np.testing.assert_array_equal(agent.evaluate(4).returns, own.evaluate(4).returns)
    assert agent.folder == elsewhere
    agent.export(tmp_path / "again.zip")
    assert slm_lab.load(tmp_path / "again.zip").frame == own.frame


def test_its_rows_metrics_and_spec_are_read(elsewhere, run):
    shared, own = slm_lab.load_run(elsewhere), slm_lab.load_run(run_folder(run))
    assert shared.rows.equals(own.rows)
    assert shared.eval_rows.equals(own.eval_rows)
    assert (shared.metrics, shared.spec) == (own.metrics, own.spec)
    assert "small on CartPole-v1" in shared.plot().layout.title.text
    folder = shared.folder
    assert folder.is_dir()
    del shared
    assert not folder.exists()


def test_the_card_says_what_it_is_and_how_to_use_it(shared, run):
    with zipfile.ZipFile(shared) as archive:
        card = archive.read("README.md").decode()
    metrics = slm_lab.load_run(run_folder(run)).metrics
    for words in (
        "# small: PPO on CartPole-v1",
        "slm-lab run enjoy@pole.zip --render",
        """python -c 'import slm_lab; print(slm_lab.load("pole.zip").evaluate(10))'""",
        f"Mean {metrics['final_return']:.3g}",
        "95 % bootstrap interval",
        "with the root seed 0",
    ):
        assert words in card


def test_the_card_names_no_commit_of_an_installed_lab(shared, tmp_path):
    def installed(name, content):
        if not name.endswith("_spec.json"):
            return content
        spec = json.loads(content)
        spec["_run"]["git_sha"] = None
        return json.dumps(spec)

    agent = slm_lab.load(repacked(shared, tmp_path / "installed.zip", installed))
    agent.export(tmp_path / "pole.zip")
    with zipfile.ZipFile(tmp_path / "pole.zip") as archive:
        card = archive.read("README.md").decode()
    assert "\nPython 3." in card
    assert "Commit" not in card


def test_the_workers_of_a_training_are_one_seed_of_the_card(shared, tmp_path):
    def synced(name, content):
        if not name.endswith("_spec.json"):
            return content
        spec = json.loads(content)
        spec[NAME]["meta"]["distributed"] = "synced"
        spec[NAME]["agent"]["net"]["optim_spec"]["name"] = "GlobalAdam"
        return json.dumps(spec)

    agent = slm_lab.load(repacked(shared, tmp_path / "synced.zip", synced))
    agent.export(tmp_path / "pole.zip")
    with zipfile.ZipFile(tmp_path / "pole.zip") as archive:
        card = archive.read("README.md").decode()
    mean = slm_lab.load_run(shared).metrics["final_return"]
    assert card.endswith(f"by seed: {significant(mean)}.\n"), "no interval of one seed"


def test_the_commands_of_the_card_need_no_change(run, tmp_path, monkeypatch, capfd):
    (tmp_path / "of_card.py").write_text("")
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(run_folder(run), tmp_path / "data" / "run")
    file = folder / f"{NAME}_spec.json"
    content = json.loads(file.read_text())
    content["_run"]["imports"] = ["of_card"]
    file.write_text(json.dumps(content))
    slm_lab.load("run", imports="of_card").export("Ada's pole.zip")
    with zipfile.ZipFile("Ada's pole.zip") as archive:
        card = archive.read("README.md").decode()
    enjoy, evaluate = card.partition("```bash\n")[2].splitlines()[:2]
    (again,) = re.findall("`(slm-lab .* train .*)` repeats", card)
    assert main_words(enjoy) == [
        "run",
        "enjoy@Ada's pole.zip",
        "--render",
        "--import",
        "of_card",
    ]
    assert main_words(again) == ["run", file.name, NAME, "train", "--import", "of_card"]
    exec(shlex.split(evaluate)[2])
    assert "Episodes(returns=array" in capfd.readouterr().out


def main_words(command):
    name, *words = shlex.split(command)
    assert name == "slm-lab"
    return words


def test_it_says_nothing_about_the_machine(shared, run):
    words = [
        str(run).encode(),
        socket.gethostname().encode(),
        b'"machine"',
        b'"command"',
    ]
    with zipfile.ZipFile(shared) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            # a short name of a host may be among its bytes by chance
            if name.endswith(".png"):
                assert str(run).encode() not in content
                continue
            assert [word for word in words if word in content] == [], name


@pytest.mark.parametrize("how", ["import", "environment"])
def test_modules_that_it_names_are_not_imported(
    how, shared, tmp_path, monkeypatch, capsys
):
    (tmp_path / "payload.py").write_text("raise SystemExit('it ran')")
    monkeypatch.chdir(tmp_path)

    def naming(name, content):
        if not name.endswith("_spec.json"):
            return content
        spec = json.loads(content)
        if how == "import":
            spec["_run"]["imports"] = ["payload"]
        else:
            spec[NAME]["env"]["name"] = "payload:CartPole-v1"
        return json.dumps(spec)

    evil = repacked(shared, tmp_path / "evil.zip", naming)
    for done in (invoke("run", f"eval@{evil}"), invoke("export", evil, "--to", "onnx")):
        assert done.code == 2
        assert "names code that would be run: the module payload" in done.err
    with pytest.raises(UsageError, match="the module payload"):
        slm_lab.load(evil)
    slm_lab.load_run(evil)
    with pytest.raises(UsageError, match="it ran"):
        slm_lab.load(evil, imports=["payload"])


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.xml", "~/secret.xml", "C:\\secret.xml"]
)
def test_an_argument_that_names_a_file_of_this_machine_is_refused(
    path, shared, tmp_path
):
    def with_file(name, content):
        if not name.endswith("_spec.json"):
            return content
        spec = json.loads(content)
        spec[NAME]["env"] |= {"name": "Ant-v5", "xml_file": path}
        return json.dumps(spec)

    evil = repacked(shared, tmp_path / "evil.zip", with_file)
    with pytest.raises(UsageError, match=r"env\.xml_file = .* names a file"):
        slm_lab.load(evil)
    done = invoke("run", f"eval@{evil}")
    assert done.code == 2
    assert "unzip it into the data folder and use the folder" in " ".join(
        done.err.split()
    )


def test_the_doctor_makes_no_environment_with_a_file_that_it_names(
    shared, tmp_path, monkeypatch
):
    def with_file(name, content):
        if not name.endswith("_spec.json"):
            return content
        spec = json.loads(content)
        spec[NAME]["env"] |= {"scene": {"map": "/etc/passwd"}}
        return json.dumps(spec)

    made = []
    monkeypatch.setattr(
        "slm_lab.records.policy.build_policy", lambda *_: made.append(1)
    )
    done = invoke("doctor", repacked(shared, tmp_path / "evil.zip", with_file))
    assert (done.code, made) == (0, [])
    assert "the agent was not looked at: " in done.both
    assert 'env.scene.map = "/etc/passwd" names a file' in " ".join(done.both.split())


def test_a_suffix_in_capitals_is_a_zip_file_too(shared, tmp_path):
    capitals = tmp_path / "POLE.ZIP"
    shutil.copyfile(shared, capitals)
    assert slm_lab.load(capitals).frame == slm_lab.load(shared).frame


def test_graphs_of_trainings_that_confirm_a_trial_are_not_in_it(run, tmp_path):
    """The best trial of a search has a folder for them beside its own files."""
    folder = shutil.copytree(run_folder(run), tmp_path / "data" / run_folder(run).name)
    (graph, *_) = folder.rglob("*_t0_trial_graph_mean_returns_ma_vs_frames.png")
    (folder / "confirm_t0").mkdir()
    shutil.copyfile(graph, folder / "confirm_t0" / graph.name)
    slm_lab.load(folder).export(tmp_path / "shared.zip")
    assert slm_lab.load(tmp_path / "shared.zip").frame == slm_lab.load(folder).frame
    with zipfile.ZipFile(tmp_path / "shared.zip") as archive:
        assert graph.name in archive.namelist()


def test_changed_weights_are_refused(shared, tmp_path):
    def damaged(name, content):
        return (
            content[:-1] + b"x"
            if name.endswith(".json") and "latest" in name
            else content
        )

    done = invoke("run", f"eval@{repacked(shared, tmp_path / 'bad.zip', damaged)}")
    assert done.code == 1
    assert "cannot read the checkpoint" in done.err
    assert "Traceback" not in done.both


def other_net(content):
    spec = json.loads(content)
    spec[NAME]["agent"]["net"]["hid_layers"] = [3]
    return json.dumps(spec)


def no_env(content):
    spec = json.loads(content)
    spec[NAME]["env"] = None
    return json.dumps(spec)


@pytest.mark.parametrize(
    ("end", "change", "use", "message"),
    [
        ("_spec.json", lambda _: b"{", slm_lab.load, "small_spec.json has 1 problem"),
        ("_spec.json", other_net, slm_lab.load, "no longer builds the agent"),
        ("_latest.json", lambda _: b"{}", slm_lab.load, "cannot read the checkpoint"),
        ("_spec.json", no_env, slm_lab.load_run, "must have blocks env and meta"),
        (
            "_train.csv",
            lambda _: b"a\n",
            lambda run: slm_lab.load_run(run).rows,
            "no column frame",
        ),
        (
            "_train.csv",
            lambda _: b"a\n",
            lambda run: slm_lab.load(run).export("again.zip"),
            "no column frame",
        ),
        (
            "t0_trial_metrics_scalar.json",
            lambda _: b"[",
            lambda run: slm_lab.load_run(run).metrics,
            "is not JSON",
        ),
    ],
)
def test_an_error_about_its_files_names_the_archive(
    end, change, use, message, shared, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    bad = repacked(
        shared,
        tmp_path / "bad.zip",
        lambda name, content: change(content) if name.endswith(end) else content,
    )
    with pytest.raises(LabError, match=message) as caught:
        use(bad.name)
    assert "bad.zip" in str(caught.value)
    assert tempfile.gettempdir() not in str(caught.value)


def test_a_command_names_the_archive_not_the_folder_of_its_files(elsewhere):
    done = invoke("run", f"eval@{elsewhere}", "--episodes", 1)
    assert f"\nshared run {elsewhere}\n" in done.both
    assert repr(slm_lab.load_run(elsewhere)) == f"<Run {NAME} in {elsewhere}>"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--which", "latest"],
            "it is a shared run, which has one agent; leave out which",
        ),
        (["--session", "1"], "Session 1 has no checkpoint yet"),
    ],
)
def test_a_part_missing_from_a_shared_run_is_one_line(elsewhere, args, message):
    done = invoke("run", f"eval@{elsewhere}", *args)
    assert done.code == 2
    assert message in done.err


def test_its_agent_needs_no_more_than_the_file(elsewhere, tmp_path):
    agent = slm_lab.load_run(elsewhere).agent()
    agent.export(tmp_path / "again.zip")
    assert agent.folder == elsewhere
    assert slm_lab.load(tmp_path / "again.zip").frame == agent.frame


@pytest.mark.parametrize("command", ["plot", "doctor"])
def test_its_rows_are_drawn_and_examined(elsewhere, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(command, elsewhere)
    assert done.code == 0, done.err


@pytest.mark.parametrize("words", [["run", "train@"], ["watch", ""]])
def test_it_is_not_trained_further(elsewhere, words):
    done = invoke(*words[:-1], f"{words[-1]}{elsewhere}")
    assert done.code == 2
    assert "is a shared run: it has only an agent, and cannot be resumed" in done.err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["plot"], "plot_mean_returns"),
        (["doctor"], "too little for a claim"),
        (["diff"], "Results"),
    ],
)
def test_its_rows_are_plotted_compared_and_diagnosed(elsewhere, words, shown):
    runs = [elsewhere] * (1 + (words == ["diff"]))
    done = invoke(*words, *runs)
    assert (done.code, done.err) == (0, "")
    assert shown in done.out


def test_a_missing_file_is_no_run(elsewhere):
    done = invoke("run", "eval@missing.zip")
    assert (done.code, done.err.strip()) == (
        3,
        "there is no run folder missing.zip, here or in data",
    )


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda _: EMPTY, "pole.zip is not a run: it has no"),
        (lambda content: content[100:], "pole.zip is not a shared run, or is damaged"),
    ],
)
def test_a_file_without_files_or_without_its_start_is_refused(
    cut, message, shared, tmp_path
):
    (tmp_path / "pole.zip").write_bytes(cut(shared.read_bytes()))
    with pytest.raises(UsageError, match=message):
        slm_lab.load(tmp_path / "pole.zip")


def test_a_trial_of_a_search_is_shared_as_a_run(tmp_path_factory, tmp_path):
    spec = ppo(env__max_frame=300, meta__max_trial=2)
    spec["search"] = {"agent.algorithm.gamma__choice": [0.9, 0.99]}
    root = run_folder(
        made_once(
            tmp_path_factory, "searched", lambda folder: trained(folder, spec, "search")
        )
    )
    path = tmp_path / "trial.zip"
    assert invoke("export", f"{root}:t1", "--to", "zip", "--out", path).code == 0
    own, agent = slm_lab.load(f"{root}:t1"), slm_lab.load(path)
    assert agent.spec.agent.algorithm.gamma == own.spec.agent.algorithm.gamma
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    np.testing.assert_array_equal(agent.act(obs), own.act(obs))
    assert slm_lab.load_run(path).rows.equals(slm_lab.load_run(f"{root}:t1").rows)
