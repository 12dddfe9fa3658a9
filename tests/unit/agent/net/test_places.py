"""A message about a net names the block and the key that it is from."""

import pytest
import torch

from slm_lab.agent.from_spec.net import build_net
from slm_lab.agent.from_spec.networks import build_optimizer
from slm_lab.agent.net.layers import Head
from slm_lab.agent.optim.flat import FlatParameters
from slm_lab.core.errors import LabError
from slm_lab.spec.schema.agent import net_for_role
from tests.contract.parts_table import CONV, arc, layer
from tests.support import parse, ppo, soft

OPTIM = {"optim_spec": {"name": "GlobalAdam", "lr": 1e-3}}
WIDE = arc(layer("Linear", in_features=7, out_features=3), layer("SiLU"))


def critic(spec):
    """The critic's net, built for observations (4,)."""
    net = net_for_role(parse(spec).agent, "critic")
    return build_net(net, (4,), [Head(1)], torch.Generator().manual_seed(0))


def own(kind, **keys):
    return {"agent__critic_net": {"type": kind, **OPTIM, **keys}}


ARC = "modules.body.Sequential.0.Linear: torch refuses"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (ppo(**own("ConvNet", **CONV)), "agent.critic_net.type = ConvNet: takes"),
        (
            ppo(**own("MLPNet", hid_layers=[8], out_layer_activation=["tanh", None])),
            "agent.critic_net.out_layer_activation: names 2 activations",
        ),
        (
            ppo(agent__net__critic_out_layer_activation=["tanh", None]),
            "agent.net.critic_out_layer_activation: names 2 activations",
        ),
        (
            ppo(agent__net__out_layer_activation=["tanh", None, None]),
            "agent.net.out_layer_activation: names 3 activations",
        ),
        (ppo(**own("TorchArcNet", arc=WIDE)), f"agent.critic_net.arc.{ARC}"),
        (
            ppo(
                agent__net={
                    "type": "TorchArcNet",
                    "actor_arc": arc(layer("Tanh")),
                    "critic_arc": WIDE,
                    **OPTIM,
                }
            ),
            f"agent.net.critic_arc.{ARC}",
        ),
        (
            soft("CrossQ", agent__net__critic_out_layer_activation=["tanh", None]),
            "agent.net.critic_out_layer_activation: names 2 activations",
        ),
    ],
)
def test_a_net_that_cannot_be_built(spec, message):
    with pytest.raises(LabError) as caught:
        critic(spec)
    assert str(caught.value).startswith(message)


def test_a_block_that_is_resolved_twice_is_still_that_of_the_file():
    agent = parse(soft("CrossQ")).agent
    copied = agent.model_copy(update={"critic_net": net_for_role(agent, "critic")})
    assert net_for_role(copied, "critic").path_of("arc") == "agent.net.arc"


def test_an_optimizer_that_torch_refuses():
    nesterov = {"name": "SGD", "lr": 1e-3, "nesterov": True}  # needs a momentum
    spec = ppo(**own("MLPNet", hid_layers=[8], optim_spec=nesterov))
    net = net_for_role(parse(spec).agent, "critic")
    with pytest.raises(LabError, match=r"^agent\.critic_net\.optim_spec: torch refus"):
        build_optimizer(net, FlatParameters(critic(spec)))


def test_a_batch_of_one_sample_for_batch_normalisation():
    net = critic(ppo(**own("MLPNet", hid_layers=[8], batch_norm=True)))
    with pytest.raises(LabError, match=r"^agent\.critic_net: batch normalisation cann"):
        net.train(True)(torch.zeros(1, 4))
