"""The net of a role, and the short profile."""

import pytest

from slm_lab.core.errors import LabError
from slm_lab.spec.budget import dev_profile
from slm_lab.spec.load import parse_spec
from slm_lab.spec.schema.agent import net_for_role
from slm_lab.spec.schema.mlp import MLPNetSpec
from tests.unit.spec.spec_data import PPO, RANDOM, changed


def nets(**net):
    agent = parse_spec("s", changed(PPO, agent__net={"type": "MLPNet"} | net)).agent
    return net_for_role(agent, "actor"), net_for_role(agent, "critic")


def test_variants_are_folded_into_plain_keys():
    actor, critic = nets(
        hid_layers=[64],
        actor_hid_layers=[32],
        critic_hid_layers=[128, 128],
        actor_init_std=0.01,
        critic_hid_layers_activation="LeakyReLU",
        clip_grad_val=0.5,
    )
    assert (actor.hid_layers, critic.hid_layers) == ((32,), (128, 128))
    assert (actor.init_std, critic.init_std) == (0.01, None)
    assert (actor.hid_layers_activation, critic.hid_layers_activation) == (
        "relu",
        "LeakyReLU",
    )
    assert actor.clip_grad_val == critic.clip_grad_val == 0.5
    assert not actor.variants
    assert not critic.variants


def test_without_variants_both_roles_have_the_net_itself():
    actor, critic = nets(hid_layers=[8], optim_spec={"name": "SGD", "lr": 0.1})
    assert actor == critic
    assert actor.optim_spec.args == {"lr": 0.1}


@pytest.mark.parametrize("key", ["use_same_optim", "shared"])
def test_the_critic_takes_the_optimizer_and_scheduler_of_the_actor(key):
    _, critic = nets(
        **{key: True},
        actor_optim_spec={"name": "SGD", "lr": 0.1},
        actor_lr_scheduler_spec={"name": "LinearToZero", "frame": 1e6},
    )
    assert (critic.optim_spec.name, critic.optim_spec.args) == ("SGD", {"lr": 0.1})
    assert critic.lr_scheduler_spec.args == {"frame": 1_000_000}


def test_each_role_may_have_its_own_optimizer():
    actor, critic = nets(
        actor_optim_spec={"name": "SGD"}, critic_optim_spec={"name": "AdamW"}
    )
    assert (actor.optim_spec.name, critic.optim_spec.name) == ("SGD", "AdamW")


def test_a_critic_net_replaces_the_net_altogether():
    raw = changed(
        PPO,
        agent__critic_net={"type": "MLPNet", "hid_layers": [7], "critic_init_std": 2},
    )
    critic = net_for_role(parse_spec("s", raw).agent, "critic")
    assert isinstance(critic, MLPNetSpec)
    assert (critic.hid_layers, critic.init_std, critic.clip_grad_val) == (
        (7,),
        2.0,
        None,
    )


def test_an_agent_without_a_net_has_none_for_any_role():
    with pytest.raises(LabError, match="Random has no net"):
        net_for_role(parse_spec("s", RANDOM).agent, "actor")


@pytest.mark.parametrize("raw", [PPO, RANDOM], ids=["PPO", "Random"])
def test_a_dev_run_is_short_and_has_enough_rows(raw):
    spec = parse_spec("s", changed(raw, meta__max_session=8, meta__max_trial=4))
    dev = dev_profile(spec)
    assert dev.agent == spec.agent
    assert dev.env.max_frame <= spec.env.max_frame
    assert dev.env.max_frame // dev.meta.log_frequency >= 4
    assert dev.meta.max_session == 2
    assert dev.meta.max_trial == 1
    assert parse_spec("s", dev.to_json()) == dev


def test_a_dev_run_of_ppo_learns_four_times():
    dev = dev_profile(parse_spec("s", PPO))
    assert dev.env.max_frame == 4 * 32 * 4
