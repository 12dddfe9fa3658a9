"""What can be trained by actors and one learner, and how the rest is refused."""

import pytest

from slm_lab.core.registry import ALGORITHMS, MEMORIES
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.algorithm import (
    AlgorithmSpec,
    DQNSpec,
    PPOSILSpec,
    PPOSpec,
    ReinforceSpec,
    SILSpec,
)
from slm_lab.spec.schema.memory import MemorySpec, OnPolicyBatchReplaySpec, ReplaySpec
from tests.support import actor_critic, ppo, q_learning, reinforce, sarsa, soft

MODE = 'distributed "actor_learner"'
BATCHES = {"name": "OnPolicyBatchReplay"}
PAST = {**BATCHES, "sil_replay_name": "Replay", "batch_size": 8, "max_size": 80}
PRIORITIES = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}
ONE = {"env__num_envs": 1}
RECURRENT = {"type": "RecurrentNet", "fc_hid_layers": [8], "rnn_hidden_size": 8}


def problems(raw, actors=2, **settings):
    how = {"distributed": "actor_learner", "max_session": actors, "actor_learner": settings}
    meta = {**raw["meta"], **how}
    return [str(problem) for problem in parse("s", {**raw, "meta": meta}).problems]


def alone(raw):
    return [str(problem) for problem in parse("s", raw).problems]


def named(raw, name, **keys):
    """The raw spec with another algorithm that has the same keys, and more."""
    agent = raw["agent"]
    return {**raw, "agent": {**agent, "algorithm": {**agent["algorithm"], "name": name, **keys}}}


def with_net(raw, **keys):
    net = {k: v for k, v in raw["agent"]["net"].items() if k not in ("type", "hid_layers")}
    return {**raw, "agent": {**raw["agent"], "net": {**net, **keys}}}


@pytest.fixture
def parts(monkeypatch):
    """Registries that forget what is registered in a test."""
    for registry in (ALGORITHMS, MEMORIES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


TRAINED = {
    "PPO": ppo(),
    "ActorCritic": actor_critic(),
    "SARSA": sarsa(),
    "Reinforce": reinforce(agent__memory=BATCHES),
    **{name: q_learning(name) for name in ("VanillaDQN", "DQN", "DoubleDQN")},
    "DQN by priority": q_learning("DQN", agent__memory=PRIORITIES),
    "SoftActorCritic": soft("SoftActorCritic"),
    "CrossQ": soft("CrossQ"),
    "recurrent PPO": with_net(ppo(), **RECURRENT, seq_len=7),
    "DRQN": with_net(q_learning("DQN"), **RECURRENT, seq_len=8, burn_in=2),
}


@pytest.mark.parametrize("name", TRAINED)
def test_whatever_learns_from_steps_is_trained(name):
    assert problems(TRAINED[name]) == []


@pytest.mark.parametrize(
    ("raw", "name", "twin"),
    [(ppo(agent__memory=PAST), "PPOSIL", "PPO"),
     (actor_critic(agent__memory=PAST), "SIL", "ActorCritic")],
)  # fmt: skip
def test_what_imitates_whole_episodes_is_refused_with_its_twin_that_does_not(raw, name, twin):
    raw = named(raw, name)
    assert alone(raw) == []
    assert problems(raw) == [
        f"agent.algorithm.name = '{name}': imitates whole past episodes, but the actors of {MODE} "
        f"send unrolls of a fixed length; use {twin}"
    ]


def test_what_learns_nothing_needs_no_learner():
    raw = ppo(agent={"algorithm": {"name": "Random"}})
    assert problems(raw, correction="vtrace", inference="learner") == [
        f"agent.algorithm.name = 'Random': learns nothing, and {MODE} is for a learner; set "
        "distributed to false"
    ]


@pytest.mark.parametrize("memory", ["OnPolicyReplay", "OnPolicyCrossEntropy"])
@pytest.mark.parametrize("make", [reinforce, actor_critic, sarsa])
def test_whole_episodes_do_not_fit_unrolls_of_a_fixed_length(make, memory):
    raw = make(agent__memory={"name": memory})
    assert alone(raw) == []
    assert problems(raw) == [
        f"agent.memory.name = '{memory}': cannot be filled by the actors of {MODE}, which send "
        "unrolls of a fixed length; use OnPolicyBatchReplay, where training_frequency counts "
        "steps"
    ]


def test_a_memory_that_does_not_suit_the_algorithm_at_all_is_told_once():
    (told,) = problems(q_learning("DQN", agent__memory={"name": "OnPolicyReplay"}))
    assert "does not suit DQN" in told
    (told,) = problems(q_learning("DQN", agent__memory=None))
    assert told.startswith("agent.memory: is missing")


@pytest.mark.parametrize(
    ("model", "raw"),
    [
        (PPOSpec, ppo()),
        (ReinforceSpec, reinforce(agent__memory=BATCHES)),
        (DQNSpec, q_learning("DQN")),
    ],
)
def test_an_algorithm_of_another_package_is_trained_as_those_that_it_derives_from(
    parts, model, raw
):
    ALGORITHMS.register("Mine", type("MineSpec", (model,), {}), "nowhere:Mine")
    assert problems(named(raw, "Mine")) == []


@pytest.mark.parametrize(
    ("model", "raw"),
    [(PPOSILSpec, ppo(agent__memory=PAST)), (SILSpec, actor_critic(agent__memory=PAST))],
)
def test_one_that_derives_from_what_imitates_is_refused_under_any_name(parts, model, raw):
    ALGORITHMS.register("Mine", type("MineSpec", (model,), {}), "nowhere:Mine")
    (told,) = problems(named(raw, "Mine"))
    assert told.startswith("agent.algorithm.name = 'Mine': imitates whole past episodes")


@pytest.mark.parametrize("brings_a_model", [False, True])
def test_one_of_which_nobody_knows_what_it_learns_from_is_refused(parts, brings_a_model):
    model = type("MineSpec", (AlgorithmSpec,), {}) if brings_a_model else None
    ALGORITHMS.register("Mine", model, "nowhere:Mine")
    raw = ppo(agent__algorithm={"name": "Mine"})
    assert alone(raw) == []
    (told,) = problems(raw)
    assert told.startswith(f"agent.algorithm.name = 'Mine': {MODE} does not know what it learns")
    assert f", {'MineSpec' if brings_a_model else 'PlugInSpec'}, is none of PPOSpec, " in told


@pytest.mark.parametrize(
    ("model", "raw", "keys"),
    [
        (OnPolicyBatchReplaySpec, ppo(), {}),
        (ReplaySpec, q_learning("DQN"), {"batch_size": 16, "max_size": 200}),
    ],
)
def test_a_memory_of_another_package_is_filled_as_those_that_it_derives_from(
    parts, model, raw, keys
):
    MEMORIES.register("MyMemory", type("MyMemorySpec", (model,), {}), "nowhere:MyMemory")
    raw["agent"]["memory"] = {"name": "MyMemory", **keys}
    assert problems(raw) == []


@pytest.mark.parametrize(
    ("raw", "fitting"),
    [
        (actor_critic(), "OnPolicyBatchReplay, where training_frequency counts steps"),
        (q_learning("DQN"), "Replay, PrioritizedReplay"),
    ],
)
def test_one_of_which_nobody_knows_how_it_is_filled_is_refused(parts, raw, fitting):
    MEMORIES.register("MyMemory", type("MyMemorySpec", (MemorySpec,), {}), "nowhere:MyMemory")
    raw["agent"]["memory"] = {"name": "MyMemory"}
    assert alone(raw) == []
    assert problems(raw) == [
        f"agent.memory.name = 'MyMemory': cannot be filled by the actors of {MODE}, which send "
        f"unrolls of a fixed length; use {fitting}"
    ]


@pytest.mark.parametrize("correction", ["vtrace", {"name": "vtrace", "c_bar": 2.0}])
@pytest.mark.parametrize("name", TRAINED)
def test_only_where_a_critic_values_states_there_is_something_to_correct(name, correction):
    raw = TRAINED[name]
    algorithm = raw["agent"]["algorithm"]["name"]
    assert problems(raw, correction="none") == []
    told = problems(raw, correction=correction)
    assert told == (
        []
        if algorithm in ("PPO", "ActorCritic")
        else [
            "meta.actor_learner.correction = 'vtrace': corrects the values and the advantages of "
            f'PPO and ActorCritic, and {algorithm} has none; use "none"'
        ]
    )


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({}, 16 * 4),
        ({"learn_queue": 3}, 3 * 16 * 4),
        ({"unroll_length": 5}, 5 * 4),
        ({"unroll_length": 40, "learn_queue": 2}, 2 * 40 * 4),
    ],
)
def test_a_minibatch_is_of_the_unrolls_that_are_learned_from_and_not_of_a_rollout(settings, size):
    assert problems(ppo(agent__algorithm__minibatch_size=size), **settings) == []
    (told,) = problems(ppo(agent__algorithm__minibatch_size=size + 1), **settings)
    factors = f"{settings.get('learn_queue', 1)} × {settings.get('unroll_length', 16)} × 4"
    assert told == (
        f"agent.algorithm.minibatch_size = {size + 1}: must be <= learn_queue × unroll_length × "
        f"num_envs = {factors} = {size}, the frames that one training event learns from"
    )


def test_batches_of_one_sample_are_those_of_the_unrolls_too():
    """Batch normalisation has nothing to normalise by in them."""
    normalised = {"agent__net__batch_norm": True}
    rest_of_one = ppo(**normalised, agent__algorithm__minibatch_size=43)
    assert problems(rest_of_one, unroll_length=11) == []
    (told,) = problems(ppo(**normalised, agent__algorithm__minibatch_size=1))
    assert told.startswith("agent.algorithm.minibatch_size = 1: is one sample")
    single = actor_critic(**normalised, **ONE)
    assert problems(single) == []
    assert problems(single, unroll_length=1, learn_queue=2) == []
    (told,) = problems(single, unroll_length=1)
    assert told.startswith("meta.actor_learner.unroll_length = 1: makes batches of one sample")
    always = actor_critic(**normalised, **ONE, agent__algorithm__training_frequency=1)
    (told,) = problems(always)
    assert told.startswith("agent.algorithm.training_frequency = 1: makes batches of one sample")
    assert problems(always, unroll_length=2) == []


@pytest.mark.parametrize("of_critic", [False, True])
def test_actions_of_a_recurrent_net_are_computed_where_its_state_is(of_critic):
    raw = with_net(ppo(), **RECURRENT)
    if of_critic:
        raw["agent"]["critic_net"] = raw["agent"]["net"]
    assert problems(raw, inference="local") == []
    assert problems(raw, inference="learner") == [
        "meta.actor_learner.inference = 'learner': computes actions from observations alone, and "
        'the state of a RecurrentNet stays with each actor; use "local"'
    ]
    assert problems(raw, inference="learner", serial=True) == []
    assert problems(ppo(), inference="learner") == []


@pytest.mark.parametrize("given", [None, 6])
def test_a_sequence_that_is_replayed_lies_in_one_unroll_of_several_actors(given):
    """The unrolls of a single one go on where the one before ended."""
    length = 8 if given is None else given
    dqn = q_learning("DQN", agent__algorithm__training_start_step=100)

    def of(seq_len):
        raw = with_net(dqn, **RECURRENT, seq_len=seq_len)
        raw["agent"]["memory"] = {**raw["agent"]["memory"], "batch_size": 2 * seq_len}
        return raw

    assert problems(of(length), unroll_length=given) == []
    (told,) = problems(of(length + 1), unroll_length=given)
    value, default = ("null", "means 8 steps here, and ") if given is None else ("6", "")
    assert told == (
        f"meta.actor_learner.unroll_length = {value}: {default}must be >= agent.net.seq_len "
        f"({length + 1}): with several actors these steps must come in one unroll"
    )
    assert problems(of(length + 1), actors=1, unroll_length=given) == []


def test_so_do_the_steps_of_a_return():
    dqn = q_learning("DQN", agent__algorithm__num_step_returns=5)
    assert problems(dqn) == []
    assert problems(dqn, unroll_length=5) == []
    assert problems(dqn, unroll_length=4) == [
        "meta.actor_learner.unroll_length = 4: must be >= agent.algorithm.num_step_returns (5): "
        "with several actors these steps must come in one unroll"
    ]
    assert problems(dqn, actors=1, unroll_length=1) == []


def test_a_rollout_of_any_length_has_sequences_of_a_net_with_a_memory():
    raw = with_net(ppo(agent__algorithm__minibatch_size=8), **RECURRENT, seq_len=16)
    for length in (2, 16, 17):
        assert problems(raw, unroll_length=length) == []


def test_a_ratio_of_the_mode_stands_in_for_when_and_how_often_the_algorithm_trains():
    late = q_learning("DQN", agent__algorithm__training_frequency=2000)
    (told,) = problems(late)
    assert told.startswith("agent.algorithm.training_frequency = 2000: must be <= env.max_frame")
    assert problems(late, train_ratio=0.5) == problems(late, train_ratio=None) == []
    sequences = with_net(
        q_learning("DQN", agent__algorithm__training_start_step=0), **RECURRENT, seq_len=4
    )
    assert problems(sequences) == []
    (told,) = problems(sequences, train_ratio=0.5)
    assert told.startswith("agent.algorithm.training_start_step = 0: must be at least 16")
    assert problems(sequences, train_ratio=None) == [], "it waits for a sequence by itself"


@pytest.mark.parametrize(("ratio", "stands_still"), [("spec", ["2"]), (0.5, ["32"]), (None, [])])
def test_a_doubt_about_targets_counts_the_steps_that_the_learner_makes(ratio, stands_still):
    keys = {"training_batch_iter": 2, "training_frequency": 64, "training_iter": 1}
    raw = named(q_learning("DQN", agent__net__update_frequency=1), "DQN", **keys)
    settings = {"distributed": "actor_learner", "actor_learner": {"train_ratio": ratio}}
    raw["env"]["num_envs"] = 64
    del raw["meta"]["log_frequency"]
    suspicious = parse("s", {**raw, "meta": {**raw["meta"], **settings}}).suspicious
    assert len(suspicious) == len(stands_still)
    for suspicion, steps in zip(suspicious, stands_still, strict=True):
        assert f"for the {steps} gradient steps" in suspicion


@pytest.mark.parametrize("name", TRAINED)
def test_nothing_of_all_this_is_asked_in_another_mode(name):
    raw = TRAINED[name]
    raw = {**raw, "meta": {**raw["meta"], "actor_learner": {
        "unroll_length": 1, "correction": "vtrace", "inference": "learner",
    }}}  # fmt: skip
    assert alone(raw) == []


def on_cluster(**settings):
    return problems(ppo(meta__cluster="auto"), **settings)


def test_actors_may_be_on_the_nodes_of_a_cluster_but_act_and_play_there_by_themselves():
    path = "meta.actor_learner"
    assert on_cluster() == []
    assert on_cluster(serial=True) == [
        f"{path}.serial = true: makes the actors take turns with the learner in one process, which "
        "needs no nodes of meta.cluster; remove one of the two"
    ]
    assert on_cluster(inference="learner") == [
        f"{path}.inference = 'learner': makes each step wait for the learner, which is too slow "
        'from a node of meta.cluster; use "local"'
    ]
