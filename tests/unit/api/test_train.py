"""Trainings from Python: in a separate process, from any kind of program."""

import json
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import psutil
import pytest

import slm_lab
from slm_lab.core.errors import MissingRunError, SpecError, UsageError
from slm_lab.spec.load import load_spec
from slm_lab.storage.manifest import read_manifest
from tests.faults.lab import all_gone, wait_until
from tests.support import ppo
from tests.unit.api.events import Events
from tests.unit.records.runs import write_run

pytestmark = pytest.mark.medium

ENDLESS = 10**8
SHORT = 20.0
"""Seconds in which a training saves and ends."""
FRAGILE = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

class Fragile(CartPoleEnv):
    def step(self, action):
        raise ZeroDivisionError("the pole broke")

gymnasium.register("Fragile-v0", entry_point=Fragile)
"""
SCRIPT = """
import json, time, slm_lab
spec = json.loads({spec!r})
run = slm_lab.train(spec, data={data!r}, wait=False, on_row=lambda run, row: {on_row})
print("returned", run.is_running, flush=True)
run.wait()
print("ended", run.is_running, len(run.rows), flush=True)
"""


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def frames(run):
    return [tuple(pair) for pair in run.rows[["session", "frame"]].to_numpy()]


def test_a_training_reports_each_row_once(trained):
    folder, events, out = trained
    run = slm_lab.load_run("latest", data=folder / "data")
    assert sorted(events.rows()) == frames(run)
    saved = {event[1:] for event in events.seen if event[0] == "checkpoint"}
    assert saved >= {(0, 1000), (1, 1000)}
    assert events.seen[-1] == ("end", False)
    assert run.spec["meta"]["random_seed"] == 3
    assert run.metrics["final_return"] > 0
    assert "training small: PPO on CartPole-v1, 2 Sessions, seed 3" in out


def test_a_resumed_training_reports_only_the_new_rows(trained, data, capfd):
    folder, events, _ = trained
    shutil.copytree(folder / "data", data)
    again = Events()
    resumed = slm_lab.train(
        resume="latest",
        sets={"env.max_frame": 1500},
        data=data,
        callbacks=[again],
        quiet=True,
    )
    assert resumed.folder.parent == data
    assert sorted(events.rows() + again.rows()) == frames(resumed)
    assert all(frame > 1000 for _, frame in again.rows())
    assert "resuming" not in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a script without a guard", "python -c"])
def test_any_program_can_train(kind, tmp_path, data):
    spec = json.dumps(ppo(meta__max_session=2))
    code = SCRIPT.format(spec=spec, data=str(data), on_row="None")
    (tmp_path / "script.py").write_text(code)
    words = ["-c", code] if kind == "python -c" else ["script.py"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "returned True" in done.stdout
    assert "ended False 20" in done.stdout


def test_a_run_of_this_program_loads_its_agent_with_its_modules(data):
    spec = ppo(env__wrappers=["tests.unit.env.wrapped:Rewarded"])
    run = slm_lab.train(spec, data=data, quiet=True)
    assert type(run.agent().make_env()).__name__ == "Rewarded"
    with pytest.raises(UsageError, match=r"the module tests\.unit\.env\.wrapped"):
        slm_lab.load_run(run.folder).agent()


def test_a_failed_training_raises_with_the_sessions_reason(
    tmp_path, data, monkeypatch, capfd
):
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    events = Events()
    spec = ppo(env__name="Fragile-v0")
    with pytest.raises(
        slm_lab.TrainingFailed, match=r"Session 0 failed[\s\S]*the pole broke"
    ):
        slm_lab.train(spec, data=data, imports=["fragile"], callbacks=[events])
    assert events.seen == [("end", False)]
    assert "the pole broke" not in capfd.readouterr().err.splitlines()[-1:]


def test_a_callback_stops_a_training_and_each_that_raises_is_switched_off(data, capfd):
    calls, ended = [], []

    class Broken:
        def on_row(self, run, row):
            calls.append(row["frame"])
            raise ZeroDivisionError("my own mistake")

        def on_end(self, run):
            raise AssertionError("called again")

    class StopsAtTheThird:
        def on_row(self, run, row):
            if row["frame"] >= 300:
                run.stop()

    def fails(run, row):
        raise ZeroDivisionError("another mistake")

    run = slm_lab.train(
        ppo(env__max_frame=ENDLESS),
        data=data,
        on_row=fails,
        on_end=ended.append,
        callbacks=[Broken(), StopsAtTheThird()],
    )
    assert len(calls) == len(ended) == 1
    error = capfd.readouterr().err
    assert "my own mistake" in error
    assert "another mistake" in error
    assert error.count("switched off") == 2
    (session,) = run.metrics["sessions"]
    assert session["ending"] == "interrupted"
    assert run.agent(which="latest").frame == session["frame"] >= 300


@pytest.mark.parametrize(
    "end", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)]
)
def test_when_its_program_ends_a_training_saves_and_stops(end, tmp_path, data):
    """Also while a callback takes its time."""
    spec = json.dumps(ppo(env__max_frame=ENDLESS))
    code = SCRIPT.format(spec=spec, data=str(data), on_row="time.sleep(600)")
    code = code.replace("wait=False", "wait=True")
    with (tmp_path / "out").open("wb") as out:
        program = subprocess.Popen(
            [sys.executable, "-c", code], cwd=tmp_path, stdout=out, stderr=out
        )
    try:
        manifests = wait_until(lambda: list(data.glob("*/model/*_s0_latest.json")))
        children = psutil.Process(program.pid).children(recursive=True)
        program.send_signal(end)
        program.wait(SHORT)
        wait_until(lambda: all_gone(children), timeout=SHORT)
    finally:
        program.kill()
    output = (tmp_path / "out").read_text()
    assert "resume with: slm-lab run" in output
    assert ("KeyboardInterrupt" in output) == (end is signal.SIGINT)
    assert read_manifest(manifests[0]).frame > 0


def test_a_program_that_does_not_wait_reads_the_run_meanwhile(data, capfd):
    events = Events()
    run = slm_lab.train(
        ppo(env__max_frame=ENDLESS), data=data, wait=False, callbacks=[events]
    )
    try:
        wait_until(lambda: len(events.rows()) > 2)
        assert run.is_running
        assert len(run.rows) > 2
    finally:
        run.stop()
    run.wait()
    assert not run.is_running
    assert events.seen[-1] == ("end", False)
    run.wait()  # harmless


def test_a_problem_of_a_dict_names_no_temporary_folder(data):
    with pytest.raises(SpecError) as caught:
        slm_lab.train(ppo(env__name="Nowhere-v0"), data=data)
    assert str(caught.value).startswith(
        "spec.json: spec has 1 problem\n  env.name = 'Nowhere-v0'"
    )


@pytest.mark.parametrize("wait", [True, False])
def test_a_callback_may_wait_for_the_end_and_is_called_for_the_rest_then(wait, data):
    seen = []

    def on_row(run, row):
        if not seen:
            run.wait()
            assert not run.is_running
        seen.append(row["frame"])

    run = slm_lab.train(
        ppo(),
        data=data,
        quiet=True,
        wait=wait,
        on_row=on_row,
        on_end=lambda run: run.wait(),
    )
    run.wait()
    assert seen == run.rows.frame.tolist()


@pytest.mark.parametrize("form", ["dict", "content", "Spec", "file", "path and name"])
def test_a_spec_may_have_any_form(form, tmp_path, data, monkeypatch):
    requests = []

    class RecordedError(Exception):
        pass

    def command(verb, source, quiet):
        requests.append((verb, source.load(), source.seed))
        raise RecordedError

    monkeypatch.setattr("slm_lab.api.train.LabProcess", command)
    (tmp_path / "two.json").write_text(json.dumps({"small": ppo(), "other": ppo()}))
    (tmp_path / "one.json").write_text(json.dumps({"small": ppo()}))
    spec, name = {
        "dict": (ppo(), "small"),
        "content": ({"small": ppo(), "other": ppo()}, "small"),
        "Spec": (load_spec(tmp_path / "one.json"), None),
        "file": (str(tmp_path / "one.json"), None),
        "path and name": (tmp_path / "two.json", "small"),
    }[form]
    sets = {"env.num_envs": np.int64(2), "agent.net.hid_layers": np.array([3, 4])}
    with pytest.raises(RecordedError):
        slm_lab.train(spec, name=name, sets=sets, seed=5, data=data)
    ((verb, asked, seed),) = requests
    assert (verb, asked.name, seed) == ("train", "small", 5)
    assert asked.env.num_envs == 2
    assert asked.agent.net.hid_layers == (3, 4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {},
            UsageError,
            "spec: must be a file, the name of a shipped one, a dict or a Spec",
        ),
        ({"spec": 5}, UsageError, "spec: must be a file"),
        ({"spec": 5, "resume": "latest"}, UsageError, "spec: must be a file"),
        ({"spec": {"agent": object()}}, UsageError, "spec cannot be written as JSON"),
        (
            {"spec": "ppo_cartpole", "sets": {"env.x": {1}}},
            UsageError,
            r"sets\['env.x'\] cannot",
        ),
        (
            {"spec": "ppo_cartpole", "sets": ["env.max_frame=100"]},
            UsageError,
            r"sets = \['env.max_frame=100'\]: must be a dict from paths to values",
        ),
        ({"spec": "ppo_cartpol.json"}, SpecError, "did you mean ppo_cartpole.json"),
        ({"spec": "--help"}, SpecError, "there is no such file"),
        (
            {"spec": "ppo_cartpole", "callbacks": [3]},
            UsageError,
            "3 has none of the methods on_row",
        ),
        (
            {"spec": "ppo_cartpole", "callbacks": 3},
            UsageError,
            "3 has none of the methods on_row",
        ),
        (
            {"spec": "ppo_cartpole", "callbacks": ["no"]},
            UsageError,
            'no callback named "no"',
        ),
        (
            {"spec": "ppo_cartpole", "callbacks": "no"},
            UsageError,
            'no callback named "no"',
        ),
        ({"resume": "nothing_2020"}, UsageError, "there is no run folder nothing_2020"),
        (
            {"spec": "ppo_cartpole", "sets": {"env.max_fram": 3}},
            SpecError,
            "did you mean max_frame",
        ),
        (
            {"spec": "ppo_cartpole", "imports": ["no_such"]},
            UsageError,
            "--import no_such",
        ),
        (
            {"spec": "ppo_cartpole", "imports": "no_such"},
            UsageError,
            "--import no_such",
        ),
        (
            {"spec": "ppo_cartpole", "seed": -1},
            UsageError,
            "seed = -1: must be at least 0",
        ),
        (
            {"spec": "ppo_cartpole", "session": -1},
            UsageError,
            "session = -1: must be at least 0",
        ),
        (
            {
                "spec": "ppo_cartpole",
                "resume": True,
                "label": "a",
                "schedules": "banana",
            },
            UsageError,
            'schedules = \'banana\': must be "stretch" or "hold"',
        ),
        (
            {"spec": "ppo_cartpole", "schedules": "hold"},
            UsageError,
            "schedules: .* pass resume=…",
        ),
        (
            {"spec": "ppo_cartpole", "init_from": "x", "which": "newest"},
            UsageError,
            'which = \'newest\': must be "best" or "latest"',
        ),
        (
            {"spec": "ppo_cartpole", "seed": "x"},
            UsageError,
            "seed = 'x': must be a whole number",
        ),
        (
            {"spec": "ppo_cartpole", "imports": b"no_such"},
            UsageError,
            "--import b'no_such'",
        ),
        (
            {"spec": "ppo_cartpole", "on_row": 5},
            UsageError,
            "on_row has none of the methods",
        ),
        (
            {"spec": "ppo_cartpole", "on_row": 0},
            UsageError,
            "on_row has none of the methods",
        ),
        (
            {"spec": "ppo_cartpole", "on_end": np.zeros(2)},
            UsageError,
            "on_end has none of the",
        ),
        (
            {"spec": "ppo_cartpole", "sets": {"env.wrappers": ["__main__:Mine"]}},
            UsageError,
            "__main__:Mine is known in this process, not in training ones: move it to "
            "a module",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    arguments, error, message, data
):
    with pytest.raises(error, match=message):
        slm_lab.train(data=data, **arguments)
    assert not data.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers = 0: must be at least 1"),
        ({"workers": [1, -1]}, "workers = -1: must be at least 1"),
        ({"workers": [1.5]}, "workers = 1.5: must be a whole number"),
        ({"workers": True}, "workers = True: must be a whole number"),
        ({"workers": []}, "--workers: names no number"),
        ({"modes": []}, "--modes: names no mode"),
        ({"modes": [False]}, "--modes False"),
        ({"threshold": "x"}, "threshold = 'x': must be a number"),
    ],
)
def test_wrong_arguments_of_a_comparison_are_refused(arguments, message, data):
    with pytest.raises(UsageError, match=message):
        slm_lab.compare("ppo_cartpole", data=data, quiet=True, **arguments)
    assert not list(data.glob("*_compare*"))


def test_any_error_of_the_command_is_raised_with_its_message(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the traceback
    (run,) = (trained[0] / "data").glob("small_*")
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / ".lock").unlink(missing_ok=True)
    (folder / ".lock").mkdir()
    with pytest.raises(slm_lab.TrainingFailed, match=r"Is a directory: .*\.lock"):
        slm_lab.train(resume=folder)


def test_a_run_to_resume_has_its_spec(trained):
    folder, _, _ = trained
    with pytest.raises(
        UsageError, match="name='other': names a spec in a file; a run to resume"
    ):
        slm_lab.train(resume="latest", name="other", data=folder / "data")


@pytest.mark.parametrize("form", ["dict", "content", "Spec", "path"])
def test_the_latest_run_to_resume_is_one_of_the_given_spec(
    form, tmp_path, data, monkeypatch
):
    runs = []

    class RecordedError(Exception):
        pass

    def command(verb, source, quiet):
        runs.append((verb, source.run))
        raise RecordedError

    monkeypatch.setattr("slm_lab.api.train.LabProcess", command)
    write_run(data, stamp="2026_11_22_030000")
    wanted = write_run(data, stamp="2026_11_22_040000")
    write_run(data, name="other", stamp="2026_11_22_050000")
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"small": ppo()}))
    spec, name = {
        "dict": (ppo(), "small"),
        "content": ({"small": ppo(), "more": ppo()}, "small"),
        "Spec": (load_spec(file), None),
        "path": (file, None),
    }[form]
    with pytest.raises(RecordedError):
        slm_lab.train(spec, name=name, resume="latest", data=data)
    assert runs == [("train", str(wanted.root))]


def test_a_shared_run_is_not_resumed_where_it_is_unpacked(trained, tmp_path):
    folder, _, _ = trained
    slm_lab.load("latest", data=folder / "data").export(tmp_path / "pole.zip")
    shared = slm_lab.load_run(tmp_path / "pole.zip")
    with pytest.raises(
        UsageError, match=r"pole\.zip is a shared run: .* cannot be resumed"
    ):
        slm_lab.train(resume=shared)


def test_an_environment_of_the_calling_script_is_refused_with_the_fix(tmp_path):
    code = FRAGILE + textwrap.dedent("""
        import slm_lab
        try:
            slm_lab.train("ppo_cartpole", sets={"env.name": "Fragile-v0"})
        except slm_lab.core.errors.UsageError as error:
            print(error)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == (
        "Fragile-v0 is known in this process, not in training ones: move it to a "
        "module, "
        'such as my_envs.py, and pass imports=["my_envs"]\n'
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_search_gives_its_trials_and_the_best_run(data, capfd):
    spec = ppo(meta__max_trial=2) | {
        "search": {"agent.net.optim_spec.lr__choice": [0.01, 0.001]}
    }
    found = slm_lab.search(spec, data=data, seed=0, quiet=True)
    assert len(found.trials) == 2
    best = found.run()
    assert best.metrics["final_return"] == found.trials["final_return"].max()
    other = found.run(1)
    assert other.rows.frame.max() == 1000
    assert repr(other) == f"<Run spec in {found.folder}:t1>"
    assert slm_lab.search(resume=found, data=data, quiet=True).folder == found.folder
    with pytest.raises(UsageError, match="keep = -1: must be at least 1"):
        slm_lab.search(spec, data=data, keep=-1, quiet=True)
    with pytest.raises(UsageError, match="is not a run but a search"):
        slm_lab.train(resume=found.folder, data=data)
    for trial in (f"{found.folder}:t1", other):
        with pytest.raises(UsageError, match="a trial is resumed with its search"):
            slm_lab.search(resume=trial, data=data)


@pytest.mark.slow
def test_a_comparison_gives_its_tables(data, capfd):
    comparison = slm_lab.compare(
        ppo(meta__max_session=1),
        modes=["synced"],
        workers=[1],
        seeds=1,
        data=data,
        quiet=True,
    )
    assert set(comparison.table["mode"]) == {"false", "synced"}
    assert len(comparison.trainings) == 2


@pytest.mark.slow
def test_a_notebook_shows_a_live_table_and_the_results(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient").NotebookClient
    pytest.importorskip("ipykernel")
    cells = [
        "import json, slm_lab\nrun = "
        f"slm_lab.train(json.loads({json.dumps(ppo())!r}), seed=0)",
        "run.rows[['session', 'frame']].tail(1)",
        "run.plot()",
        FRAGILE + 'slm_lab.train("ppo_cartpole", sets={"env.name": "Fragile-v0"})',
    ]
    code = [nbformat.v4.new_code_cell(cell) for cell in cells]
    notebook = nbformat.v4.new_notebook(cells=code)
    resources = {"metadata": {"path": str(tmp_path)}}
    client(
        notebook,
        timeout=120,
        kernel_name="python3",
        resources=resources,
        allow_errors=True,
    ).execute()
    training, table, plot, refused = (cell.outputs for cell in notebook.cells)
    pictures = [output for output in training if output.output_type == "display_data"]
    assert len(pictures) == 1  # updated in place
    assert "Session 0" in pictures[0].data["text/plain"]
    assert "done" in pictures[0].data["text/plain"]
    assert "Trial metrics" in "".join(
        o.text for o in training if o.output_type == "stream"
    )
    assert "1000" in table[0].data["text/plain"]
    assert "application/vnd.plotly.v1+json" in plot[0].data
    assert refused[-1].ename == "UsageError"
    assert "move it to a module" in refused[-1].evalue


def test_the_same_call_begins_a_run_and_resumes_it(data):
    rows = []
    call = {"data": data, "label": "job", "resume": True, "quiet": True}
    first = slm_lab.train(ppo(), **call)
    again = slm_lab.train(ppo(), **call, on_row=lambda run, row: rows.append(row))
    assert again.folder == first.folder
    assert rows == [], "what an earlier start has written is not new"
    assert slm_lab.load_run("job", data=data).folder == first.folder


@pytest.mark.slow
def test_a_run_begins_with_the_weights_of_another(data):
    parent = slm_lab.train(ppo(), data=data, label="parent", quiet=True)
    options = {"init_part": ["net.body", "critic"], "which": "latest", "session": 0}
    for init_from in ("parent", parent, parent.folder):
        child = slm_lab.train(
            ppo(env__max_frame=100),
            data=data,
            quiet=True,
            init_from=init_from,
            **options,
        )
        (file,) = child.folder.glob("*_t0_spec.json")
        spec_file = file.with_name(file.name.replace("_t0", ""))
        recorded = json.loads(spec_file.read_text())["_run"]["init_from"]
        assert recorded["run"] == parent.folder.name
        assert recorded["parts"] == ["net.body", "critic"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"resume": True}, UsageError, "resume=True resumes the run of a label"),
        ({"init_from": "nobody"}, MissingRunError, "there is no run folder nobody"),
        ({"init_part": "net"}, UsageError, "--init-part names what to take from a run"),
    ],
)
def test_what_a_beginning_lacks_is_said(data, arguments, error, words):
    with pytest.raises(error, match=words):
        slm_lab.train(ppo(), data=data, quiet=True, **arguments)
