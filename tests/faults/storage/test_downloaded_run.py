"""A run folder from an untrusted source: none of its code runs, no file outside it
changes."""

import io
import json
import os
import pickle
import shutil
import sys
from hashlib import sha256

import pytest
import torch
from typer.testing import CliRunner

from slm_lab.cli.main import app
from slm_lab.records.event_log import EventLog, Proposed
from slm_lab.records.run_source import RunSource
from slm_lab.storage.manifest import previous_path
from slm_lab.studies.compare.modes import CompareRequest, make_plan
from slm_lab.studies.compare.run import CompareRun
from slm_lab.studies.search.run import SearchRun
from tests.faults.lab import (
    NAME,
    call,
    command,
    manifest,
    row_count,
    run_folder,
    write_spec,
)
from tests.support import ppo

pytestmark = pytest.mark.medium

RAN = "the_payload_ran"
PAYLOAD = f"""import pathlib
pathlib.Path(__file__).with_name("{RAN}").touch()
def wrap(env): return env
"""
LONGER = ("-s", "env.max_frame=1200")


@pytest.fixture
def copy(finished, tmp_path, monkeypatch):
    """The copy of a run, whose folder has a short name, and code in it."""
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    run = run_folder(folder).rename(folder / "data" / "evil")
    (run / "payload.py").write_text(PAYLOAD)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return folder


def own_spec(folder):
    return run_folder(folder) / f"{NAME}_spec.json"


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def named(folder, how, module):
    """Makes the run name a module: as an import, as that of its environment, or of a
    wrapper."""

    def change(content):
        if how == "import":
            content["_run"]["imports"] = [module]
        elif how == "wrapper":
            content[NAME]["env"]["wrappers"] = [{"name": f"{module}:wrap"}]
        else:
            content[NAME]["env"]["name"] = f"{module}:CartPole-v1"

    edit(own_spec(folder), change)


def lab(*args):
    """The command in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False)


def on_the_run(folder, mode, *options):
    return lab(*command(folder, f"{mode}@{folder / 'data' / 'evil'}", *options)[1:])


def ran(folder):
    return list(folder.rglob(RAN)) != []


PLACES = {
    "beside the data": ("", "data.evil.payload"),
    "the data": ("data", "evil.payload"),
    "the run": ("data/evil", "payload"),
}


@pytest.mark.parametrize("mode", ["eval", "enjoy", "train"])
@pytest.mark.parametrize("how", ["import", "env", "wrapper"])
@pytest.mark.parametrize("place", PLACES)
def test_code_in_a_run_folder_never_runs(copy, monkeypatch, mode, how, place):
    where, module = PLACES[place]
    monkeypatch.chdir(copy / where)
    named(copy, how, module)
    for words in (
        (),
        ("--import", module),
        ("--import", module.partition(".")[0]),
        ("--trust",),
    ):
        done = on_the_run(copy, mode, *words)
        assert done.exit_code == 2, done.output
        (line,) = done.stderr.splitlines()
        assert module in line
        assert "whose code is never run" in line
    assert not ran(copy)


@pytest.mark.parametrize(
    ("how", "place"), list(zip(["import", "env", "wrapper"], PLACES, strict=True))
)
def test_code_in_the_working_directory_does_not_run_either(copy, how, place):
    """As it does with -m, before any code of the lab runs."""
    where, module = PLACES[place]
    named(copy, how, module)
    args = command(copy, f"eval@{copy / 'data' / 'evil'}")[1:]
    done = call([sys.executable, "-m", "slm_lab", *args], copy / where)
    assert done.code == 2
    assert module in done.err
    assert not ran(copy)


@pytest.mark.parametrize("how", ["import", "env", "wrapper"])
def test_a_module_elsewhere_needs_the_import_option_each_time(copy, monkeypatch, how):
    """A module that the folder names; the option for a package covers its modules."""
    package = copy / "mine_of_a_test"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text(PAYLOAD)
    monkeypatch.chdir(copy)
    named(copy, how, "mine_of_a_test.inner")
    refused = on_the_run(copy, "eval")
    assert refused.exit_code == 2
    (line,) = refused.stderr.splitlines()
    assert "the module mine_of_a_test.inner" in line
    assert "--import mine_of_a_test.inner (or --trust" in line
    assert on_the_run(copy, "eval", "--import", "mine_of_a_test.in").exit_code == 2
    assert not ran(copy)
    for words in (("--import", "mine_of_a_test"), ("--trust",)):
        for module in ("mine_of_a_test.inner", "mine_of_a_test"):
            sys.modules.pop(module, None)
        done = on_the_run(copy, "eval", "--episodes", "1", *words)
        assert done.exit_code == 0, done.output
        assert ("mine_of_a_test.inner, which" in done.stdout) == (words == ("--trust",))
        assert ran(copy)
        (package / RAN).unlink()


def test_a_users_spec_may_name_a_module_and_one_in_a_run_folder_may_not(
    copy, monkeypatch
):
    monkeypatch.chdir(copy)
    (copy / "mine_as_well.py").write_text(PAYLOAD)
    sys.path.insert(0, str(copy))
    named(copy, "env", "mine_as_well")
    trial = run_folder(copy) / f"{NAME}_t0_spec.json"
    edit(
        trial,
        lambda content: content[NAME]["env"].update(name="mine_as_well:CartPole-v1"),
    )
    for file in (own_spec(copy), trial):
        done = lab("run", file, NAME, "train", "--data", copy / "new")
        assert done.exit_code == 2
        assert "names code that would be run: the module mine_as_well" in done.stderr
    assert not ran(copy)
    write_spec(copy, ppo(env__name="mine_as_well:CartPole-v1", env__max_frame=0))
    assert "env.max_frame" in lab("run", copy / "spec.json", NAME).stderr
    write_spec(copy, ppo(env__name="mine_as_well:NoSuch-v0"))
    assert "there is no such environment" in lab("run", copy / "spec.json", NAME).stderr
    assert ran(copy)
    sys.modules.pop("mine_as_well")


def test_spec_check_imports_the_modules_of_a_run_folder_only_with_the_option(
    copy, monkeypatch
):
    monkeypatch.chdir(copy)
    (copy / "mine_to_check.py").write_text(PAYLOAD)
    sys.path.insert(0, str(copy))
    trial = run_folder(copy) / f"{NAME}_t0_spec.json"
    env = {"name": "mine_to_check:CartPole-v1", "nonsense": 1}
    edit(
        trial,
        lambda content: (
            content[NAME]["env"].update(env) or content.update(imports=["no"])
        ),
    )
    done = lab("spec", "check", trial)
    assert done.exit_code == 0
    assert "names the module mine_to_check, which was not imported" in done.stdout
    assert not ran(copy)
    for words in (("--import", "mine_to_check"), ("--trust",)):
        done = lab("spec", "check", trial, *words)
        assert (done.exit_code, "env.nonsense" in done.stdout) == (2, True)
        sys.modules.pop("mine_to_check")
    assert ran(copy)


def test_plot_imports_nothing(copy, monkeypatch):
    monkeypatch.chdir(copy)
    for how in ("import", "env", "wrapper"):
        named(copy, how, "data.evil.payload")
    assert lab("plot", "data/evil", "--out", copy / "plots").exit_code == 0
    assert not ran(copy)


SEARCH = {"agent.algorithm.gamma__uniform": [0.9, 0.99]}


@pytest.fixture
def search(tmp_path, monkeypatch):
    """A search that has not begun, with code in its folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_spec(tmp_path, ppo(search=SEARCH, meta__max_trial=2))
    prepared = SearchRun(RunSource("spec.json", NAME))
    prepared.close()
    prepared.run_dir.root.rename("data/evil")
    (tmp_path / "data" / "evil" / "payload.py").write_text(PAYLOAD)
    return tmp_path


def proposed(folder, env_name):
    record = EventLog(folder / "data" / "evil" / f"{NAME}_search.jsonl")
    record.write(Proposed(0, {"agent.algorithm.gamma": 0.95, "env.name": env_name}))
    record.close()


@pytest.mark.parametrize("how", ["import", "env", "search", "record"])
def test_code_that_a_search_names_never_runs(search, how):
    module = "data.evil.payload"
    env_name = f"{module}:CartPole-v1"
    if how == "record":
        proposed(search, env_name)
    elif how == "search":
        varied = {**SEARCH, "env.name__choice": ["CartPole-v1", env_name]}
        edit(own_spec(search), lambda content: content[NAME].update(search=varied))
    else:
        named(search, how, module)
    for words in ((), ("--import", module), ("--trust",)):
        done = lab("run", "spec.json", NAME, "search@data/evil", *words)
        assert done.exit_code == 2
        assert module in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not ran(search)


def test_a_log_that_sets_the_cluster_of_a_trial_is_refused(search):
    record = EventLog(search / "data" / "evil" / f"{NAME}_search.jsonl")
    record.write(
        Proposed(0, {"agent.algorithm.gamma": 0.95, "meta.cluster": "10.0.0.1:6379"})
    )
    record.close()
    done = lab("run", "spec.json", NAME, "search@data/evil", "--trust")
    assert done.exit_code == 2
    assert "sets meta.cluster, which the search does not vary" in done.stderr


def test_code_that_a_comparison_names_never_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write_spec(tmp_path, ppo())
    request = CompareRequest(RunSource("spec.json", NAME), ("all_reduce",), (1,), 1)
    run = CompareRun.begin(make_plan(request), request.source.data_dir)
    run._lock.release()
    evil = run.folder.rename("data/evil")
    (tmp_path / "data" / "evil" / "payload.py").write_text(PAYLOAD)
    (plan,) = evil.glob("*_specs.json")
    before = plan.read_text()
    for how in ("import", "env"):
        plan.write_text(before)
        content = json.loads(before)
        if how == "import":
            content["_compare"]["imports"] = ["data.evil.payload"]
        else:
            spec = next(value for key, value in content.items() if key != "_compare")
            spec["env"]["name"] = "data.evil.payload:CartPole-v1"
        plan.write_text(json.dumps(content))
        for words in ((), ("--import", "data.evil.payload"), ("--trust",)):
            done = lab("compare", "--resume", evil, *words)
            assert done.exit_code == 2
            assert "data.evil.payload" in done.stderr
    assert not ran(tmp_path)


def linked(path, precious):
    """A link in the place of a file, to one outside of the run."""
    precious.write_bytes(b"precious " * 10)
    path.unlink(missing_ok=True)
    path.symlink_to(precious)


LINKS = (
    ".lock",
    "info/small_t0_s0_session_df_train.csv",
    "small_spec.json",
    "log/small_t0_s0.log",
    "model/small_t0_s0_latest.json.part",
    "model/small_t0_s0_state_000099_1200.pt",
)


@pytest.mark.parametrize("name", LINKS)
def test_a_run_with_a_link_in_it_is_not_trained_and_what_it_leads_to_stays(
    copy, tmp_path, name
):
    linked(run_folder(copy) / name, tmp_path / "precious")
    if name.endswith("_spec.json"):
        shutil.copy(copy / "spec.json", tmp_path / "precious")
    before = (tmp_path / "precious").read_bytes()
    done = on_the_run(copy, "train", *LONGER)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert f"{name} is a symbolic link" in line
    assert (tmp_path / "precious").read_bytes() == before


def test_a_folder_that_is_a_link_is_refused_as_well(copy, tmp_path):
    info = run_folder(copy) / "info"
    elsewhere = info.rename(tmp_path / "elsewhere")
    info.symlink_to(elsewhere, target_is_directory=True)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    done = on_the_run(copy, "train", *LONGER)
    assert (done.exit_code, "info is a symbolic link" in done.stderr) == (1, True)
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


@pytest.mark.slow
def test_a_link_for_the_lock_of_the_random_agents_return_is_not_written_through(
    copy, tmp_path
):
    # to be measured
    edit(own_spec(copy), lambda content: content[NAME]["env"].update(max_t=400))
    linked(copy / "data" / ".random_returns.lock", tmp_path / "precious")
    done = call(command(copy, "train@evil", *LONGER), copy)
    assert "is a symbolic link" in done.err
    assert (tmp_path / "precious").read_bytes() == b"precious " * 10
    assert row_count(copy) > 10


@pytest.mark.parametrize("name", ["../outside.pt", "/etc/passwd", "a/b.pt", "..", ""])
@pytest.mark.parametrize("where", ["files", "rows", "segments"])
def test_names_in_a_manifest_are_names_and_no_paths(copy, name, where):
    def change(content):
        if where == "files":
            content["files"]["state"]["name"] = name
        elif where == "rows":
            content["rows"] = {name: {"size": 10, "sha256": ""}}
        else:
            content["segments"] = [
                {"first": 0, "end": 1, "name": name, "bytes": 1, "sha256": ""}
            ]

    edit(manifest(copy), change)
    previous_path(manifest(copy)).unlink()  # else training would fall back to it
    for mode, options in (("eval", ("--which", "latest")), ("train", LONGER)):
        done = on_the_run(copy, mode, *options)
        assert done.exit_code == 1
        assert f"{name!r} must be the name of a file" in done.stderr


class Payload:
    def __reduce__(self):
        return os.system, (f"touch {RAN}",)


def torch_file(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def torch_script():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.trace(torch.nn.Linear(1, 1), torch.zeros(1)), buffer)
    return buffer.getvalue()


def real_state(change):
    """The state that was saved, changed."""

    def content(path):
        state = torch.load(path, weights_only=True)
        change(state)
        return torch_file(state)

    return content


def flat_state(state):
    return next(iter(state["agent"]["learner"]["train_state"].values()))["flat"]


def spread(state):
    """A single number, which torch would copy to all places."""
    flat_state(state)["vector"] = torch.zeros(())


def lengthen(state):
    flat_state(state)["vector"] = torch.zeros(len(flat_state(state)["vector"]) + 1)


def complex_numbers(state):
    flat_state(state)["vector"] = flat_state(state)["vector"].to(torch.complex64)


def no_tensor(state):
    flat_state(state)["vector"] = "text"


HOSTILE = {
    "a payload": lambda _: torch_file(Payload()),
    "a raw pickle": lambda _: pickle.dumps(Payload()),
    "junk": lambda _: bytes(range(256)),
    "nothing": lambda _: b"",
    "a list": lambda _: torch_file([1, 2]),
    "a key too few": lambda _: torch_file({"frame": 1}),
    "a script": lambda _: torch_script(),
    "a number for all": real_state(spread),
    "a longer vector": real_state(lengthen),
    "complex numbers": real_state(complex_numbers),
    "text for a vector": real_state(no_tensor),
}


def replaced(folder, make):
    """Puts another content in the place of a state, and its checksum into the
    manifest."""
    name = json.loads(manifest(folder).read_text())["files"]["state"]["name"]
    file = run_folder(folder) / "model" / name
    content = make(file)
    file.write_bytes(content)
    checksum = sha256(content).hexdigest()
    edit(
        manifest(folder), lambda saved: saved["files"]["state"].update(sha256=checksum)
    )
    return file


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_checkpoint_with_a_right_checksum_is_one_line_and_runs_nothing(
    copy, what
):
    file = replaced(copy, HOSTILE[what])
    options = ("--which", "latest", "--session", "0", "--episodes", "1")
    done = on_the_run(copy, "eval", *options)
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert file.name in line
    assert "weights_only" not in line
    assert not ran(copy)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["a payload", "a key too few", "complex numbers"])
def test_a_hostile_checkpoint_runs_nothing_on_resume(copy, what):
    file = replaced(copy, HOSTILE[what])
    done = call(command(copy, "train@evil", *LONGER), copy)
    assert (done.code, done.err) == (0, ""), "it resumes from the previous checkpoint"
    assert file.name in done.out
    assert not ran(copy)
