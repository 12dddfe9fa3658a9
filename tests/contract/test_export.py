"""What files of exported policies contain, and which agents they refuse."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from slm_lab.core.errors import LabError
from slm_lab.export import export
from slm_lab.export.export import _input_names
from slm_lab.testing.outside import (
    PolicyFile,
    deviation_of_file,
    loaded_agent,
    open_onnx,
    small_spec,
)
from tests.contract.parts_table import CONV, RECURRENT
from tests.contract.table import ALGORITHM_ROWS, net
from tests.support import parse, ppo

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
pytest.importorskip("onnxscript", reason="needs the extra export")

PPO = ALGORITHM_ROWS["PPO"]


def agent_of(variant):
    """An agent of PPO outside the lab, with weights and moments that matter."""
    return loaded_agent(small_spec(PPO[variant].spec))


def open_pt2(path):
    module = torch.export.load(path).module()
    names = ["action", "values", "next_state"]

    def run(inputs):
        outputs = module(*map(torch.from_numpy, inputs.values()))
        return dict(zip(names, (each.numpy() for each in outputs), strict=False))

    return PolicyFile({"state": (6,)} if "recurrent" in path.stem else {}, run)


@pytest.mark.medium
@pytest.mark.parametrize("variant", ["continuous", "recurrent"])
def test_a_pt2_file_acts_as_the_agent(variant, tmp_path):
    """Also if it is written where the user has turned gradients off."""
    path = tmp_path / f"{variant}.pt2"
    with torch.no_grad():
        assert not deviation_of_file(agent_of(variant), path, open_pt2)


@pytest.mark.medium
def test_values_are_the_heads_and_the_largest_difference_is_returned(tmp_path):
    agent = agent_of("separate")
    difference = agent.export(tmp_path / "policy.onnx")
    assert difference.action == 0
    assert difference.values < 1e-5
    assert difference.observations == 200
    obs = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    run = open_onnx(tmp_path / "policy.onnx").run
    values = agent.module(torch.from_numpy(obs))[0].detach().numpy()
    np.testing.assert_allclose(run({"obs": obs})["values"], values, 1e-5, 1e-5)


def test_a_file_that_differs_from_the_agent_is_not_written(tmp_path, monkeypatch):
    agent = agent_of("separate")

    def wrong(graph):
        content, run = made(graph)
        return content, lambda inputs: [run(inputs)[0], run(inputs)[1] + 1e-3]

    made = export.GRAPHS[".pt2"]
    monkeypatch.setitem(export.GRAPHS, ".pt2", wrong)
    with pytest.raises(LabError, match="the exported values differ from the agent's"):
        agent.export(tmp_path / "policy.pt2")
    assert list(tmp_path.iterdir()) == []


def test_the_largest_output_sets_the_tolerance():
    """Found with a convolutional policy on pixels that were not scaled: its values
    reach 234."""
    values = np.float32([[-38.407604, -234.76974, -82.5234, 0.6188102]])
    rounded = np.float32([[-38.407615, -234.7697, -82.523, 0.6187834]]).repeat(
        export.COPIES, 0
    )
    assert export._gap("values", values, rounded) < 1e-3
    with pytest.raises(LabError, match="the exported values differ from the agent's"):
        export._gap("values", values, rounded + 3e-3)
    with pytest.raises(LabError, match="the exported values differ from the agent's"):
        export._gap("values", values / 234, (rounded + 3e-3) / 234)


def test_an_export_leaves_the_agents_episode_alone(tmp_path):
    agent, untouched = agent_of("recurrent"), agent_of("recurrent")
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    for step, each in enumerate(obs):
        if step == 10:
            agent.export(tmp_path / "policy.pt2")
        assert agent.act(each) == untouched.act(each)


def test_an_image_that_the_lab_resizes_is_refused(tmp_path):
    spec = small_spec(PPO["images"].spec)
    env = spec.env.model_copy(update={"image_downsize": (11, 11)})
    spec = spec.model_copy(update={"env": env})
    agent = loaded_agent(spec)
    with pytest.raises(LabError, match="image_downsize: an image that Pillow resizes"):
        agent.export(tmp_path / "policy.onnx")


class Fields(gymnasium.Env):
    """A choice of a row and a column among the fields that are free."""

    observation_space = spaces.Dict(
        free=spaces.MultiBinary((2, 3)), numbers=spaces.Box(-1, 1, (3,), np.float32)
    )
    action_space = spaces.MultiDiscrete([2, 3], start=[1, 4])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.free = np.ones((2, 3), np.int8)
        return self.given(), {}

    def given(self):
        numbers = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return {"free": self.free.copy(), "numbers": numbers}

    def step(self, action):
        row, column = action - np.array([1, 4])
        assert self.free[row, column], "this field is taken"
        self.free[row, column] = 0
        return self.given(), 1.0, not self.free.any(), False, {}


def test_a_choice_among_combinations_has_all_components_in_a_file(tmp_path, registered):
    name = registered("Fields-v0", entry_point=Fields)
    spec = PPO["masked"].spec
    env = spec.env.model_copy(update={"name": name, "action_mask": "free"})
    agent = loaded_agent(small_spec(spec.model_copy(update={"env": env})))
    assert agent.action_space == Fields.action_space
    assert not deviation_of_file(agent, tmp_path / "policy.onnx", open_onnx)


def test_another_suffix_is_refused(tmp_path):
    agent = agent_of("separate")
    with pytest.raises(
        LabError, match=r"policy\.pth: must end in \.onnx, \.pt2 or \.zip"
    ):
        agent.export(tmp_path / "policy.pth")


class Sampled(gymnasium.Env):
    """An environment of any spaces, with random observations."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 7, False, {}


Box, TWO, VECTOR = spaces.Box, spaces.Discrete(2), spaces.Box(-2, 2, (3,), np.float32)
STACKED = {"env__frame_op": "concat", "env__frame_op_len": 3}
MIXED = Box(
    np.array([-np.inf, -2, 0, -1e3]),
    np.array([np.inf, 5, np.inf, 1e3]),
    dtype=np.float64,
)
KINDS = {
    "float64, actions from 5": (
        Box(-2, 2, (3,), np.float64),
        spaces.Discrete(4, start=5),
        {},
    ),
    "a number": (Box(-2, 2, (), np.float32), TWO, {}),
    "a matrix": (Box(-2, 2, (3, 2), np.float32), TWO, {}),
    "int16": (Box(-20, 20, (3,), np.int16), TWO, {}),
    "bits": (spaces.MultiBinary([2, 2]), spaces.MultiBinary([2, 2]), {}),
    "an index": (
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([[3, 2], [2, 2]], start=[[1, 2], [0, -1]]),
        {},
    ),
    "indices": (spaces.MultiDiscrete([3, 2], start=[1, 4]), TWO, {}),
    "every kind of bound": (VECTOR, MIXED, {}),
    "actions of a shape": (
        VECTOR,
        Box(-2, 3, (2, 2), np.float32),
        {"env__normalize_obs": True},
    ),
    "channels last": (Box(0, 255, (12, 14, 3), np.uint8), TWO, net("ConvNet", CONV)),
    "stacked grey images": (
        Box(0, 255, (12, 14), np.uint8),
        TWO,
        {**net("ConvNet", CONV), **STACKED},
    ),
    "stacked colour images": (
        Box(0, 255, (2, 12, 14, 3), np.uint8),
        TWO,
        net("ConvNet", CONV),
    ),
    "images of floats": (Box(0, 1, (12, 14, 3), np.float32), TWO, net("ConvNet", CONV)),
    "stacked vectors": (VECTOR, TWO, {**STACKED, "env__normalize_obs": True}),
    "a normalised part": (
        spaces.Dict(arm=VECTOR, speed=VECTOR),
        TWO,
        {**STACKED, "env__normalize_obs": ["speed"]},
    ),
    "a normalised part beside an image": (
        spaces.Dict(arm=VECTOR, speed=VECTOR, eye=Box(0, 255, (14, 14, 3), np.uint8)),
        TWO,
        {**net("ConvNet", CONV), "env__normalize_obs": ["speed"]},
    ),
    "parts": (
        spaces.Tuple((spaces.Discrete(3, start=1), Box(-1, 1, (2, 2), np.float64))),
        TWO,
        STACKED,
    ),
    "parts named as other inputs": (
        spaces.Dict(
            image=Box(0, 255, (14, 14), np.uint8),
            mask=Box(-1, 1, (2,)),
            state=spaces.Discrete(3, start=1),
            values=spaces.MultiBinary(2),
            **{"": VECTOR, "obs.state": VECTOR},
        ),
        spaces.Dict(b=TWO),
        net("RecurrentNet", RECURRENT),
    ),
    "normalised indices beside a mask": (
        spaces.Dict(
            allowed=Box(1, 1, (2,), np.int8),
            rooms=spaces.MultiDiscrete([2, 3], start=[1, -1]),
            pose=VECTOR,
        ),
        TWO,
        {"env__action_mask": "allowed", "env__normalize_obs": True},
    ),
    "two layers of LSTM": (
        VECTOR,
        TWO,
        net("RecurrentNet", {**RECURRENT, "rnn_num_layers": 2}, cell_type="LSTM"),
    ),
    "a recurrent part beside an image, stacked": (
        spaces.Dict(arm=VECTOR, eye=Box(0, 255, (14, 14, 3), np.uint8)),
        TWO,
        {
            **net("ConvNet", CONV),
            **STACKED,
            "agent__net__parts": {"arm": {"type": "RecurrentNet", **RECURRENT}},
        },
    ),
    "RNN of stacked indices": (
        spaces.Discrete(4),
        TWO,
        {**net("RecurrentNet", RECURRENT, cell_type="RNN"), **STACKED},
    ),
    "GELU and norms": (
        VECTOR,
        TWO,
        {"agent__net__layer_norm": True, "agent__net__hid_layers_activation": "gelu"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_space_and_net_is_exported(kind, suffix, tmp_path, monkeypatch):
    """The export itself compares, and would refuse a difference."""
    *both, changes = KINDS[kind]
    monkeypatch.setitem(
        gymnasium.registry, "Sampled-v0", EnvSpec("Sampled-v0", lambda: Sampled(*both))
    )
    spec = parse(ppo(env__name="Sampled-v0", env__num_envs=2, **changes))
    agent = loaded_agent(spec)
    assert agent.export(tmp_path / f"policy.{suffix}").values < 1e-5


class AllowsNothing(Sampled):
    """An environment whose masks allow no action."""

    def __init__(self):
        mask = Box(0, 0, (2,), np.int8)
        super().__init__(spaces.Dict(allowed=mask, pose=VECTOR), TWO)


@pytest.mark.medium
def test_a_fault_of_the_environment_is_one_line_of_the_export(tmp_path, monkeypatch):
    entry = EnvSpec("AllowsNothing-v0", AllowsNothing)
    monkeypatch.setitem(gymnasium.registry, entry.id, entry)
    spec = parse(ppo(env__name=entry.id, env__action_mask="allowed"))
    with pytest.raises(LabError, match="AllowsNothing-v0 allows no action"):
        loaded_agent(spec).export(tmp_path / "policy.pt2")


@pytest.mark.medium
@pytest.mark.parametrize("normalized", [True, ["arm", "load"]])
def test_a_file_needs_the_actors_parts_alone(normalized, tmp_path, monkeypatch):
    both = spaces.Dict(arm=VECTOR, load=VECTOR, room=spaces.Discrete(3, start=1)), TWO
    entry = EnvSpec("Sampled-v0", lambda: Sampled(*both))
    monkeypatch.setitem(gymnasium.registry, entry.id, entry)
    spec = parse(
        ppo(
            env__name=entry.id,
            env__normalize_obs=normalized,
            agent__net__obs=["arm", "room"],
            agent__net__critic_obs=["arm", "load"],
        )
    )
    path = tmp_path / "policy.onnx"
    loaded_agent(spec).export(path)
    session = onnxruntime.InferenceSession(path)
    assert [each.name for each in session.get_inputs()] == ["arm", "room"]


def test_an_input_has_the_name_of_its_part_or_one_that_no_other_has():
    parts = ["pose", "state", "obs.state", "action.aim", ""]
    assert _input_names(parts, ["action.aim", "values"]) == {
        "pose": "pose",
        "state": "obs.obs.state",
        "obs.state": "obs.state",
        "action.aim": "obs.action.aim",
        "": "obs.",
    }
