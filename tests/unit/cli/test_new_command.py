"""`slm-lab new`: the file that it writes, with keys of the command line."""

import resource
import shlex
from pathlib import Path

import pytest
import yaml

from slm_lab.cli.new import write_new
from slm_lab.core.errors import LabError, SpecError, UsageError
from slm_lab.recipes import env_facts, new_file
from slm_lab.records.trust import imports_of_file
from slm_lab.spec.load import load_spec

WRAPPER = "gymnasium.wrappers:FlattenObservation"


@pytest.fixture(autouse=True)
def short(tmp_path, monkeypatch):
    monkeypatch.setattr(env_facts, "PLAY_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)


def test_the_file_is_the_recipe_with_the_settings_in_it(tmp_path):
    sets = (
        f'env.wrappers=["{WRAPPER}"]',
        "env.max_frame=5000",
        "agent.algorithm.gamma=0.9",
    )
    write_new("CartPole-v1", "ppo", None, sets, ())
    file = tmp_path / "ppo_CartPole-v1.yaml"
    written = yaml.safe_load(file.read_text())["ppo_CartPole-v1"]
    assert written["env"]["name"] == "CartPole-v1"
    assert written["env"]["wrappers"] == [WRAPPER]
    spec = load_spec(file, "ppo_CartPole-v1")
    expected = load_spec("recipe/ppo.yaml", "ppo", sets=("env=CartPole-v1", *sets))
    assert spec == expected.model_copy(update={"name": "ppo_CartPole-v1"})


def test_a_file_that_exists_is_kept(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    with pytest.raises(UsageError, match=r"mine\.yaml exists"):
        write_new("CartPole-v1", "ppo", file, (), ())
    assert file.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(
    tmp_path, monkeypatch
):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def draft_on_a_full_disk(*_):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        return "text"

    monkeypatch.setattr(new_file, "draft", draft_on_a_full_disk)
    try:
        with pytest.raises(OSError, match=r"ppo_CartPole-v1\.yaml"):
            write_new("CartPole-v1", "ppo", None, (), ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", ["nowhere/a.yaml", "a.txt"])
def test_a_file_that_cannot_be_a_spec_is_refused_before_the_environment_is_made(
    out, capsys
):
    with pytest.raises(
        UsageError, match=r"must be a \.yaml file in a folder that exists"
    ):
        write_new("CartPole-v1", "ppo", Path(out), (), ())
    assert capsys.readouterr().out == ""


def test_a_long_space_is_one_line_with_its_outermost_bounds(capsys):
    stack = '{"name": "gymnasium.wrappers:FrameStackObservation", "stack_size": 9}'
    write_new("CartPole-v1", "ppo", None, (f'env.wrappers=[{stack}, "{WRAPPER}"]',), ())
    assert "observations  Box(-inf, inf, (36,), float32)\n" in capsys.readouterr().out


def test_a_wrong_setting_is_one_error():
    with pytest.raises(LabError, match=r"env\.wrapers"):
        write_new("CartPole-v1", "ppo", None, ("env.wrapers=[]",), ())


def test_the_printed_commands_can_be_pasted_into_a_shell(capsys):
    imports = ("tests.unit.env.wrapped", "tests.unit.env")
    write_new("CartPole-v1", "ppo", Path("my spec.yaml"), (), imports)
    lines = capsys.readouterr().out.partition("next:\n")[2].splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    assert commands == [
        ["slm-lab", "run", "my spec.yaml", "dev"],
        ["slm-lab", "run", "my spec.yaml", "train"],
        ["slm-lab", "run", "my spec.yaml", "eval@ppo_CartPole-v1"],
    ]
    assert imports_of_file("my spec.yaml", [], trust=False) == imports


def test_a_key_of_the_recipe_that_the_chosen_net_lacks_is_answered_with_what_to_type(
    tmp_path,
):
    out = tmp_path / "s.yaml"
    with pytest.raises(SpecError) as caught:
        write_new("CartPole-v1", "ppo", out, ["agent.net.type=RecurrentNet"], ())
    (problem,) = caught.value.problems
    assert problem.path == "agent.net.hid_layers"
    fix = """the recipe has it; give the whole block: -s 'agent.net={"type": …}'"""
    assert problem.message == f"unknown key; {fix}"
    net = '{"type": "RecurrentNet", "rnn_hidden_size": 8}'
    write_new("CartPole-v1", "ppo", out, [f"agent.net={net}"], ())
    assert load_spec(out).agent.net.type == "RecurrentNet"
