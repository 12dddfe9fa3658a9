"""Keys that change nothing: harmless ones are told in one line, misleading ones refused."""

import json
import logging

import pytest

from slm_lab.spec.load import load_spec, parse_spec
from slm_lab.spec.parse import parse
from slm_lab.spec.read import shipped_files
from tests.support import actor_critic, ppo, q_learning, reinforce, sarsa, soft
from tests.unit.spec.spec_data import fillings

FOLLOWING = {"update_type": "polyak", "update_frequency": 8, "polyak_coef": 0.01}
DEFAULTS = {
    "shared": False,
    "use_same_optim": False,
    "update_type": "replace",
    "update_frequency": 1,
    "polyak_coef": 0.0,
}
WITHOUT_TARGETS = {
    "PPO": ppo(),
    "ActorCritic": actor_critic(),
    "Reinforce": reinforce(),
    "SARSA": sarsa(),
    "VanillaDQN": q_learning("VanillaDQN", agent__net__update_frequency=1),
    "CrossQ": soft("CrossQ"),
}
WITH_TARGETS = {
    "DQN": q_learning("DQN"),
    "DoubleDQN": q_learning("DoubleDQN"),
    "SoftActorCritic": soft("SoftActorCritic"),
}
EVERY = {**WITHOUT_TARGETS, **WITH_TARGETS}
ONE_NET = ("Reinforce", "SARSA", "VanillaDQN", "DQN", "DoubleDQN")


def with_net(raw, **keys):
    agent = raw["agent"]
    return {**raw, "agent": {**agent, "net": {**agent["net"], **keys}}}


def with_algorithm(raw, **keys):
    agent = raw["agent"]
    return {**raw, "agent": {**agent, "algorithm": {**agent["algorithm"], **keys}}}


def told(raw):
    """Paths of keys without effect; the spec has to load."""
    parsed = parse("s", raw)
    assert [str(problem) for problem in parsed.problems] == []
    return [note.split(" ")[0] for note in parsed.legacy]


def problems(raw):
    return [str(problem) for problem in parse("s", raw).problems]


@pytest.mark.parametrize("name", EVERY)
def test_default_values_ask_for_nothing_and_are_not_told(name):
    following = {key: EVERY[name]["agent"]["net"][key] for key in FOLLOWING
                 if key in EVERY[name]["agent"]["net"]}  # fmt: skip
    assert told(with_net(EVERY[name], **{**DEFAULTS, **following})) == []


@pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)
def test_no_shipped_spec_is_warned_of(path, caplog):
    with caplog.at_level(logging.WARNING):
        for name in json.loads(path.read_text()):
            load_spec(path, name, fillings(path))
    assert caplog.messages == []


@pytest.mark.parametrize("name", WITHOUT_TARGETS)
def test_an_algorithm_without_target_networks_tells_what_would_move_them(name):
    raw = with_net(WITHOUT_TARGETS[name], **FOLLOWING)
    assert told(raw) == [f"agent.net.{key}" for key in FOLLOWING]
    assert f"{name} has no target networks" in parse("s", raw).legacy[0]
    assert told(with_net(raw, polyak_coef=0.0)) == told(raw)[:2], "it needs no coefficient either"


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_an_algorithm_with_target_networks_uses_what_moves_them(name):
    assert told(with_net(WITH_TARGETS[name], **FOLLOWING)) == []


def test_a_copy_has_no_use_for_a_coefficient():
    raw = with_net(WITH_TARGETS["DQN"], update_type="replace", polyak_coef=0.01)
    assert told(raw) == ["agent.net.polyak_coef"]


def test_targets_follow_the_nets_of_the_critic_block():
    """What the other block says of them is not used, and the critic block is asked alone."""
    raw = soft("SoftActorCritic")
    critic = {"type": "MLPNet", "hid_layers": [8]}
    raw["agent"]["critic_net"] = {**critic, **FOLLOWING}
    assert told(raw) == ["agent.net.update_type", "agent.net.polyak_coef"]
    raw["agent"]["net"] = {**critic, "actor_update_frequency": 3}
    assert told(raw) == ["agent.net.actor_update_frequency"]


def test_the_role_whose_nets_have_targets_is_asked():
    soft_raw, q_raw = WITH_TARGETS["SoftActorCritic"], WITH_TARGETS["DQN"]
    assert told(with_net(soft_raw, critic_update_frequency=3)) == []
    assert told(with_net(soft_raw, actor_update_frequency=3)) == [
        "agent.net.actor_update_frequency"
    ]
    assert told(with_net(q_raw, actor_update_frequency=32)) == []
    assert told(with_net(q_raw, critic_update_frequency=3)) == ["agent.net.critic_update_frequency"]


@pytest.mark.parametrize("name", ONE_NET)
def test_an_algorithm_with_one_net_tells_what_is_for_two(name):
    raw = with_net(EVERY[name], shared=True, use_same_optim=True, critic_init_std=1.0)
    paths = ["agent.net.shared", "agent.net.use_same_optim", "agent.net.critic_init_std"]
    assert told(raw) == paths


@pytest.mark.parametrize("name", ONE_NET)
def test_an_algorithm_with_one_net_refuses_a_block_for_a_second(name):
    raw = EVERY[name]
    critic = {"type": "MLPNet", "hid_layers": [8]}
    (only,) = problems({**raw, "agent": {**raw["agent"], "critic_net": critic}})
    assert only == (
        f"agent.critic_net: {name} has one net, agent.net, and no critic; remove the block"
    )


@pytest.mark.parametrize("name", ["SoftActorCritic", "CrossQ"])
def test_critics_that_are_apart_share_no_body(name):
    (only,) = problems(with_net(EVERY[name], shared=True))
    assert only == (
        f"agent.net.shared = true: {name} has critics separate from the actor; set it to false"
    )


@pytest.mark.parametrize("name", ["PPO", "SoftActorCritic"])
def test_a_block_for_the_critic_has_its_own_optimizer(name):
    raw = with_net(EVERY[name], use_same_optim=True, update_type="replace", polyak_coef=0.0)
    assert told(raw) == []
    raw["agent"]["critic_net"] = {"type": "MLPNet", "hid_layers": [8]}
    assert told(raw) == ["agent.net.use_same_optim"]


def test_a_place_for_norms_that_are_not_there_changes_nothing():
    assert told(with_net(EVERY["PPO"], norm_place="after")) == ["agent.net.norm_place"]
    assert told(with_net(EVERY["PPO"], norm_place="after", layer_norm=True)) == []
    assert told(with_net(EVERY["CrossQ"], norm_place="before")) == []


@pytest.mark.parametrize("name", ["SoftActorCritic", "CrossQ"])
@pytest.mark.parametrize("fixed", [0.2, {"start_val": 0.5}])
def test_a_fixed_temperature_refuses_what_would_tune_it(name, fixed):
    raw = with_algorithm(EVERY[name], fixed_alpha=fixed)
    assert told(with_algorithm(raw, target_entropy="auto", alpha_lr=None)) == []
    for key, value in (("target_entropy", -2.0), ("alpha_lr", 1e-3)):
        (only,) = problems(with_algorithm(raw, **{key: value}))
        assert only == (
            f"agent.algorithm.{key} = {value}: tunes α, and fixed_alpha sets it; remove one of "
            "the two"
        )
    bounded = with_algorithm(raw, log_alpha_min=-5.0, log_alpha_max=1.0)
    assert told(bounded) == ["agent.algorithm.log_alpha_min", "agent.algorithm.log_alpha_max"]
    tuned = with_algorithm(bounded, fixed_alpha=None, alpha_lr=1e-3, target_entropy=0.5)
    assert told(tuned) == []


def test_what_learns_nothing_tells_what_is_there_to_learn_with():
    raw = ppo(agent__algorithm={"name": "Random"})
    assert told(raw) == ["agent.memory", "agent.net"]
    assert told({**raw, "agent": {"algorithm": {"name": "Random"}}}) == []


def test_an_exact_ratio_tells_a_frequency():
    raw = with_algorithm(WITH_TARGETS["DQN"], training_batch_iter=1, update_to_data=0.5)
    assert told(raw) == ["agent.algorithm.training_frequency"]
    assert told(with_algorithm(raw, training_frequency=1)) == []


@pytest.mark.parametrize(
    ("key", "value", "with_effect"),
    [
        ("clip_obs", 5.0, {"normalize_obs": True}),
        ("clip_obs", None, {"normalize_obs": True}),
        ("frame_op_len", 4, {"frame_op": "concat"}),
        ("backend", "envpool", {"vectorization_mode": None}),
        ("backend", "envpool", {"vectorization_mode": "native"}),
    ],
)
def test_a_key_of_the_environment_is_told_where_another_one_takes_its_effect(
    key, value, with_effect
):
    raw = ppo(env__vectorization_mode="sync")
    assert told(raw) == []
    raw["env"][key] = value
    assert told(raw) == [f"env.{key}"]
    raw["env"].update(with_effect)
    assert told(raw) == []


@pytest.mark.parametrize(("key", "value"), [("scale", "weak"), ("scale_lr", False)])
def test_how_ranks_divide_a_spec_is_told_where_there_are_none(key, value):
    meta = {f"meta__{key}": value}
    assert told(ppo(**meta)) == [f"meta.{key}"]
    assert told(ppo(**meta, meta__distributed="all_reduce")) == []


def test_the_updates_of_one_process_have_its_learning_rate():
    strong = {"meta__distributed": "all_reduce", "meta__scale": "strong"}
    assert told(ppo(**strong, meta__scale_lr=False)) == ["meta.scale_lr"]


ASKED_OF_ACTORS = {
    "unroll_length": 64,
    "learn_queue": 2,
    "queue_size": 2,
    "correction": "vtrace",
    "publish_frequency": 2,
    "inference": "learner",
    "train_ratio": None,
    "serial": True,
}
ACTORS = {"meta__distributed": "actor_learner"}


@pytest.mark.parametrize("mode", [False, "synced", "all_reduce"])
def test_whatever_is_said_of_actors_and_learner_is_told_where_there_are_none(mode):
    for key, value in ASKED_OF_ACTORS.items():
        raw = ppo(meta__distributed=mode, meta__actor_learner={key: value})
        assert told(raw) == [f"meta.actor_learner.{key}"]
    every = ppo(meta__distributed=mode, meta__actor_learner=ASKED_OF_ACTORS)
    assert told(every) == [f"meta.actor_learner.{key}" for key in ASKED_OF_ACTORS]
    defaults = {"correction": "none", "train_ratio": "spec", "unroll_length": None}
    assert told(ppo(meta__distributed=mode, meta__actor_learner=defaults)) == []


@pytest.mark.parametrize(
    ("settings", "on_policy", "replays"),
    [
        ({"unroll_length": 64}, False, False),
        ({"learn_queue": 2}, False, True),
        ({"queue_size": 2}, False, False),
        ({"publish_frequency": 2}, False, False),
        ({"inference": "learner"}, False, False),
        ({"train_ratio": 2.0}, True, False),
        ({"train_ratio": None}, True, False),
        ({"serial": True}, False, False),
    ],
)
def test_a_setting_of_actors_is_told_where_the_algorithm_has_no_use_for_it(
    settings, on_policy, replays
):
    (key,) = settings
    path = [f"meta.actor_learner.{key}"]
    how = {**ACTORS, "meta__actor_learner": settings}
    assert told(ppo(**how)) == path * on_policy
    once = {f"agent__algorithm__{key}": 1 for key in ("training_frequency", "training_batch_iter")}
    for raw in (q_learning("DQN", **how, **once), soft("SoftActorCritic", **how, **once)):
        assert told(raw) == path * replays


def test_who_takes_turns_waits_for_nobody():
    settings = {"queue_size": 2, "inference": "learner", "learn_queue": 2}
    assert told(ppo(**ACTORS, meta__actor_learner=settings)) == []
    serial = ppo(**ACTORS, meta__actor_learner={**settings, "serial": True})
    assert told(serial) == ["meta.actor_learner.queue_size", "meta.actor_learner.inference"]


def test_what_corrects_nothing_has_no_bounds():
    bounds = {"rho_bar": 2.0, "c_bar": 0.5}
    none, vtrace = ({"correction": {"name": n, **bounds}} for n in ("none", "vtrace"))
    path = "meta.actor_learner.correction"
    assert told(ppo(**ACTORS, meta__actor_learner=vtrace)) == []
    assert told(ppo(**ACTORS, meta__actor_learner=none)) == [f"{path}.rho_bar", f"{path}.c_bar"]


@pytest.mark.parametrize(
    ("ratio", "keys"),
    [
        ("spec", []),
        (0.5, ["training_frequency", "training_batch_iter", "training_iter"]),
        (None, ["training_frequency", "training_batch_iter"]),
    ],
)
def test_a_ratio_of_the_mode_tells_what_the_algorithm_asks_for_in_vain(ratio, keys):
    how = {**ACTORS, "meta__actor_learner": {"train_ratio": ratio}}
    raw = q_learning("DQN", **how, agent__algorithm__training_iter=3)
    assert told(raw) == [f"agent.algorithm.{key}" for key in keys]
    exact = {"training_frequency": 16, "training_iter": 1, "training_batch_iter": 1,
             "update_to_data": 0.25}  # fmt: skip
    own = ["training_frequency", *(["update_to_data"] if keys else [])]
    assert told(with_algorithm(raw, **exact)) == [f"agent.algorithm.{key}" for key in own]


@pytest.mark.parametrize(
    ("raw", "is_told"),
    [
        (ppo(), False),
        (ppo(agent__algorithm__action_pdtype="Normal"), False),
        (ppo(agent__algorithm__action_pdtype="Beta"), True),
        (ppo(agent__algorithm__action_pdtype="Categorical"), True),
        (q_learning("DQN"), True),
        (sarsa(), True),
    ],
)
def test_a_first_deviation_is_told_where_actions_have_none(raw, is_told):
    assert told(with_net(raw, log_std_init=0.0)) == ["agent.net.log_std_init"] * is_told


def test_whatever_changes_nothing_is_one_line_for_a_file(caplog):
    raw = with_net(WITHOUT_TARGETS["VanillaDQN"], **FOLLOWING, shared=True)
    del raw["meta"]["log_frequency"]
    with caplog.at_level(logging.WARNING):
        parse_spec("s", raw)
    (line,) = caplog.messages
    assert line.startswith("s: keys without meaning here are ignored: agent.net.shared (")
    assert all(f"agent.net.{key} (" in line for key in FOLLOWING)
