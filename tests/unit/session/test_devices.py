"""The devices of nets, and nets that leave the GPU of their training."""

from contextlib import closing

import numpy as np
import pytest

from slm_lab.session.build import place_on_cpu
from slm_lab.spec.schema.agent import net_for_role
from slm_lab.testing.outside import evaluation_env, untrained
from tests.support import parse, ppo, soft

CRITIC = {"type": "MLPNet", "hid_layers": [8]}
MAKERS = pytest.mark.parametrize(
    "make", [ppo, lambda **keys: soft("SoftActorCritic", **keys)]
)


@pytest.mark.parametrize("gpu", [False, True, "auto"])
@MAKERS
def test_actor_and_critic_are_on_one_device(make, gpu):
    for own in (False, True, "auto"):
        agent = parse(
            make(agent__net__gpu=gpu, agent__critic_net={**CRITIC, "gpu": own})
        ).agent
        assert [net.gpu for net in agent.nets.values()] == [gpu, gpu]
        assert [net_for_role(agent, role).gpu for role in ("actor", "critic")] == [
            gpu,
            gpu,
        ]


@MAKERS
def test_an_agent_that_was_trained_on_a_gpu_acts_without_one(make, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    spec = parse(make(agent__net__gpu=True, agent__net__precision="bf16"))
    with closing(evaluation_env(spec)) as env:
        agent = untrained(spec, env)
        action = agent.actor.act_greedily(env.reset())
    assert np.isfinite(action).all()


@pytest.mark.parametrize("precision", ["float32", "bf16", "auto"])
def test_a_net_that_moves_to_the_cpu_needs_no_bf16_there(precision):
    spec = place_on_cpu(
        parse(ppo(agent__net__gpu="auto", agent__net__precision=precision))
    )
    assert spec.agent.net.gpu is False
    assert spec.agent.net.precision == precision.replace("bf16", "auto")


class Watched:
    """In place of a tensor: where it is, and how it was copied."""

    def __init__(self, is_cuda, calls=()):
        self.is_cuda = is_cuda
        self.calls = calls

    def pin_memory(self):
        return Watched(self.is_cuda, (*self.calls, "pinned"))

    def to(self, device, non_blocking=False):
        call = f"to {device.type}, waiting" if not non_blocking else f"to {device.type}"
        return Watched(device.type == "cuda", (*self.calls, call))
