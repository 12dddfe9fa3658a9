"""What a run records of the world never keeps it from being read."""

import json
import math
import subprocess
import sys

import pytest

import slm_lab
from slm_lab.core.errors import SpecError
from slm_lab.records import origin as origins
from slm_lab.records.origin import MOST_RESUMES, resumed
from slm_lab.records.run_source import RunSource
from slm_lab.spec.read import read_file
from slm_lab.storage.run_dir import RUN_BLOCK, origin_of
from tests.faults.lab import call_here, run_folder, write_spec
from tests.support import ppo
from tests.unit.records.runs import write_run

HOSTILE_ENV = """
import gymnasium, math, numpy
from gymnasium import spaces

class Bandit(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (1,), numpy.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, **arguments):
        assert len(arguments["prices"]) == 60_000

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return numpy.zeros(1, numpy.float32), {}

    def step(self, action):
        return numpy.zeros(1, numpy.float32), float(action), True, False, {}

class Unshown:
    def __repr__(self):
        raise RuntimeError

arguments = {
    "limit": math.inf,
    "prices": [[float(i)] * 5 for i in range(60_000)],
    "items": {f"item_{i}": i for i in range(500)},
    "walls": {(0, 1): "wall", 2: math.nan},
    "reward": len,
    "unshown": Unshown(),
    "text": "\\udcff" * 50_000,
    "array": numpy.zeros((1000, 1000)),
}
arguments["itself"] = arguments
gymnasium.register("Hostile-v0", Bandit, kwargs=arguments)
"""
LONG = "\x1b[2J\udcff" + "x" * 5_000_000


@pytest.fixture
def hostile_machine(monkeypatch):
    """A machine whose names, versions and command line are hostile."""

    def git(command, **_):
        return subprocess.CompletedProcess(command, 0, stdout=LONG, stderr="")

    monkeypatch.setattr(origins.subprocess, "run", git)
    monkeypatch.setattr(origins, "version", lambda package: LONG)
    monkeypatch.setattr(origins.platform, "platform", lambda: LONG)
    monkeypatch.setattr(origins.platform, "python_version", lambda: LONG)
    monkeypatch.setattr(origins.os, "cpu_count", lambda: math.inf)
    monkeypatch.setattr(sys, "argv", ["slm-lab", *[LONG[:100_000]] * 20])


@pytest.mark.medium
def test_a_run_with_hostile_records_is_evaluated_resumed_loaded_and_exported(
    tmp_path, monkeypatch, hostile_machine
):
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "hostile_env.py").write_text(HOSTILE_ENV)
    changes = {"env__name": "Hostile-v0", "env__max_frame": 128, "env__num_envs": 2}
    write_spec(tmp_path, ppo(**changes, agent__algorithm__minibatch_size=16))
    how = ["--import", "hostile_env", "--data", str(tmp_path / "data")]
    note = ["--name", "n\udcff\x1b", "--note", "\udcff\x1b[2J" * 40]

    def run(*words):
        done = call_here(["slm-lab", *words], tmp_path)
        assert done.code == 0, done.err + done.out
        return done.out

    run("run", str(tmp_path / "spec.json"), "small", "train", *note, *how)
    folder = run_folder(tmp_path)
    assert all(file.stat().st_size < 1_000_000 for file in folder.glob("*.json"))
    run("run", "eval@n\udcff\x1b", "--episodes", "2", "--save", *how)
    run("run", "train@latest", "-s", "env.max_frame=192", *how)
    for words in (
        ["runs"],
        ["doctor", "latest"],
        ["diff", "latest", "latest"],
        ["plot", "latest"],
    ):
        run(*words, "--data", str(tmp_path / "data"))
    archive = str(tmp_path / "shared.zip")
    run("export", "latest", "--to", "zip", "--out", archive, *how)
    run("run", f"eval@{archive}", "--episodes", "2", *how)
    agent = slm_lab.load(folder, imports=["hostile_env"])
    assert len(agent.evaluate(2).returns) == 2
    assert slm_lab.load_run(folder).rows.frame.max() == 192


OLD = {
    "an infinite argument": {
        "arguments": {"limit": math.inf, "low": -math.inf, "x": math.nan}
    },
    "a table of 60,000 rows": {
        "arguments": {"prices": [[float(i)] * 5 for i in range(60_000)]}
    },
    "a block of 500 keys": {"arguments": {f"item_{i}": i for i in range(500)}},
    "a long text": {"arguments": {"text": "x" * 50_000}},
    "half of a surrogate pair": {"arguments": {"text": "\udcff"}},
    "deep lists": {"arguments": json.loads("[" * 80 + "]" * 80)},
}


@pytest.mark.parametrize("record", OLD)
def test_a_run_of_an_earlier_version_with_a_hostile_record_is_read(tmp_path, record):
    run = write_run(tmp_path)
    content = json.loads(run.spec_file.read_text())
    origin = {"format": 7, "set": ["a=1"], "packages": {}, "environment": OLD[record]}
    run.spec_file.write_text(json.dumps({**content, RUN_BLOCK: origin}, indent=2))
    found = read_file(run.spec_file)
    assert found["small"] == content["small"]
    assert found[RUN_BLOCK]["set"] == ["a=1"]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("env.kwargs.text=" + "x" * 30_000, "characters"),
        (
            "env.kwargs={" + ",".join(f'"k{i}": 1' for i in range(300)) + "}",
            "keys; a block may hold at most 200",
        ),
        ("env.kwargs.text=\udcff", "surrogate"),
    ],
    ids=["text", "keys", "surrogate"],
)
def test_a_setting_that_a_run_folder_could_not_hold_is_refused_before_it_is_made(
    tmp_path, sets, message
):
    file = write_spec(tmp_path, ppo(env__kwargs={}))
    with pytest.raises(SpecError, match=message):
        RunSource(str(file), "small", sets=(sets,)).load()


def test_a_run_that_is_resumed_a_thousand_times_can_be_read(tmp_path):
    run = write_run(tmp_path)
    content = json.loads(run.spec_file.read_text())
    about = origins.provenance(0)
    origin = {"format": 7, **about, "set": [], "packages": {}}
    for number in range(1000):
        origin = resumed(origin, about, [f"env.max_frame={number}"], frames=[number])
    run.spec_file.write_text(json.dumps({**content, RUN_BLOCK: origin}, indent=2))
    assert len(read_file(run.spec_file)[RUN_BLOCK]["resumed"]) == MOST_RESUMES
    assert origin_of(run.spec_file)["resumed"][-1]["set"] == ["env.max_frame=999"]


def test_the_command_of_notify_is_not_recorded(monkeypatch):
    words = [
        "slm-lab",
        "run",
        "--notify",
        "curl https://secret",
        "--notify=secret",
        "-s",
        "a.b=1",
    ]
    monkeypatch.setattr(sys, "argv", words)
    recorded = origins.provenance(0)["command"]
    assert recorded == ["slm-lab", "run", "--notify", "…", "--notify=…", "-s", "a.b=1"]
