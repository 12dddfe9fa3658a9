"""Critics of continuous actions that see images."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.from_spec.networks import build_critics
from slm_lab.agent.net.layers import BatchRenorm, Head
from slm_lab.core.errors import LabError
from slm_lab.core.observation import (
    BYTE,
    FLOAT32,
    ObservationLayout,
    PartSpace,
    row_layout,
)
from slm_lab.spec.checks.observations import observation_problems
from slm_lab.spec.schema.agent import net_for_role
from tests.contract.parts_table import CONV, CONVOLUTIONS, STAGES
from tests.support import parse, ppo, randn, seeded, soft
from tests.unit.agent.net.building import images
from tests.unit.spec.problems import assert_lines

IMAGE = (2, 12, 12)
PIXELS = ObservationLayout(IMAGE, BYTE)
NUM_ACTIONS = 3
OPTIM = {"optim_spec": {"name": "GlobalAdam", "lr": 1e-3}}
NETS = {
    "ConvNet": CONV,
    "ResNet": {**STAGES, "normalize": True},
    "TorchArcNet": {"arc": CONVOLUTIONS, "normalize": True},
}


def critics(name="SoftActorCritic", net="ConvNet", layout=PIXELS, keys=None, **changes):
    block = {"type": net, **(NETS[net] if keys is None else keys), **OPTIM}
    agent = parse(soft(name, agent__net=block, **changes)).agent
    return build_critics(
        agent=agent,
        algorithm=agent.algorithm,
        layout=layout,
        num_actions=NUM_ACTIONS,
        discrete=False,
        generator=seeded(0),
    )


def without_norms(tail, features):
    """A perceptron with ReLU, written out."""
    x = features
    for layer in tail.hidden:
        x = (x @ layer.weight.T + layer.bias).relu()
    (head,) = tail.heads
    return (x @ head.weight.T + head.bias).squeeze(-1)


@pytest.mark.parametrize("net", NETS)
def test_the_action_joins_the_features_of_the_image(net):
    critic = critics(net=net)
    obs = images(IMAGE)
    action = randn(8, NUM_ACTIONS)
    for q_net, q in zip(critic.nets, critic.q_values(obs, action), strict=True):
        both = torch.cat([q_net.body(obs), action], -1)
        assert_close(q, without_norms(q_net.tail, both))
    for one, other in pairwise(critic.q_values(obs, action)):
        assert not torch.allclose(one, other)


@pytest.mark.parametrize("net", NETS)
def test_the_slope_of_q_by_the_action_depends_on_the_image(net):
    critic = critics(net=net)
    obs = images(IMAGE)
    action = randn(1, NUM_ACTIONS).repeat(8, 1).requires_grad_()
    with critic.frozen():
        critic.actor_value(obs, action).sum().backward()
    slopes = action.grad
    assert slopes.abs().min(0).values.max() > 0
    assert slopes.std(0).max() > 0
    assert not critic.optimizer.flat.grad.any()


def test_an_action_beside_a_vector_is_seen_by_the_first_layer():
    layout = ObservationLayout((4,), FLOAT32)
    critic = critics(net="SimBaNet", layout=layout, keys={"width": 8})
    obs = randn(8, 4)
    action = randn(8, NUM_ACTIONS)
    net = critic.nets[0]
    assert net.body.embedding.in_features == 4 + NUM_ACTIONS
    (q,) = net(torch.cat([obs, action], -1))
    assert_close(critic.q_values(obs, action)[0], q.squeeze(-1), rtol=0, atol=0)


def test_every_critic_has_convolutions_of_its_own():
    critic = critics(agent__algorithm__num_critics=3)
    weights = [net.body.convs[0].weight for net in critic.nets]
    assert len({weight.data_ptr() for weight in weights}) == 3
    targets = [net.body.convs[0].weight for net in critic.targets]
    assert_close(targets, weights, rtol=0, atol=0)
    assert not torch.allclose(weights[0], weights[1])


def test_images_of_now_and_of_the_next_step_are_normalised_together():
    """CrossQ's one batch, in the convolutions and where the action joins."""
    keys = {**CONV, "batch_norm": "renorm", "norm_place": "after"}
    critic = critics("CrossQ", keys=keys)
    obs, next_obs = images(IMAGE, seed=1), images(IMAGE, seed=2)
    action, next_action = randn(8, NUM_ACTIONS), randn(8, NUM_ACTIONS, seed=1)
    critic.train(True)
    net = critic.nets[0]
    sizes = []
    for norm in [part for part in net.modules() if isinstance(part, BatchRenorm)]:
        norm.register_forward_hook(lambda _, x, __: sizes.append(x[0].shape))
    critic.q_and_next_value(obs, action, next_obs, next_action)
    # two convolutions, the joined input, a hidden layer
    assert [size[0] for size in sizes] == [16] * 4
    assert sizes[2][1] == net.body.width + NUM_ACTIONS


def test_quantiles_of_a_critic_are_those_of_image_and_action():
    critic = critics("TQC", agent__algorithm__num_quantiles=5)
    obs = images(IMAGE)
    action = randn(8, NUM_ACTIONS)
    quantiles = critic.distributions(obs, action)
    assert [q.shape for q in quantiles] == [(8, 5)] * len(critic.nets)
    values = critic.q_values(obs, action)
    assert_close([q.mean(-1) for q in quantiles], values)


def agent_with(net, **keys):
    return parse(soft("SoftActorCritic", agent__net={"type": net, **keys, **OPTIM}))


LINEAR = "must have a layer: a critic's action joins the features of the image, and Q …"


@pytest.mark.parametrize(
    ("net", "keys", "problem"),
    [
        *((net, keys, None) for net, keys in NETS.items()),
        (
            "ConvNet",
            {**CONV, "fc_hid_layers": []},
            f"agent.net.fc_hid_layers = []: {LINEAR}",
        ),
        ("ConvNet", {**CONV, "fc_hid_layers": [], "critic_fc_hid_layers": [8]}, None),
        (
            "ResNet",
            {**STAGES, "critic_fc_hid_layers": []},
            f"agent.net.critic_fc_hid_layers = []: {LINEAR}",
        ),
        ("MLPNet", {"hid_layers": [8]}, "agent.net.type = 'MLPNet': …images need Con…"),
    ],
)
def test_a_critic_without_a_place_for_the_action_is_refused_before_and_when_built(
    net, keys, problem
):
    agent = agent_with(net, **keys).agent
    found = map(str, observation_problems(agent, PIXELS, discrete=False))
    assert_lines(list(found), [] if problem is None else [problem])
    spec = net_for_role(agent, "critic")

    def build():
        return build_net(spec, PIXELS, [Head(1)], seeded(0), NUM_ACTIONS)

    if problem is None:
        assert build()
    else:
        with pytest.raises(LabError, match=problem.split(" = ")[0]):
            build()


def test_other_algorithms_need_no_layer_after_the_image():
    block = {"type": "ConvNet", **CONV, "fc_hid_layers": [], **OPTIM}
    agent = parse(ppo(agent__net=block)).agent
    assert not observation_problems(agent, PIXELS, discrete=False)


PARTS = row_layout(
    [
        PartSpace("camera", (2, 12, 12), np.dtype(np.uint8)),
        PartSpace("speed", (3,), FLOAT32),
    ]
)


@pytest.mark.parametrize(
    ("net", "keys"), [("ConvNet", CONV), ("MLPNet", {"hid_layers": [8]})]
)
def test_the_action_joins_the_features_of_the_parts(net, keys):
    critic = critics(net=net, layout=PARTS, keys=keys)
    rows = images(PARTS.shape)
    speed = PARTS.part("speed")
    rows[:, speed.start : speed.end] = randn(8, 3).view(torch.uint8)
    action = randn(8, NUM_ACTIONS)
    q_net = critic.nets[0]
    tail = q_net.tail if net == "ConvNet" else q_net.net
    both = torch.cat([q_net.body(rows), action], -1)
    assert_close(critic.q_values(rows, action)[0], without_norms(tail, both))
    assert tail.in_size == q_net.body.width + NUM_ACTIONS
