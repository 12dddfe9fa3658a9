"""`slm-lab export`, and the example that plays what it writes."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import torch

import slm_lab
from bench import size
from slm_lab.core.errors import UsageError
from slm_lab.testing.outside import evaluation_env, outside, small_spec, untrained
from tests.contract.table import ALGORITHM_ROWS
from tests.faults.lab import lab, run_folder
from tests.support import parse, ppo
from tests.unit.cli.trained import fingerprint

pytest.importorskip("onnxruntime", reason="needs the extra export")
pytest.importorskip("onnxscript", reason="needs the extra export")

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "play_onnx.py"


def export(*words):
    return lab(Path.cwd(), "export", *words)


def play(*args):
    """What the example prints. It can import neither torch nor the lab."""
    code = (
        "import runpy, sys\n"
        "sys.modules |= {'torch': None, 'slm_lab': None}\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
    )
    words = [sys.executable, "-c", code, str(EXAMPLE), *map(str, args)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.splitlines()


@pytest.mark.medium
def test_the_file_of_a_run_is_named_after_it_and_plays_its_environment(
    run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    before = fingerprint(run)
    done = export(
        run_folder(run), "--to", "onnx", "--session", "1", "--which", "latest"
    )
    assert done.code == 0
    first, second = done.both.splitlines()
    name = first.removeprefix("PPO on CartPole-v1, Session 1, latest at frame 500: ")
    assert second.startswith(
        "200 observations: largest difference of actions 0, of values "
    )
    assert name == f"{run_folder(run).name}_s1_latest_500.onnx"
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert fingerprint(run) == before
    assert len(play(name, "CartPole-v1", 2)) == 2


@pytest.mark.medium
def test_a_good_policy_scores_500_with_onnxruntime_alone(tmp_path):
    """The weights are set by hand: it pushes to the side to which the pole falls."""
    spec = small_spec(ALGORITHM_ROWS["PPO"]["separate"].spec)
    with closing(evaluation_env(spec)) as vector:
        inside = untrained(spec, vector)
        with torch.no_grad():
            for parameter in inside.actor.module.parameters():
                parameter.zero_()
            net = inside.actor.module.net
            net.hidden[0].weight[0] = torch.tensor([0.02, 0.1, 1.0, 0.5])
            net.heads[0].weight[:, 0] = torch.tensor([-1.0, 1.0])
        outside(spec, inside.learner, vector.statistics).export(tmp_path / "good.onnx")
    assert play(tmp_path / "good.onnx", "CartPole-v1", 5) == [
        f"episode {number}: return 500" for number in range(1, 6)
    ]


@pytest.mark.medium
@pytest.mark.parametrize("env", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1"])
@pytest.mark.parametrize(
    "stack", [{}, {"env__frame_op": "concat", "env__frame_op_len": 3}]
)
def test_the_example_joins_parts_and_stacks_observations(env, stack, tmp_path):
    spec = parse(ppo(env__name=env, **stack))
    with closing(evaluation_env(spec)) as vector:
        inside = untrained(spec, vector)
        outside(spec, inside.learner, vector.statistics).export(
            tmp_path / "policy.onnx"
        )
    assert len(play(tmp_path / "policy.onnx", env, 2)) == 2


SEEING = """
import gymnasium
import numpy as np
from gymnasium import spaces

MASK = {"both": [np.array([1, 0]), np.array([0, 0, 1])], "kick": [0, 1, 0]}


class Seeing(gymnasium.Env):
    observation_space = spaces.Dict(
        camera=spaces.Box(0, 255, (16, 16, 3), np.uint8),
        robot=spaces.Dict(pose=spaces.Box(-1.0, 1.0, (3,), np.float32)),
        state=spaces.Discrete(4, start=1),
    )
    # not in the order of the alphabet
    action_space = spaces.Dict(
        kick=spaces.Discrete(3),
        aim=spaces.Box(-2.0, 2.0, (2,), np.float32),
        both=spaces.MultiDiscrete([2, 3]),
    )

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {"allowed": MASK}

    def step(self, action):
        assert self.action_space.contains(action)
        assert (action["kick"], *action["both"]) == (1, 0, 2)
        self.steps += 1
        _, info = Seeing.reset(Seeing())
        return self.observation_space.sample(), 1.0, self.steps == 5, False, info


gymnasium.register("Seeing-v0", Seeing)
"""
"""An environment with an image, parts, a mask, and an action in parts."""


@pytest.mark.medium
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"env__frame_op": "concat", "env__frame_op_len": 3},
        {"agent__net": {"type": "RecurrentNet", "optim_spec": {"name": "Adam"}}},
    ],
)
def test_the_example_plays_parts_masks_and_mixed_actions(keys, tmp_path, monkeypatch):
    (tmp_path / "seeing.py").write_text(SEEING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    env = {"env__name": "seeing:Seeing-v0", "env__action_mask": "info.allowed"}
    spec = parse(ppo(**env, **keys))
    with closing(evaluation_env(spec)) as vector:
        inside = untrained(spec, vector)
        outside(spec, inside.learner, vector.statistics).export("policy.onnx")
    played = play("policy.onnx", "seeing:Seeing-v0", 2, "info.allowed")
    assert played == ["episode 1: return 5", "episode 2: return 5"]


@pytest.mark.medium
def test_the_example_asks_for_the_place_of_the_mask(tmp_path):
    file = tmp_path / "policy.onnx"
    spec = parse(ppo(env__name="Taxi-v4", env__action_mask="info.action_mask"))
    with closing(evaluation_env(spec)) as vector:
        inside = untrained(spec, vector)
        outside(spec, inside.learner, vector.statistics).export(file)
    assert len(play(file, "Taxi-v4", 2, "info.action_mask")) == 2
    for place, message in ((), "name their place as MASK"), (["info.x"], "no mask at"):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            play(file, "Taxi-v4", 2, *place)
        assert message in failed.value.stderr


def test_the_example_is_short():
    assert size.count(EXAMPLE.read_text())["tokens"] <= 950


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--out", "policy.bin"], "--out policy.bin: must end in .onnx"),
        (["--session", "7"], "Session 7: the run has the Sessions 0 to 1"),
    ],
)
def test_bad_input_is_one_line(run, args, message):
    done = export(run_folder(run), "--to", "onnx", *args)
    assert (done.code, done.err.strip()) == (2, message)


def test_an_agent_without_a_network_is_refused(random_run):
    done = export(run_folder(random_run), "--to", "onnx")
    assert (done.code, done.err.strip()) == (
        1,
        "an agent without a network cannot be exported",
    )


def test_a_missing_extra_is_reported(run, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = export(run_folder(run), "--to", "onnx")
    assert done.code == 2
    assert (
        done.err.strip() == 'onnx is not installed; run: pip install "slm-lab[export]"'
    )


@pytest.mark.medium
@pytest.mark.parametrize("form", ["zip", "onnx"])
def test_a_file_that_exists_is_replaced_only_with_force(run, tmp_path, form):
    file = tmp_path / f"agent.{form}"
    file.write_text("keep")
    done = export(run_folder(run), "--to", form, "--out", file)
    assert done.code == 2
    assert done.both.strip().startswith(f"{file} exists; ")
    with pytest.raises(UsageError, match="force=True"):
        slm_lab.load(run_folder(run)).export(file)
    assert file.read_text() == "keep"
    assert export(run_folder(run), "--to", form, "--out", file, "--force").code == 0
    assert file.stat().st_size > 1000
    slm_lab.load(run_folder(run)).export(file, force=True)
