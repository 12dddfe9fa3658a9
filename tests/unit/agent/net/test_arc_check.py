"""Whether arcs can see what an environment shows, asked before anything starts."""

import pytest

from slm_lab.agent.net.torch_arc import arc_problems
from tests.support import parse, ppo, soft
from tests.unit.agent.net.building import arc

LINEAR = ("LazyLinear", {"out_features": 8})
OF_FIVE = ("Linear", {"in_features": 5, "out_features": 8})
"""A layer that only takes five numbers."""


def net(*layers, **keys):
    optim = {"name": "GlobalAdam", "lr": 1e-3}
    return {"type": "TorchArcNet", "arc": arc(*layers), "optim_spec": optim, **keys}


def problems(spec, shape, *, discrete=True):
    return [(each.path, each.message) for each in arc_problems(parse(spec).agent, shape, discrete)]


def test_a_layer_that_torch_refuses_is_named_with_the_shape_that_arrives_there():
    ((path, message),) = problems(ppo(agent__net=net(LINEAR, "ReLU", OF_FIVE)), (4,))
    assert path == "agent.net.arc.modules.body.Sequential.2.Linear"
    assert "the shape (8,) that arrives there" in message


def test_an_arc_that_ends_in_images_is_told_to_flatten_them():
    convolution = ("LazyConv2d", {"out_channels": 4, "kernel_size": 3})
    flat = net(convolution, "Flatten", LINEAR)
    assert problems(ppo(agent__net=flat), (2, 12, 12)) == []
    ((path, message),) = problems(ppo(agent__net=net(convolution, LINEAR)), (2, 12, 12))
    assert path == "agent.net.arc.modules.body.Sequential.2"
    assert "(4, 10, 8); put {Flatten: null} before it" in message


def test_what_fits_has_no_problems():
    assert problems(ppo(agent__net=net(OF_FIVE, "ReLU")), (5,)) == []
    assert problems(ppo(), (4,)) == []


def test_each_role_is_tried_with_the_arc_that_it_has():
    own = {"critic_arc": arc(OF_FIVE)}
    ((path, _),) = problems(ppo(agent__net=net(LINEAR, shared=False, **own)), (4,))
    assert path == "agent.net.critic_arc.modules.body.Sequential.0.Linear"
    spec = ppo(agent__net=net(LINEAR, shared=False), agent__critic_net=net(OF_FIVE))
    ((path, _),) = problems(spec, (4,))
    assert path == "agent.critic_net.arc.modules.body.Sequential.0.Linear"


@pytest.mark.parametrize("discrete", [True, False])
def test_critics_that_see_a_continuous_action_too_are_tried_when_they_are_built(discrete):
    """Here is not known how many numbers the action has: it would be five in all."""
    spec = soft("SoftActorCritic", agent__net=net(LINEAR), agent__critic_net=net(OF_FIVE))
    found = problems(spec, (4,), discrete=discrete)
    assert [path.split(".")[1] for path, _ in found] == (["critic_net"] if discrete else [])
