"""Whether the nets of a spec can see what the environment shows, before anything is
built."""

import copy

import pytest
import torch

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.net.layers import Head
from slm_lab.core.errors import LabError
from slm_lab.core.observation import FLOAT32, ObservationLayout
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.load import parse_spec
from tests.unit.spec.problems import assert_lines
from tests.unit.spec.spec_data import DQN, PPO, RANDOM, SAC

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
VECTOR = (4,)
IMAGE = (3, 84, 84)
FRAMES = (4, 3, 84, 84)


def agent_with(base, type_, critic=None, **keys):
    raw = copy.deepcopy(base)
    raw["agent"]["net"] = {"type": type_, **NETS_OF[type_], **keys}
    if critic is not None:
        raw["agent"]["critic_net"] = {"type": critic, **NETS_OF[critic]}
    if type_ == "RecurrentNet":
        raw["agent"]["algorithm"].update(time_horizon=32, minibatch_size=32)
    return parse_spec("s", raw).agent


def seen(shape):
    """Observations without parts."""
    return ObservationLayout(shape, FLOAT32)


@pytest.mark.parametrize(
    ("type_", "shape", "words"),
    [
        ("MLPNet", IMAGE, "have the shape (3, 84, 84); images need ConvNet"),
        ("HydraMLPNet", IMAGE, "images need ConvNet"),
        ("DuelingMLPNet", IMAGE, "images need DuelingConvNet"),
        ("MLPNet", (4, 6), 'one with env.frame_op "concat"'),
        (
            "MLPNet",
            FRAMES,
            "images need ConvNet, and several frames are one image with env.frame",
        ),
        ("RecurrentNet", FRAMES, "images need ConvNet, and several frames are one"),
        (
            "ConvNet",
            VECTOR,
            "takes observations that are images (C, H, W), but the environment's "
            "have the shape (4,); vectors need MLPNet",
        ),
        ("DuelingConvNet", VECTOR, "vectors need MLPNet"),
        ("ConvNet", FRAMES, 'env.frame_op "concat"'),
        ("ConvNet", (84, 84, 3), "come first"),
    ],
)
def test_a_net_that_cannot_see_the_observations_is_refused_as_it_would_be_when_built(
    type_, shape, words
):
    agent = agent_with(DQN if type_.startswith("Dueling") else PPO, type_)
    (problem,) = observation_problems(agent, seen(shape), discrete=True)
    assert (problem.path, problem.value) == ("agent.net.type", type_)
    assert words in problem.message
    with pytest.raises(LabError) as caught:
        build_net(agent.net, shape, [Head(2, 1.0)], torch.Generator().manual_seed(0))
    assert str(caught.value) == f"agent.net.type = {type_}: {problem.message}"


CONV_OF_99 = {"critic_conv_hid_layers": [[8, 99]]}
DEEP = {"conv_hid_layers": [[8, 3, 1], [16, 4, 2], [16, 9]]}


@pytest.mark.parametrize(
    ("agent", "shape", "problem"),
    [
        (agent_with(PPO, "MLPNet"), VECTOR, None),
        (agent_with(PPO, "ConvNet"), IMAGE, None),
        # The first kernel that is larger than its input.
        (agent_with(PPO, "ConvNet", **DEEP), IMAGE, None),
        (
            agent_with(PPO, "ConvNet", **DEEP),
            (3, 7, 7),
            "agent.net.conv_hid_layers.2 = [16, 9]: …does not fit an input of the "
            "shape (16, 1, 1)",
        ),
        # Each role has its own layers.
        (
            agent_with(PPO, "ConvNet", **CONV_OF_99),
            IMAGE,
            "agent.net.critic_conv_hid_layers.0 =",
        ),
        (agent_with(PPO, "ConvNet", critic="MLPNet"), IMAGE, "agent.critic_net.type ="),
        # Critics of continuous actions.
        (agent_with(SAC, "MLPNet"), IMAGE, "agent.net.type = …: …images need ConvNet"),
        (agent_with(SAC, "ConvNet"), IMAGE, None),
        (parse_spec("s", SAC).agent, VECTOR, None),
        # An agent without a net.
        (parse_spec("s", RANDOM).agent, (1, 2, 3, 4, 5), None),
    ],
)
def test_nets_fit_the_observations(agent, shape, problem):
    discrete = agent.algorithm.name != "SoftActorCritic"
    problems = observation_problems(agent, seen(shape), discrete=discrete)
    found = [str(problem) for problem in problems]
    assert_lines(found, [] if problem is None else [problem])
