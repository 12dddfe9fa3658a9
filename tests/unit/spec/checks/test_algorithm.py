"""What has to fit between blocks, what is not built yet, and what replaced environments say."""

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.env.lookup import replaced_message, successor
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.load import parse_spec
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.algorithm import CrossQSpec, DQNSpec, PPOSpec, SoftActorCriticSpec
from tests.unit.spec.spec_data import A3C, ALL, DQN, PPO, SAC, changed


def messages(raw):
    return [str(problem) for problem in parse("s", raw).problems]


@pytest.mark.parametrize("distributed", ["shared", "synced"])
def test_hogwild_names_the_global_twin_of_each_optimizer(distributed):
    raw = changed(
        PPO,
        meta__distributed=distributed,
        agent__net__use_same_optim=False,
        agent__net__optim_spec={"name": "Adam"},
        agent__net__critic_optim_spec={"name": "SGD"},
    )
    found = messages(raw)
    end = f'keeps its state in one process; with distributed "{distributed}" use'
    assert f"agent.net.optim_spec.name = 'Adam': {end} GlobalAdam" in found
    assert f"agent.net.critic_optim_spec.name = 'SGD': {end} GlobalAdam or GlobalRMSprop" in found


@pytest.mark.parametrize("distributed", [False, "all_reduce", "actor_learner"])
def test_other_modes_take_any_optimizer(distributed):
    raw = changed(PPO, meta__distributed=distributed, agent__net__optim_spec={"name": "NAdam"})
    assert not any("optim_spec" in message for message in messages(raw))


def test_a_shared_net_may_repeat_the_optimizer_of_its_actor():
    same = {"name": "GlobalAdam", "lr": 1e-3}
    raw = changed(PPO, agent__net={
        "type": "MLPNet", "shared": True, "actor_optim_spec": same,
        "critic_optim_spec": {"name": "GlobalAdam"}, "critic_init_std": 1.0,
    })  # fmt: skip
    assert messages(raw) == []


@pytest.mark.parametrize("mode", ["shared", "synced"])
def test_workers_that_share_memory_stay_on_one_machine(mode):
    raw = changed(PPO, meta__distributed=mode, meta__cluster="auto",
                  agent__net__optim_spec={"name": "GlobalAdam", "lr": 1e-3})  # fmt: skip
    assert messages(raw) == [
        f"meta.cluster = 'auto': is for all_reduce, actor_learner and independent Sessions; the "
        f'workers of distributed "{mode}" share the memory of one machine'
    ]


@pytest.mark.parametrize("registry", [ALGORITHMS, MEMORIES, NETS], ids=lambda r: r.kind)
def test_every_part_of_the_language_has_a_model(registry):
    assert all(registry.get(name).params is not None for name in registry.names())


def test_a_search_block_does_not_hinder_training():
    raw = changed(PPO, search={"agent.algorithm.gamma__uniform": [0.9, 0.99]})
    assert parse_spec("s", raw).search == raw["search"]


def test_search_values_are_tried_where_they_would_be_set():
    raw = changed(
        PPO,
        search={
            "agent": {"net": {"hid_layers__choice": [[64], [128, 128]]}},
            "agent.net.optim_spec.name__choice": ["GlobalAdam", "SGDD"],
            "env.num_envs__choice": [1, 8],
            "agent.algorithm.lam__normal": [0.9, 0.01],
        },
    )
    (message,) = messages(raw)
    assert message.startswith("search.agent.net.optim_spec.name__choice = 'SGDD': unknown name")
    assert message.endswith("did you mean SGD?")


def test_a_search_over_a_key_that_means_nothing_is_noted():
    raw = changed(PPO, search={"agent.algorithm.training_frequency__grid_search": [16, 32]})
    parsed = parse("s", raw)
    assert parsed.problems == []
    assert parsed.legacy == [
        "search.agent.algorithm.training_frequency (PPO trains every time_horizon steps)"
    ]


def test_problems_come_in_the_same_order_every_time():
    raw = changed(PPO, env__num_envs=0, agent__algorithm__gamma=2, meta__threads=0, agent__nets={})
    first = messages(raw)
    assert len(first) == 4
    assert all(messages(raw) == first for _ in range(5))


@pytest.mark.parametrize(
    ("algorithm", "space", "right"),
    [
        (PPOSpec(gamma=0.9, time_horizon=1), "box", True),
        (PPOSpec(gamma=0.9, time_horizon=1, action_pdtype="Normal"), "box", True),
        (PPOSpec(gamma=0.9, time_horizon=1, action_pdtype="Normal"), "discrete", False),
        (PPOSpec(gamma=0.9, time_horizon=1, action_pdtype="Categorical"), "box", False),
        (PPOSpec(gamma=0.9, time_horizon=1), "multi_binary", True),
        (PPOSpec(gamma=0.9, time_horizon=1, action_policy="random"), "multi_binary", True),
        (PPOSpec(gamma=0.9, time_horizon=1, action_policy="boltzmann"), "discrete", True),
        (PPOSpec(gamma=0.9, time_horizon=1, action_policy="boltzmann"), "multi_discrete", False),
        (PPOSpec(gamma=0.9, time_horizon=1, action_policy="epsilon_greedy"), "box", False),
        (DQNSpec(gamma=0.9), "discrete", True),
        (DQNSpec(gamma=0.9), "box", False),
        (SoftActorCriticSpec(gamma=0.9), "discrete", True),
        (SoftActorCriticSpec(gamma=0.9), "multi_discrete", False),
    ],
)
def test_the_action_space_decides_which_distributions_fit(algorithm, space, right):
    assert (action_space_problems(algorithm, space) == []) is right


@pytest.mark.parametrize(
    ("algorithm", "given", "usable"),
    [
        ("PPO", "Argmax", "Categorical, GumbelSoftmax in a discrete action space"),
        ("SoftActorCritic", "Beta", "Normal in a box action space"),
        ("SoftActorCritic", "Argmax", "Categorical, GumbelSoftmax in a discrete action space"),
        ("DoubleDQN", "GumbelSoftmax", "Argmax, Categorical in a discrete action space"),
        ("DoubleDQN", "Normal", "Argmax, Categorical in a discrete action space"),
        (
            "SoftActorCritic",
            "Bernoulli",
            "Categorical, GumbelSoftmax in a discrete action space; Normal in a box action space",
        ),
    ],
)
def test_a_distribution_that_an_algorithm_cannot_use_has_those_of_its_kind_named(
    algorithm, given, usable
):
    raw = {"PPO": PPO, "SoftActorCritic": SAC, "DoubleDQN": DQN}[algorithm]
    raw = changed(raw, agent__algorithm__action_pdtype=given)
    (message,) = (text for text in messages(raw) if "action_pdtype = " in text)
    assert message == (
        f"agent.algorithm.action_pdtype = '{given}': {algorithm} cannot use it; "
        f"use default, or {usable}"
    )


@pytest.mark.parametrize(
    ("space", "fitting"),
    [
        ("discrete", "Categorical, GumbelSoftmax"),
        ("box", "Beta, LogNormal, MultivariateNormal, Normal"),
        ("multi_discrete", "MultiCategorical"),
        ("multi_binary", "Bernoulli"),
    ],
)
def test_a_distribution_of_another_space_has_those_of_the_space_at_hand_named(space, fitting):
    given = "Normal" if space != "box" else "Categorical"
    algorithm = PPOSpec(gamma=0.9, time_horizon=1, action_pdtype=given)
    (problem,) = action_space_problems(algorithm, space)
    kind = space.replace("_", "-")
    assert problem.message == f"does not fit a {kind} action space; use default or {fitting}"


@pytest.mark.parametrize(
    ("keys", "has_low", "has_high", "right"),
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
def test_what_draws_between_bounds_is_refused_where_there_are_none(keys, has_low, has_high, right):
    algorithm = PPOSpec(gamma=0.9, time_horizon=1, **keys)
    assert (action_space_problems(algorithm, "box", has_low, has_high) == []) is right


@pytest.mark.parametrize("model", [SoftActorCriticSpec, CrossQSpec])
def test_the_penalty_on_entropy_is_for_discrete_actions(model):
    algorithm = model(gamma=0.9, entropy_penalty_coef=0.5)
    assert action_space_problems(algorithm, "discrete") == []
    (problem,) = action_space_problems(algorithm, "box")
    assert str(problem) == (
        "agent.algorithm.entropy_penalty_coef = 0.5: is for discrete actions, and the "
        "environment's are continuous; remove it"
    )
    assert action_space_problems(model(gamma=0.9), "box") == []


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
    assert successor(gone) == here
    assert replaced_message(gone) == (here and f"its simulator is gone; use {here}")


def test_a_replaced_environment_without_successor_says_so():
    assert "has no successor" in replaced_message("RoboschoolAtlasForwardWalk-v1")


@pytest.mark.parametrize("name", ["RoboschoolAnt-v1", "Hopper-v2", "PongNoFrameskip-v4"])
def test_the_schema_leaves_replaced_environments_to_the_second_pass(name):
    assert messages(changed(PPO, env__name=name)) == []


def test_a_plug_in_counts_as_soon_as_it_is_registered(monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    raw = changed(PPO, agent__algorithm={"name": "Mine", "lam": 0.9})
    assert "agent.algorithm.name = 'Mine': unknown algorithm" in messages(raw)[0]

    class MineSpec(PPOSpec):
        name: str = "Mine"
        time_horizon: int = 16
        gamma: float = 0.9
        greed: float = 0.0

    ALGORITHMS.register("Mine", MineSpec, "nowhere:Mine")
    spec = parse_spec("s", changed(raw, agent__algorithm__greed=0.5))
    assert isinstance(spec.agent.algorithm, MineSpec)
    assert spec.agent.algorithm.greed == 0.5
    assert parse_spec("s", spec.to_json()) == spec
    with pytest.raises(SpecError, match="did you mean greed"):
        parse_spec("s", changed(raw, agent__algorithm__gred=0.5))


def test_a_plug_in_without_a_model_has_the_keys_of_all(monkeypatch):
    monkeypatch.setattr(ALGORITHMS, "_entries", dict(ALGORITHMS._entries))
    ALGORITHMS.register("Bare", None, "nowhere:Bare")
    spec = parse_spec("s", changed(PPO, agent__algorithm={"name": "Bare", "gamma": 0.5}))
    assert (spec.agent.algorithm.name, spec.agent.algorithm.gamma) == ("Bare", 0.5)


def test_specs_cannot_be_changed():
    spec = parse_spec("s", PPO)
    for block, key in ((spec, "name"), (spec.env, "num_envs"), (spec.agent.net, "shared")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(block, key, 1)


@pytest.mark.parametrize("name", ALL)
def test_parsing_does_not_change_what_it_is_given(name):
    before = repr(ALL[name])
    parse(name, ALL[name])
    assert repr(ALL[name]) == before


def test_max_run_belongs_to_distributed_training():
    assert not [message for message in messages(A3C) if "max_run" in message]
    alone = changed(A3C, meta__distributed=False, meta__max_run=2)
    (told,) = (message for message in messages(alone) if "max_run" in message)
    assert "set max_session instead" in told


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        ({"start_val": 3.0}, ["start_val"]),
        (
            {"name": "linear_decay", "start_val": 1.0, "end_val": 1.5, "end_step": 10},
            ["end_val"],
        ),
        ({"start_val": 1.0}, []),
    ],
)
def test_epsilon_is_a_probability_and_a_temperature_is_not(schedule, wrong):
    keys = {"agent__algorithm__explore_var_spec": schedule}
    greedy = messages(changed(PPO, **keys, agent__algorithm__action_policy="epsilon_greedy"))
    path = "agent.algorithm.explore_var_spec"
    assert [message.split(" = ")[0] for message in greedy] == [f"{path}.{key}" for key in wrong]
    assert messages(changed(PPO, **keys, agent__algorithm__action_policy="boltzmann")) == []


def test_an_exploration_variable_that_nothing_uses_is_noted():
    raw = changed(PPO, agent__algorithm__explore_var_spec={"start_val": 0.5})
    parsed = parse("s", raw)
    assert parsed.problems == []
    reason = 'action_policy "default" has no exploration variable'
    assert parsed.legacy == [f"agent.algorithm.explore_var_spec ({reason})"]


STILL = 'must be > 0 with update_type "polyak": at 0 the target never moves'


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"update_type": "polyak"}, "agent.net.polyak_coef = 0.0"),
        ({"critic_update_type": "polyak"}, "agent.net.polyak_coef = 0.0"),
        (
            {"update_type": "polyak", "polyak_coef": 0.01, "critic_polyak_coef": 0},
            "agent.net.critic_polyak_coef = 0.0",
        ),
        ({"update_type": "polyak", "critic_polyak_coef": 0.01}, None),
        ({"update_type": "polyak", "critic_update_type": "replace"}, None),
    ],
)
def test_a_target_that_would_never_move_is_refused_as_the_critics_see_it(keys, key):
    found = messages(changed(SAC, agent__net={"type": "MLPNet", **keys}))
    assert found == ([] if key is None else [f"{key}: {STILL}"])


def test_a_critic_with_a_block_of_its_own_is_asked_for_its_own_coefficient():
    nets = {"agent__net": {"type": "MLPNet", "update_type": "polyak"},
            "agent__critic_net": {"type": "MLPNet", "update_type": "polyak"}}  # fmt: skip
    assert messages(changed(SAC, **nets)) == [f"agent.critic_net.polyak_coef = 0.0: {STILL}"]
