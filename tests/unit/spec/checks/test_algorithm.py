"""Consistency between blocks, replaced environments and plug-ins."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.env.lookup import replaced_message
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.load import parse_spec
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.policy_gradient import PPOSpec
from slm_lab.spec.schema.q_learning import DQNSpec
from slm_lab.spec.schema.replay_actor_critic import (
    CrossQSpec,
    SoftActorCriticSpec,
    TQCSpec,
)
from tests.unit.spec.problems import assert_lines, assert_problem, messages
from tests.unit.spec.spec_data import A3C, ALL, DQN, PPO, SAC, changed

ADAM = {"name": "Adam"}
SGD = {"name": "SGD"}
GLOBAL = {"name": "GlobalAdam", "lr": 1e-3}
OPTIMIZERS = {
    "net.use_same_optim": False,
    "net.optim_spec": ADAM,
    "net.critic_optim_spec": SGD,
}
SHARED_NET = {
    "type": "MLPNet",
    "shared": True,
    "actor_optim_spec": GLOBAL,
    "critic_optim_spec": {"name": "GlobalAdam"},
    "critic_init_std": 1.0,
}
SEARCH = {
    "agent": {"net": {"hid_layers__choice": [[64], [128, 128]]}},
    "agent.net.optim_spec.name__choice": ["GlobalAdam", "SGDD"],
    "env.num_envs__choice": [1, 8],
    "agent.algorithm.lam__normal": [0.9, 0.01],
}


def pdtype(name):
    return {"algorithm.action_pdtype": name}


def exploring(policy, **schedule):
    return {
        "algorithm.action_policy": policy,
        "algorithm.explore_var_spec": schedule or None,
    }


def net(**keys):
    return {"net": {"type": "MLPNet", **keys}}


ONE_PROCESS = "keeps its state in one process; with distributed"
EPSILON = "agent.algorithm.explore_var_spec"
OF_DISCRETE = "{} in a discrete action space"
POLYAK = {"update_type": "polyak"}
STILL = (
    'polyak_coef = 0.0: must be > 0 with update_type "polyak": at 0 the target never '
    "moves"
)
DECAY = {"name": "linear_decay", "start_val": 1.0, "end_val": 1.5, "end_step": 10}

ROWS = [
    # Workers that share memory need optimizers whose state can be shared, and one
    # machine.
    *(
        (PPO, {"meta.distributed": mode, "net.optim_spec": {"name": "NAdam"}}, None)
        for mode in (False, "all_reduce", "actor_learner")
    ),
    *(
        (
            PPO,
            {
                "meta.distributed": mode,
                "meta.cluster": "auto",
                "net.optim_spec": GLOBAL,
            },
            "meta.cluster = 'auto': is for all_reduce, actor_learner … distributed "
            f'"{mode}"',
        )
        for mode in ("shared", "synced")
    ),
    # A shared net may repeat the optimizer of its actor.
    (PPO, {"net": SHARED_NET}, None),
    # A search is checked where its values would be set.
    (
        PPO,
        {"search": SEARCH},
        "search.agent.net.optim_spec.name__choice = 'SGDD': unknown name … did you "
        "mean SGD?",
    ),
    # A distribution that the algorithm cannot use.
    *(
        (
            base,
            pdtype(given),
            f"agent.algorithm.action_pdtype = '{given}': {name} cannot use it; use "
            f"default, or {usable}",
        )
        for base, name, given, usable in [
            (PPO, "PPO", "Argmax", OF_DISCRETE.format("Categorical, GumbelSoftmax")),
            (SAC, "SoftActorCritic", "Beta", "Normal in a box action space"),
            (
                SAC,
                "SoftActorCritic",
                "Argmax",
                OF_DISCRETE.format("Categorical, GumbelSoftmax"),
            ),
            (
                DQN,
                "DoubleDQN",
                "GumbelSoftmax",
                OF_DISCRETE.format("Argmax, Categorical"),
            ),
            (
                changed(DQN, exploring("default")),
                "DoubleDQN",
                "Normal",
                OF_DISCRETE.format("Argmax, Categorical"),
            ),
            (
                SAC,
                "SoftActorCritic",
                "Bernoulli",
                "Categorical, GumbelSoftmax in a discrete … ; Normal in a box action "
                "space",
            ),
        ]
    ),
    # The environments of an unknown simulator are left to another check.
    *(
        (PPO, {"env.name": name}, None)
        for name in ("RoboschoolAnt-v1", "Hopper-v2", "PongNoFrameskip-v4")
    ),
    # max_run is for distributed training.
    (A3C, {}, None),
    (A3C, {"meta.distributed": False}, "meta.max_run = 2: … set max_session instead"),
    # ε is a probability, and a temperature is not.
    (PPO, exploring("epsilon_greedy", start_val=3.0), f"{EPSILON}.start_val = 3.0: "),
    (PPO, exploring("epsilon_greedy", **DECAY), f"{EPSILON}.end_val = 1.5: "),
    (PPO, exploring("epsilon_greedy", start_val=1.0), None),
    (PPO, exploring("boltzmann", start_val=3.0), None),
    (PPO, exploring("boltzmann", **DECAY), None),
    # A target that would never move, as the critic's net follows it.
    (SAC, net(**POLYAK), f"agent.net.{STILL}"),
    (SAC, net(critic_update_type="polyak"), f"agent.net.{STILL}"),
    (
        SAC,
        net(**POLYAK, polyak_coef=0.01, critic_polyak_coef=0),
        f"agent.net.critic_{STILL}",
    ),
    (SAC, net(**POLYAK, critic_polyak_coef=0.01), None),
    (SAC, net(**POLYAK, critic_update_type="replace"), None),
    (
        SAC,
        {**net(**POLYAK), "critic_net": {"type": "MLPNet", **POLYAK}},
        f"agent.critic_net.{STILL}",
    ),
]


@pytest.mark.parametrize(("base", "changes", "problem"), ROWS)
def test_blocks_that_do_not_fit_each_other_are_refused(base, changes, problem):
    assert_problem(changed(base, changes), problem)


@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_hogwild_names_the_global_twin_of_each_optimizer(mode):
    assert_lines(
        messages(changed(PPO, {**OPTIMIZERS, "meta.distributed": mode})),
        [
            f"agent.net.optim_spec.name = 'Adam': {ONE_PROCESS} \"{mode}\" use "
            "GlobalAdam",
            f"agent.net.critic_optim_spec.name = 'SGD': {ONE_PROCESS} \"{mode}\" use "
            "GlobalAdam or GlobalRMSprop",
        ],
    )


@pytest.mark.parametrize("registry", [ALGORITHMS, MEMORIES, NETS], ids=lambda r: r.kind)
def test_every_part_of_the_language_has_a_model(registry):
    assert all(registry.get(name).params is not None for name in registry.names())


def test_a_search_block_does_not_hinder_training():
    raw = changed(PPO, search={"agent.algorithm.gamma__uniform": [0.9, 0.99]})
    assert parse_spec("s", raw).search == raw["search"]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        (
            {"search": {"agent.algorithm.training_frequency__grid_search": [16, 32]}},
            "search.agent.algorithm.training_frequency (PPO trains every time_horizon "
            "steps)",
        ),
        (
            {"algorithm.explore_var_spec": {"start_val": 0.5}},
            f'{EPSILON} (action_policy "default" has no exploration variable)',
        ),
    ],
)
def test_a_key_without_effect_is_noted(changes, note):
    parsed = parse("s", changed(PPO, changes))
    assert (parsed.problems, parsed.legacy) == ([], [note])


def test_problems_are_reported_in_the_same_order_every_time():
    raw = changed(
        PPO, env__num_envs=0, algorithm__gamma=2, meta__threads=0, agent__nets={}
    )
    first = messages(raw)
    assert len(first) == 4
    assert all(messages(raw) == first for _ in range(5))


def ppo_spec(**keys):
    return PPOSpec(name="PPO", gamma=0.9, time_horizon=1, **keys)


SOFT = SoftActorCriticSpec(name="SoftActorCritic", gamma=0.9)
RISING = {"name": "linear_decay", "start_val": 0, "end_val": 0.5, "end_step": 9}
PENALISED = [
    model(name="soft", gamma=0.9, entropy_penalty_coef=coef)
    for model in (SoftActorCriticSpec, CrossQSpec)
    for coef in (0.5, RISING)
]
ROBUST = {
    space: "agent.algorithm.rpo_alpha = 0.5: is for continuous actions, not for "
    f"{space.replace('_', '-')} ones; remove it"
    for space in ("discrete", "multi_discrete", "multi_binary")
}
CONTINUOUS = (
    "agent.algorithm.entropy_penalty_coef = 0.5: is for discrete actions, and the "
    "environ"
)


@pytest.mark.parametrize(
    ("algorithm", "space", "problem"),
    [
        (ppo_spec(), "box", None),
        (ppo_spec(action_pdtype="Normal"), "box", None),
        (ppo_spec(), "multi_binary", None),
        (ppo_spec(action_policy="random"), "multi_binary", None),
        (ppo_spec(action_policy="boltzmann"), "discrete", None),
        (ppo_spec(action_policy="boltzmann"), "multi_discrete", ""),
        (ppo_spec(action_policy="epsilon_greedy"), "box", ""),
        (DQNSpec(name="DQN", gamma=0.9), "discrete", None),
        (DQNSpec(name="DQN", gamma=0.9), "box", ""),
        (SOFT, "discrete", None),
        (SOFT, "multi_discrete", ""),
        (SOFT, "box", None),
        (TQCSpec(name="TQC", gamma=0.9), "discrete", "…TQC cannot act in a discrete"),
        (TQCSpec(name="TQC", gamma=0.9), "box", None),
        *((spec, "discrete", None) for spec in PENALISED),
        *((spec, "box", CONTINUOUS) for spec in PENALISED),
        (ppo_spec(rpo_alpha=0.5), "box", None),
        *((ppo_spec(rpo_alpha=0.5), space, text) for space, text in ROBUST.items()),
        *(
            (
                ppo_spec(action_pdtype="Categorical" if space == "box" else "Normal"),
                space,
                f"…a {space.replace('_', '-')} action space; use default or {fitting}",
            )
            for space, fitting in [
                ("discrete", "Categorical, GumbelSoftmax"),
                ("box", "Beta, LogNormal, MultivariateNormal, Normal"),
                ("multi_discrete", "MultiCategorical"),
                ("multi_binary", "Bernoulli"),
            ]
        ),
    ],
)
def test_the_action_space_decides_which_distributions_fit(algorithm, space, problem):
    found = map(str, action_space_problems(algorithm, space))
    assert_lines(list(found), [] if problem is None else [problem])


@pytest.mark.parametrize(
    ("keys", "has_low", "has_high", "fits"),
    [
        ({"action_pdtype": "Beta"}, True, True, True),
        ({"action_pdtype": "Beta"}, True, False, False),
        ({"action_pdtype": "LogNormal"}, True, False, True),
        ({"action_pdtype": "LogNormal"}, False, True, False),
        ({"action_pdtype": "Normal"}, False, False, True),
        ({"action_policy": "random"}, True, True, True),
        ({"action_policy": "random"}, False, True, False),
    ],
)
def test_a_bounded_distribution_needs_bounds(keys, has_low, has_high, fits):
    assert (
        action_space_problems(ppo_spec(**keys), "box", has_low, has_high) == []
    ) is fits


@pytest.mark.parametrize(
    ("gone", "here"),
    [
        ("RoboschoolHalfCheetah-v1", "HalfCheetah-v5"),
        ("HumanoidStandup-v4", "HumanoidStandup-v5"),
        ("Hopper-v2", "Hopper-v5"),
        ("Hopper-v5", None),
        ("PongNoFrameskip-v4", "ALE/Pong-v5"),
        ("Pendulum-v0", "Pendulum-v1"),
        ("BipedalWalkerHardcore-v2", "BipedalWalkerHardcore-v3"),
        ("CartPole-v1", None),
    ],
)
def test_replaced_environments_have_successors(gone, here):
    assert replaced_message(gone) == (here and f"its simulator is gone; use {here}")


def test_a_replaced_environment_without_successor_says_so():
    assert "has no successor" in replaced_message("RoboschoolAtlasForwardWalk-v1")


def test_a_plug_in_counts_as_soon_as_it_is_registered(registries):
    raw = changed(PPO, algorithm={"name": "Mine", "lam": 0.9})
    assert "agent.algorithm.name = 'Mine': unknown algorithm" in messages(raw)[0]

    class MineSpec(PPOSpec):
        name: str = "Mine"
        time_horizon: int = 16
        gamma: float = 0.9
        greed: float = 0.0

    ALGORITHMS.register("Mine", MineSpec, "nowhere:Mine")
    spec = parse_spec("s", changed(raw, algorithm__greed=0.5))
    assert isinstance(spec.agent.algorithm, MineSpec)
    assert spec.agent.algorithm.greed == 0.5
    assert parse_spec("s", spec.to_json()) == spec
    with pytest.raises(SpecError, match="did you mean greed"):
        parse_spec("s", changed(raw, algorithm__gred=0.5))


def test_a_plug_in_without_a_model_has_the_keys_of_all(registries):
    ALGORITHMS.register("Bare", None, "nowhere:Bare")
    spec = parse_spec("s", changed(PPO, algorithm={"name": "Bare", "gamma": 0.5}))
    assert (spec.agent.algorithm.name, spec.agent.algorithm.gamma) == ("Bare", 0.5)


def test_specs_cannot_be_changed():
    spec = parse_spec("s", PPO)
    for block, key in (
        (spec, "name"),
        (spec.env, "num_envs"),
        (spec.agent.net, "shared"),
    ):
        with pytest.raises(ValueError, match="frozen"):
            setattr(block, key, 1)


@pytest.mark.parametrize("name", ALL)
def test_parsing_does_not_change_what_it_is_given(name):
    before = repr(ALL[name])
    parse(name, ALL[name])
    assert repr(ALL[name]) == before
