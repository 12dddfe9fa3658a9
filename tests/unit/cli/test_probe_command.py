"""`slm-lab probe`: the command that it prints to paste."""

import json
import shlex

import pytest

from slm_lab.cli import probe as module
from slm_lab.records.run_source import RunSource
from slm_lab.studies.probe import AS_IS, REST, Change, Speed
from tests.faults.lab import NAME, write_spec
from tests.support import parse, ppo

MODULE = "tests.unit.env.wrapped"
WIDER = "agent.net.hid_layers=[64, 64]"
FASTER = Change(("env.num_envs=8", "meta.threads=2"))


class Stand:
    """Stands in for a Probe: one of its changes is twice as fast."""

    def __init__(self, source, folder):
        self.spec, self.changes = parse(ppo()), [FASTER]
        self.most_runs = 4

    def survey(self, on_run):
        return {each: self.run(each, 0.0) for each in (AS_IS, FASTER)}

    def verify(self, changes):
        return {each: self.run(each, 0.0) for each in (AS_IS, *changes)}

    def run(self, change, seconds):
        return Speed(200.0 if change == FASTER else 100.0, {"update": 0.6, REST: 0.4})


@pytest.mark.parametrize("imports", [(), (MODULE,)])
def test_the_printed_command_can_be_pasted_into_a_shell(
    imports, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "Probe", Stand)
    write_spec(tmp_path, ppo())
    file = (tmp_path / "spec.json").rename(tmp_path / "my spec.json")
    sets = (WIDER, "meta.threads=1")
    module.probe(RunSource(str(file), NAME, sets=sets, imports=imports))
    (line,) = (
        each
        for each in capsys.readouterr().out.splitlines()
        if each.startswith("try: ")
    )
    settings = [
        word
        for each in (WIDER, "meta.threads=2", "env.num_envs=8")
        for word in ("-s", each)
    ]
    asked = [word for each in imports for word in ("--import", each)]
    words = shlex.split(line.removeprefix("try: "))
    assert words == ["slm-lab", "run", str(file), NAME, "train", *settings, *asked]


def test_the_environment_of_a_recipe_may_be_in_a_module_of_this_folder(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(module, "Probe", Stand)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "probed_env.py").write_text(
        "import gymnasium\n"
        "entry = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gymnasium.register('Probed-v0', entry)\n"
    )
    module.probe(RunSource("ppo", "probed_env:Probed-v0"))
    command = capsys.readouterr().out.splitlines()[-1]
    assert "-s env=probed_env:Probed-v0" in command
    assert command.endswith("--import probed_env")


def test_document_and_table_agree(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "Probe", Stand)
    write_spec(tmp_path, ppo())
    file = str(tmp_path / "spec.json")
    module.probe(RunSource(file))
    text = capsys.readouterr().out
    assert "update 60%, rest 40%" in text
    rows = [line.split() for line in text.partition("Measured")[2].splitlines()]
    assert ["as", "it", "is", "100", "1.00", "alike"] in rows
    assert [*FASTER.sets, "200", "2.00", "alike"] in rows
    module.probe(RunSource(file, output="json"))
    document = json.loads(capsys.readouterr().out)
    assert (document["frames_per_s"], document["measured"]) == (100.0, 100.0)
    assert document["set"] == list(FASTER.sets)
    assert [each["measured"] for each in document["changes"]] == [200.0]
