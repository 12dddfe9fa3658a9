"""Agents of real run folders, from Python."""

import json
import shutil
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch

import slm_lab
from slm_lab.core.errors import CheckpointError, LabError, UsageError
from tests.faults.lab import call, call_here, command, write_spec
from tests.support import PPO


@pytest.fixture
def agent(folder):
    return slm_lab.load(folder)


def play(agent, seed):
    """The return of one episode of the user's own loop."""
    env = agent.make_env()
    obs, _ = env.reset(seed=seed)
    total, done = 0.0, False
    agent.reset()
    while not done:
        obs, reward, terminated, truncated, _ = env.step(agent.act(obs))
        total, done = total + float(reward), terminated or truncated
    env.close()
    return total


@pytest.mark.medium
def test_a_users_loop_plays_the_environment(agent):
    assert isinstance(agent.make_env().unwrapped, gymnasium.Env)
    assert [play(agent, seed) for seed in (1, 2)] == [
        play(agent, seed) for seed in (1, 2)
    ]


def test_evaluate_leaves_the_arithmetic_of_the_program_as_it_was(agent):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        agent.evaluate(1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    tiny = torch.full((1,), 1e-40)
    torch.set_flush_denormal(False)
    agent.evaluate(1)
    assert (tiny * 1.0).item() > 0
    torch.set_flush_denormal(True)
    agent.evaluate(1)
    assert (tiny * 1.0).item() == 0
    torch.set_flush_denormal(False)


def test_evaluate_gives_what_the_command_line_prints(agent, data):
    episodes = agent.evaluate(10)
    assert (episodes.returns == episodes.lengths).all(), "CartPole gives 1 per step"
    options = [f"eval@{agent.folder}", "--episodes", "10", "--session", "0"]
    done = call_here(command(data.parent, *options), data.parent)
    row = next(
        line.split() for line in done.out.splitlines() if line.strip().startswith("0 ")
    )
    assert f"{episodes.returns.mean():.3g}" == row[4]


UNGUARDED = """
import slm_lab

agent = slm_lab.load({folder!r})
env = agent.make_env()
agent.act(env.reset(seed=0)[0])
print(agent.evaluate(4).returns.tolist(), agent.evaluate(4).returns.tolist())
"""


@pytest.mark.medium
def test_a_script_without_a_guard_evaluates_in_worker_processes(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "data" / folder.name)
    file = copy / "small_spec.json"
    content = json.loads(file.read_text())
    content["small"]["env"] |= {"num_envs": 2, "vectorization_mode": "async"}
    file.write_text(json.dumps(content))
    (tmp_path / "script.py").write_text(UNGUARDED.format(folder=str(copy)))
    done = call([sys.executable, "script.py"], tmp_path)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.strip().split("] [")
    assert first.strip("[]") == second.strip("[]"), (
        "as the command line, it always begins alike"
    )


@pytest.mark.parametrize("double", [torch.float32, torch.float64])
def test_the_default_dtype_of_the_program_changes_no_action(double, folder, tmp_path):
    obs, expected = (
        np.ones((5, 4), np.float32),
        slm_lab.load(folder).act(np.ones((5, 4), "f4")),
    )
    torch.set_default_dtype(double)
    try:
        agent = slm_lab.load(folder)
        assert (agent.act(obs) == expected).all()
        assert agent.act(obs, deterministic=False).shape == (5,)
        assert agent.evaluate(2).returns.shape == (2,)
        assert agent.export(tmp_path / "agent.pt2").action == 0
        assert torch.get_default_dtype() == double
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_run_is_found(data, folder):
    named = [
        str(folder),
        folder.name,
        "small_2",
        f"{data}/small_2",
        "latest",
        f"{data}/latest",
    ]
    for target in [*named, slm_lab.load_run(folder)]:
        assert slm_lab.load(target, data=data).folder.samefile(folder)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"seed": -1}, ValueError, "seed = -1: must be at least 0"),
        ({"seed": "1"}, TypeError, "'str' object cannot be interpreted as an integer"),
        (
            {"session": "1"},
            TypeError,
            "'str' object cannot be interpreted as an integer",
        ),
        ({"session": 9}, UsageError, "Session 9: the run has the Sessions 0 to"),
    ],
)
def test_options_that_no_agent_has_are_refused(options, error, words, folder):
    with pytest.raises(error, match=words):
        slm_lab.load(folder, **options)


def test_best_and_latest_of_each_session_are_different_agents(folder):
    agents = [
        slm_lab.load(folder, which=which, session=session)
        for which in ("best", "latest")
        for session in (0, 1)
    ]
    biases = [tuple(agent.module.net.hidden[0].bias.tolist()) for agent in agents]
    assert biases[0] != biases[1]
    assert biases[2] != biases[3]
    assert [agent.frame for agent in agents[2:]] == [1000, 1000]
    assert not agents[0].module.training


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("smal", "there is no run folder smal"),
        ("nothing", "there is no run folder nothing"),
        ("latest", "there is no run in"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_in_one_line(target, words, tmp_path):
    with pytest.raises(UsageError, match=words) as error:
        slm_lab.load(target, data=tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"which": "worst"}, "'worst': must be best or latest"),
        ({"session": -1}, "the run has the Sessions 0 to 1"),
    ],
)
def test_an_agent_that_no_run_has_is_refused(folder, options, words):
    with pytest.raises(UsageError, match=words):
        slm_lab.load(folder, **options)


def test_one_module_may_be_given_by_its_name(folder):
    slm_lab.load(folder, imports="json")
    with pytest.raises(UsageError, match="--import no_such_module: "):
        slm_lab.load(folder, imports="no_such_module")


@pytest.mark.parametrize("module", [b"no_such_module", 3])
def test_a_module_that_is_no_text_is_refused_in_one_line(folder, module):
    for imports in (module, [module]):
        with pytest.raises(UsageError, match=f"--import {module}: "):
            slm_lab.load(folder, imports=imports)


def test_a_mark_of_an_end_that_cannot_be_read_is_a_value_error(agent):
    with pytest.raises(ValueError, match=r"done cannot be read: .*requires grad"):
        agent.reset(torch.zeros(1, requires_grad=True))


def test_a_file_without_a_folder_is_refused_before_the_export(agent, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write .*policy.onnx: .*File exists"):
        agent.export(tmp_path / "file" / "policy.onnx")


def test_a_path_that_cannot_be_written_is_one_error(agent, tmp_path):
    with pytest.raises(UsageError, match=r"cannot write .*folder.pt2: Is a directory$"):
        agent.export(shutil.copytree(agent.folder, tmp_path / "folder.pt2"))
    assert [each.name for each in tmp_path.iterdir()] == ["folder.pt2"]


def test_a_beginning_of_two_runs_is_refused_with_their_names(data, folder, tmp_path):
    for name in ("small_1", "small_2"):
        shutil.copytree(folder, tmp_path / name)
    with pytest.raises(
        UsageError, match="begin with smal, the last are small_1, small_2"
    ):
        slm_lab.load("smal", data=tmp_path)


def test_modules_that_a_run_names_are_not_imported_unasked(
    folder, tmp_path, monkeypatch
):
    copied = shutil.copytree(folder, tmp_path / "small_3")
    for file in copied.glob("*_spec.json"):
        content = json.loads(file.read_text())
        content["small"]["env"]["name"] = "payload_of_a_stranger:Env-v0"
        file.write_text(json.dumps(content))
    with pytest.raises(UsageError, match="payload_of_a_stranger"):
        slm_lab.load(copied)
    assert "payload_of_a_stranger" not in sys.modules


def test_a_damaged_agent_is_reported(folder, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "small_4")
    for file in (copied / "model").glob("*.pt"):
        file.write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        slm_lab.load(copied)


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        (
            np.zeros(3),
            r"no observation of CartPole-v1, and no batch: the observation has "
            r"the shape \(3,\); one has \(4,\), a batch \(B, 4\)",
        ),
        (np.zeros((0, 4)), r"the shape \(0, 4\); one has \(4,\), a batch \(B, 4\)"),
        (np.zeros((2, 3, 4)), "shape"),
        (np.zeros((4, 1)), "shape"),
        ((np.zeros(4), {}), r"is no array \(reset and step return more than it\)"),
        (["a", "b", "c", "d"], r"is \['a', 'b', 'c', 'd'\], no number"),
    ],
)
def test_an_observation_of_another_shape_is_refused(agent, obs, words):
    with pytest.raises(ValueError, match=words):
        agent.act(obs)


def test_done_must_fit_the_last_batch(agent):
    agent.act(np.zeros((3, 4)))
    agent.reset([True, False, True])
    with pytest.raises(ValueError, match="the last batch had 3 observations"):
        agent.reset([True])


def test_one_environment_needs_no_list_of_done(agent):
    with pytest.raises(ValueError, match="the last batch had no observations"):
        agent.reset(True)
    agent.act(np.zeros(4))
    agent.reset(True)


def test_a_number_of_episodes_is_whole(agent):
    with pytest.raises(TypeError, match="integer"):
        agent.evaluate(1.5)
    with pytest.raises(ValueError, match="must be at least 1"):
        agent.evaluate(0)


def test_the_module_gives_the_parameters_that_act_uses(agent):
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    logits = agent.module(torch.from_numpy(obs))[0]
    assert logits.argmax(-1).tolist() == agent.act(obs).tolist()


def test_draws_follow_the_policy_and_the_seed(folder):
    obs = np.zeros((2000, 4), np.float32)
    agents = [slm_lab.load(folder, seed=seed) for seed in (0, 0, 1)]
    first, same, other = (agent.act(obs, deterministic=False) for agent in agents)
    np.testing.assert_array_equal(first, same)
    assert (first != other).any()
    p = torch.softmax(agents[0].module(torch.zeros(1, 4))[0], -1)[0, 1].item()
    assert abs(first.mean() - p) < 0.05


@pytest.mark.medium
def test_the_random_agent_acts_but_has_no_network(tmp_path):
    spec = {
        "agent": {"name": "Random", "algorithm": {"name": "Random"}},
        "env": PPO["env"],
        "meta": PPO["meta"],
    }
    write_spec(tmp_path, spec)
    assert call_here(command(tmp_path, "train"), tmp_path).code == 0
    agent = slm_lab.load("latest", data=tmp_path / "data")
    assert set(agent.act(np.zeros((200, 4))).tolist()) == {0, 1}
    with pytest.raises(LabError, match="Random has no network"):
        _ = agent.module


def test_importing_the_package_imports_no_torch():
    code = "import sys, slm_lab; slm_lab.__version__; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert set(slm_lab.__all__) <= set(dir(slm_lab))
    with pytest.raises(AttributeError, match="has no attribute 'lead'"):
        _ = slm_lab.lead
