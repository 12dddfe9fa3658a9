"""Whether the nets of a spec can see what the environment shows, before anything is built."""

import copy

import pytest
import torch

from slm_lab.core.errors import LabError
from slm_lab.core.registry import NETS
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.load import parse_spec
from tests.unit.spec.spec_data import DQN, PPO, SAC

CONV = {"conv_hid_layers": [[8, 8, 4], [16, 4, 2]], "fc_hid_layers": [16]}
MLP = {"hid_layers": [16]}
NETS_OF = {
    "MLPNet": MLP,
    "DuelingMLPNet": MLP,
    "HydraMLPNet": {"hid_layers": [[], [16], []]},
    "RecurrentNet": {"rnn_hidden_size": 8},
    "ConvNet": CONV,
    "DuelingConvNet": CONV,
}
VECTOR, IMAGE, FRAMES = (4,), (3, 84, 84), (4, 3, 84, 84)


def agent_with(base, type_, critic=None, **keys):
    raw = copy.deepcopy(base)
    raw["agent"]["net"] = {"type": type_, **NETS_OF[type_], **keys}
    if critic is not None:
        raw["agent"]["critic_net"] = {"type": critic, **NETS_OF[critic]}
    if type_ == "RecurrentNet":
        raw["agent"]["algorithm"].update(time_horizon=32, minibatch_size=32)
    return parse_spec("s", raw).agent


@pytest.mark.parametrize(
    ("type_", "shape", "words"),
    [
        ("MLPNet", IMAGE, "have the shape (3, 84, 84); images need ConvNet"),
        ("HydraMLPNet", IMAGE, "images need ConvNet"),
        ("DuelingMLPNet", IMAGE, "images need DuelingConvNet"),
        ("RecurrentNet", IMAGE, "no net has a memory for images"),
        ("MLPNet", (4, 6), 'one with env.frame_op "concat"'),
        ("MLPNet", FRAMES, 'images need ConvNet, and several frames are one image with env.frame'),
        ("RecurrentNet", FRAMES, "no net has a memory for images"),
        ("ConvNet", VECTOR, "takes observations that are images (C, H, W), but the environment's "
                            "have the shape (4,); vectors need MLPNet"),
        ("DuelingConvNet", VECTOR, "vectors need MLPNet"),
        ("ConvNet", FRAMES, 'env.frame_op "concat"'),
        ("ConvNet", (84, 84, 3), "come first"),
    ],
)  # fmt: skip
def test_a_net_that_cannot_see_the_observations_is_refused_as_it_would_be_when_built(
    type_, shape, words
):
    agent = agent_with(DQN if type_.startswith("Dueling") else PPO, type_)
    (problem,) = observation_problems(agent, shape, discrete=True)
    assert (problem.path, problem.value) == ("agent.net.type", type_)
    assert words in problem.message
    with pytest.raises(LabError) as caught:
        NETS.load(type_)(agent.net, shape, [2], [1.0], torch.Generator().manual_seed(0))
    assert str(caught.value) == f"agent.net.type = {type_}: {problem.message}"


@pytest.mark.parametrize(("type_", "shape"), [("MLPNet", VECTOR), ("ConvNet", IMAGE)])
def test_a_net_that_sees_them_is_right(type_, shape):
    assert observation_problems(agent_with(PPO, type_), shape, discrete=True) == []


def test_the_first_kernel_that_is_larger_than_what_arrives_is_named():
    layers = [[8, 3, 1], [16, 4, 2], [16, 9]]
    agent = agent_with(PPO, "ConvNet", conv_hid_layers=layers)
    assert observation_problems(agent, IMAGE, discrete=True) == []
    (problem,) = observation_problems(agent, (3, 7, 7), discrete=True)
    assert problem.path == "agent.net.conv_hid_layers.2"
    assert problem.value == [16, 9]
    assert "does not fit an input of the shape (16, 1, 1), (C, H, W)" in problem.message


def test_each_role_is_checked_with_the_layers_that_are_its_own():
    agent = agent_with(PPO, "ConvNet", critic_conv_hid_layers=[[8, 99]])
    (problem,) = observation_problems(agent, IMAGE, discrete=True)
    assert problem.path == "agent.net.critic_conv_hid_layers.0"
    agent = agent_with(PPO, "ConvNet", critic="MLPNet")
    (problem,) = observation_problems(agent, IMAGE, discrete=True)
    assert problem.path == "agent.critic_net.type"


def test_critics_of_continuous_actions_see_vectors_only():
    agent = parse_spec("s", SAC).agent
    (problem,) = observation_problems(agent, IMAGE, discrete=False)
    assert problem.path == "agent.algorithm.name"
    assert "critics of continuous actions take observations that are vectors" in problem.message
    assert observation_problems(agent, VECTOR, discrete=False) == []


def test_an_agent_without_a_net_sees_anything():
    raw = copy.deepcopy(PPO)
    raw["agent"] = {"name": "Random", "algorithm": {"name": "Random"}}
    agent = parse_spec("s", raw).agent
    assert observation_problems(agent, (1, 2, 3, 4, 5), discrete=True) == []
