"""Parts registered from outside: under a model that inherits one of ours, or under
none."""

import pickle
import sys
from dataclasses import replace

import pytest
import torch
from pydantic import Field
from torch import nn

from slm_lab.agent.algorithm.actor_critic import ActorCritic
from slm_lab.agent.algorithm.ppo import PPO
from slm_lab.agent.fast.networks import array_net
from slm_lab.agent.memory.on_policy import OnPolicyBatchReplay
from slm_lab.agent.net.layers import EmptyLinear, init_heads
from slm_lab.agent.net.mlp import MLPNet
from slm_lab.core.errors import LabError, SpecError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.json_schema import file_schema
from slm_lab.spec.schema.memory import OnPolicyBatchReplaySpec
from slm_lab.spec.schema.mlp import MLPNetSpec
from slm_lab.spec.schema.policy_gradient import ActorCriticSpec, PPOSpec
from tests.contract.parts_table import NET_ROWS
from tests.support import actor_critic, parse, ppo, run_session


class OwnNetSpec(MLPNetSpec):
    own: int = Field(3, ge=1, description="a key of its own")


class OwnPPOSpec(PPOSpec):
    own: float = Field(0.5, ge=0, description="a key of its own")


class OwnMemorySpec(OnPolicyBatchReplaySpec):
    pass


class OwnNet(MLPNet):
    pass


class FromScratch(nn.Module):
    """A net of a package: linear heads alone, of which `forward` gives `outputs`."""

    def __init__(self, spec, obs_shape, heads, generator):
        super().__init__()
        self.heads = nn.ModuleList(EmptyLinear(obs_shape[0], h.dim) for h in heads)
        init_heads(self.heads, heads, None, generator)

    def forward(self, obs):
        return self.outputs([head(obs) for head in self.heads])


class OwnPPO(PPO):
    pass


class OwnActorCritic(ActorCritic):
    pass


class OwnMemory(OnPolicyBatchReplay):
    pass


@pytest.fixture(autouse=True)
def own_parts(registries):
    ALGORITHMS.register("OwnPPO", OwnPPOSpec, f"{__name__}:OwnPPO")
    ALGORITHMS.register("OwnActorCritic", ActorCriticSpec, f"{__name__}:OwnActorCritic")
    MEMORIES.register("OwnMemory", OwnMemorySpec, f"{__name__}:OwnMemory")
    NETS.register("OwnNet", OwnNetSpec, f"{__name__}:OwnNet")
    NETS.register("BareNet", None, f"{__name__}:OwnNet")


def own(**changes):
    names = {"agent__net__type": "OwnNet", "agent__algorithm__name": "OwnPPO"}
    return parse(ppo(**{**names, **changes}))


@pytest.mark.parametrize("net", ["OwnNet", "BareNet"])
def test_a_registered_net_and_algorithm_train_like_built_in_ones(net, tmp_path):
    session = run_session(own(agent__net__type=net), tmp_path)
    assert type(session.agent.learner) is OwnPPO
    assert type(session.agent.learner.network.module.net) is OwnNet
    assert session.agent.learner.opt_step > 0


def test_one_model_may_have_several_names_and_a_memory_may_be_a_plug_in(tmp_path):
    raw = actor_critic(
        agent__algorithm__name="OwnActorCritic", agent__memory={"name": "OwnMemory"}
    )
    session = run_session(parse(raw), tmp_path)
    assert type(session.agent.learner) is OwnActorCritic
    assert type(session.agent.memory) is OwnMemory
    assert session.agent.learner.opt_step > 0


def test_a_spec_keeps_the_registered_name():
    spec = own(agent__net__own=7, agent__net__actor_own=8)
    assert (spec.agent.algorithm.name, spec.agent.net.type) == ("OwnPPO", "OwnNet")
    assert parse(spec.to_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert spec.agent.net.role_keys("actor") == {"own": 8}


def test_a_plug_in_model_inherits_the_checks_of_its_base_model():
    with pytest.raises(SpecError, match=r"agent.algorithm.own = -1: must be >= 0"):
        own(agent__algorithm__own=-1)
    with pytest.raises(SpecError, match="frames of one rollout"):  # a check of PPO
        own(agent__algorithm__minibatch_size=10**6)
    # MLPNet's keys only
    with pytest.raises(SpecError, match=r"agent.net.own = 5: unknown key"):
        own(agent__net__type="BareNet", agent__net__own=5)


def test_the_schema_offers_each_part_under_its_registered_name_only():
    agent = file_schema()["$defs"]["AgentSpec"]["properties"]
    offered = {
        part["properties"]["name"]["const"]: part["properties"]
        for part in agent["algorithm"]["anyOf"]
    }
    assert offered["OwnPPO"].keys() - offered["PPO"].keys() == {"own"}
    assert offered["OwnActorCritic"].keys() == offered["ActorCritic"].keys()
    assert offered["PPO"]["name"] == {"const": "PPO"}


@pytest.mark.parametrize("name", NET_ROWS)
def test_a_net_derived_from_one_of_ours_needs_no_constructor(name):
    """It is built from the same keys, and its own `forward` counts."""
    row = next(iter(NET_ROWS[name].values()))
    entry = NETS.get(name)
    base = NETS.load(name)
    derived = type("Derived", (base,), {"forward": lambda self, obs: (obs,)})
    sys.modules[__name__].Derived = derived
    NETS.register("Derived", entry.params, f"{__name__}:Derived")
    net = replace(row, block={**row.block, "type": "Derived"}).build()
    assert type(net) is derived
    plain = row.build().state_dict()
    assert all(torch.equal(t, plain[key]) for key, t in net.state_dict().items())
    assert array_net(net) is None


@pytest.mark.parametrize(
    ("outputs", "returned"),
    [
        (lambda heads: heads[0], "Tensor"),
        (lambda heads: tuple(head[:, :1] for head in heads), r"\[\(2, 1\)\]"),
        (lambda heads: (*heads, heads[0]), r"\[\(2, 2\), \(2, 2\)\]"),
    ],
)
def test_a_net_without_an_output_per_head_is_one_line(outputs, returned, tmp_path):
    """A policy whose output is too narrow would train, and never take some actions."""
    NETS.register("FromScratch", None, f"{__name__}:FromScratch")
    FromScratch.outputs = staticmethod(outputs)
    message = (
        r"agent.net.type = FromScratch: its forward must return a tuple with one "
        rf"output per head, here of the shapes \[\(2, 2\)\], and returned {returned}$"
    )
    with pytest.raises(LabError, match=message):
        run_session(own(agent__net__type="FromScratch"), tmp_path)
