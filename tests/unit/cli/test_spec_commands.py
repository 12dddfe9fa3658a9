"""`slm-lab spec check|show|schema|list`."""

import json
import re
import subprocess
import sys

import pytest

from slm_lab.core.errors import Problem
from slm_lab.spec.load import load_spec, spec_names
from slm_lab.spec.read import read_file, shipped_files, shipped_name
from tests.faults.lab import LAB, call, call_here, lab
from tests.support import ppo
from tests.unit.spec.spec_data import PPO, changed

PLUG_IN = """
from slm_lab.core.registry import ALGORITHMS
ALGORITHMS.register("FromAFile", None, "my_plug_in_for_specs:FromAFile")
"""


@pytest.fixture
def run(tmp_path):
    return lambda *words: lab(tmp_path, "spec", *words)


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="specs.json"):
        path = tmp_path / name
        path.write_text(json.dumps(content), encoding="utf-8")
        return path

    return write_file


@pytest.mark.medium
def test_every_shipped_spec_is_checked_by_default(run):
    done = run("check")
    assert done.code == 0, done.out
    lines = done.out.splitlines()
    assert len(lines) == sum(len(spec_names(read_file(p))) for p in shipped_files())
    assert "demo.json: ppo_cartpole: ok" in lines


def test_all_problems_of_all_specs_are_printed(run, write):
    path = write(
        {
            "one": changed(PPO, agent__algorithm__gamma=2, meta__threads=0),
            "two": PPO,
            "three": changed(
                PPO,
                meta__distributed="actor_learner",
                agent__algorithm__minibatch_size=129,
            ),
        }
    )
    done = run("check", path, "demo", "nosuch")
    assert done.code == 2
    assert done.out == (
        "specs.json: one has 2 problems\n  agent.algorithm.gamma = 2: must be <= 1\n  "
        "meta.threads = 0: must be >= 1\nspecs.json: two: ok\nspecs.json: three has 1 "
        "problem\n  agent.algorithm.minibatch_size = 129: must be <= learn_queue × "
        "unroll_length × num_envs = 1 × 32 × 4 = 128, the frames that one training "
        "event learns from\ndemo.json: ppo_cartpole: ok\nnosuch has 1 problem\n  "
        "file: there is no such file, here or shipped\n"
    )


def test_an_agent_that_cannot_act_in_the_environment_is_refused(run):
    done = run("check", "dqn_cartpole", "-s", "env.name=Pendulum-v1")
    assert done.code == 2
    assert done.out == (
        "benchmark/dqn/dqn_cartpole.json: dqn_cartpole has 1 problem\n"
        "  agent.algorithm.name = 'DQN': DQN cannot act in a box action space; it is "
        "for discrete ones\n"
    )


CONV = {"type": "ConvNet", "conv_hid_layers": [[4, 3]]}
RECURRENT = {"type": "RecurrentNet", "rnn_hidden_size": 8, "seq_len": 4}
ARC = {
    "type": "TorchArcNet",
    "arc": {
        "modules": {
            "body": {"Sequential": [{"Linear": {"in_features": 3, "out_features": 8}}]}
        },
        "graph": {"input": "x", "modules": {"body": ["x"]}, "output": "body"},
    },
}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"env__name": "ALE/Pong-v5", "agent__net": {**RECURRENT, "obs": ["x"]}},
            "agent.net.obs.0 = 'x': the observation has no parts; its own name is",
        ),
        (
            {"env__name": "HalfCheetah-v5", "agent__net": CONV},
            "agent.net.type = 'ConvNet': takes observations that are images",
        ),
        (
            {"env__name": "ALE/Pong-v5", "env__normalize_obs": True},
            "env.normalize_obs = true: its observations are images",
        ),
        (
            {"env__name": "FrozenLake-v1", "agent__algorithm__action_pdtype": "Normal"},
            "agent.algorithm.action_pdtype = 'Normal': does not fit",
        ),
        ({"agent__net": ARC}, "agent.net.arc.modules.body.Sequential.0"),
    ],
)
def test_the_check_refuses_what_a_run_refuses(changes, problem, run, write):
    pytest.importorskip("ale_py")
    pytest.importorskip("mujoco")
    done = run("check", write({"s": ppo(**changes)}))
    assert done.code == 2
    assert problem in done.out


def test_what_is_missing_on_this_machine_is_a_note_and_no_problem(
    run, write, monkeypatch
):
    monkeypatch.setattr("slm_lab.agent.from_spec.net.has_gpu", lambda: False)
    path = write({"s": ppo(agent__net__gpu=True)})
    done = run("check", path)
    assert done.code == 0
    assert "s: ok (not on this machine: agent.net.gpu = true: " in done.out


def test_a_wrong_search_block_refuses_no_training_and_the_check_says_so(run, write):
    raw = {
        **ppo(meta__log_frequency=5),
        "search": {"agent.algorithm.gama__uniform": [0.9, 0.99]},
    }
    done = run("check", path := write({"s": raw}))
    assert done.code == 2
    assert done.out.startswith(
        "specs.json: s: ok for train\nspecs.json: s: search has 1 problem\n  "
        "search.agent."
    )
    assert load_spec(path).env.name == "CartPole-v1"
    document = json.loads(run("check", path, "--json").out)
    assert (document[0]["ok"], document[0]["ok_for_train"]) == (False, True)


def test_the_check_refuses_environments_that_a_search_refuses(run, write):
    raw = {
        **ppo(meta__log_frequency=5),
        "search": {"env.name__choice": ["CartPole-v1", "CartPol-v1"]},
    }
    done = run("check", write({"s": raw}))
    assert done.code == 2
    assert "s: ok for train\n" in done.out
    assert (
        "search.env.name__choice = 'CartPol-v1': there is no such environment"
        in done.out
    )


def test_templates_and_ignored_keys_are_noted(run, write):
    template = changed(PPO, env__name="${env}", env__max_frame="${max_frame}")
    path = write({"t": template, "old": changed(PPO, meta__num_gpus=0)})
    done = run("check", path)
    assert done.code == 0
    assert "specs.json: t: ok (template: needs -s env=… -s max_frame=…)" in done.out
    assert "old: ok (ignored: meta.num_gpus (" in done.out
    assert (
        "template"
        not in run("check", path, "-s", "env=Acrobot-v1", "-s", "max_frame=1e5").out
    )


def test_the_environment_is_asked_about_blocks_without_problems_alone(
    run, write, monkeypatch
):
    problem = Problem("env.contnuous", "CartPole-v1 does not accept it", True)
    asked = []

    def check_env(spec):
        asked.append(spec.num_envs)
        return [problem] if spec.arguments else []

    monkeypatch.setattr("slm_lab.studies.spec_report.check_env", check_env)
    wrong = changed(PPO, env__contnuous=True)
    file = write({"s": wrong, "t": PPO, "u": changed(PPO, env__num_envs=0)})
    done = run("check", file)
    assert done.code == 2
    assert "  env.contnuous = true: CartPole-v1 does not accept it\n" in done.out
    assert "specs.json: t: ok" in done.out
    assert 0 not in asked


def test_show_prints_what_would_run(run):
    done = run("show", "demo", "ppo_cartpole", "-s", "agent.algorithm.gamma=0.9")
    assert done.code == 0
    spec = load_spec("demo", "ppo_cartpole", ["agent.algorithm.gamma=0.9"])
    assert json.loads(done.out) == {"ppo_cartpole": spec.to_json()}


def test_show_reports_problems_and_ends_with_2(run):
    done = run("show", "demo", "ppo_cartpol")
    assert done.code == 2
    assert "did you mean ppo_cartpole?" in done.err


def test_schema_prints_a_json_schema(run):
    schema = json.loads(run("schema").out)
    assert schema["$schema"].startswith("https://json-schema.org/")


def test_list_names_files_and_specs(run):
    lines = run("list").out.splitlines()
    assert lines[0] == "demo.json: ppo_cartpole"
    assert len(lines) == len(shipped_files())
    assert [line.split(":")[0] for line in lines] == [
        shipped_name(p) for p in shipped_files()
    ]


@pytest.mark.medium
def test_plug_ins_are_imported_from_the_current_folder(tmp_path):
    (tmp_path / "my_plug_in_for_specs.py").write_text(PLUG_IN)
    raw = changed(PPO, agent__algorithm={"name": "FromAFile", "gamma": 0.9})
    (tmp_path / "s.json").write_text(json.dumps({"s": raw}))
    command = [
        sys.executable,
        "-c",
        "from slm_lab.cli.spec import app; app()",
        "check",
        "s.json",
    ]
    alone = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 2
    assert "unknown algorithm" in alone.stdout
    command += ["--import", "my_plug_in_for_specs"]
    joined = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (joined.returncode, joined.stdout) == (0, "s.json: s: ok\n"), joined.stderr


@pytest.mark.medium
@pytest.mark.parametrize("command", ["check", "show"])
def test_the_imports_of_a_file_are_imported_as_its_run_does(tmp_path, command):
    (tmp_path / "my_plug_in_for_specs.py").write_text(PLUG_IN)
    raw = changed(PPO, agent__algorithm={"name": "FromAFile", "gamma": 0.9})
    content = {"imports": ["my_plug_in_for_specs"], "s": raw}
    (tmp_path / "s.json").write_text(json.dumps(content))
    done = call([str(LAB), "spec", command, "s.json"], tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "FromAFile" in done.out or done.out == "s.json: s: ok\n"


def test_an_import_that_fails_is_a_problem_of_its_file_alone(run, write):
    broken = write({"imports": ["no_such_module_here"], "s": ppo()}, "broken.json")
    done = run("check", broken, write({"t": ppo(meta__log_frequency=5)}))
    assert done.code == 2
    first, second, third = done.out.splitlines()
    assert first.endswith("broken.json has 1 problem")
    assert (
        second == "  imports: --import no_such_module_here: No module named "
        "'no_such_module_here'"
    )
    assert third.startswith("specs.json: t: ok")


def test_a_plug_in_that_does_not_import_is_bad_input(run):
    done = run("check", "demo", "--import", "no_such_module_anywhere")
    assert done.code == 2
    assert "--import no_such_module_anywhere" in done.err


def test_the_commands_import_nothing_heavy_before_they_are_called():
    code = "import sys, slm_lab.cli.spec; print(' '.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    assert not {"pydantic", "torch", "gymnasium", "ray", "yaml"} & loaded


@pytest.mark.medium
def test_a_whole_check_takes_seconds_and_not_minutes():
    code = (
        "import time; began = time.process_time()\n"
        "from slm_lab.cli.spec import app\n"
        "try: app(['check'])\n"
        "except SystemExit as end: print('code', end.code)\n"
        "print('seconds', time.process_time() - began)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "code 0" in run.stdout
    seconds = re.search(r"seconds ([\d.]+)", run.stdout)
    assert seconds is not None
    assert float(seconds[1]) < 30  # a slow, busy machine needs 7 for 130 specs


def test_the_check_for_scripts_is_one_document_with_every_problem(tmp_path):
    spec = ppo(meta__max_sesion=3)
    (tmp_path / "some.json").write_text(json.dumps({"good": ppo(), "bad": spec}))
    (tmp_path / "broken.json").write_text("{")
    args = [str(LAB), "spec", "check", "some.json", "broken.json", "--json"]
    done = call_here(args, tmp_path)
    assert done.code == 2
    good, bad, broken = json.loads(done.out)
    assert (good["ok"], good["problems"]) == (True, [])
    (problem,) = bad["problems"]
    assert problem["path"] == "meta.max_sesion"
    assert "did you mean max_session" in problem["message"]
    assert not broken["ok"]
