"""What can be trained by actors and one learner, and how the rest is refused."""

import pytest

from slm_lab.core.registry import ALGORITHMS, MEMORIES
from slm_lab.spec.parse import parse
from slm_lab.spec.schema.algorithm import AlgorithmSpec
from slm_lab.spec.schema.memory import MemorySpec, OnPolicyBatchReplaySpec, ReplaySpec
from slm_lab.spec.schema.policy_gradient import (
    PPOSILSpec,
    PPOSpec,
    ReinforceSpec,
    SILSpec,
)
from slm_lab.spec.schema.q_learning import DQNSpec
from tests.support import (
    actor_critic,
    ppo,
    pqn,
    q_learning,
    reinforce,
    sarsa,
    soft,
    vmpo,
)
from tests.unit.spec.problems import assert_lines, assert_problem
from tests.unit.spec.spec_data import changed

MODE = 'distributed "actor_learner"'
PATH = "meta.actor_learner"
BATCHES = {"name": "OnPolicyBatchReplay"}
PAST = {**BATCHES, "sil_replay_name": "Replay", "batch_size": 8, "max_size": 80}
PRIORITIES = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}
KEYS = {"type": "RecurrentNet", "fc_hid_layers": [8], "rnn_hidden_size": 8}


def acting(raw, actors=2, **settings):
    """The spec, trained by this number of actors and a learner."""
    meta = {
        "distributed": "actor_learner",
        "max_session": actors,
        "actor_learner": settings,
    }
    return changed(raw, meta={**raw["meta"], **meta})


def recurrent(raw, **keys):
    net = {
        k: v for k, v in raw["agent"]["net"].items() if k not in ("type", "hid_layers")
    }
    return changed(raw, net={**net, **KEYS, **keys})


def replaying(seq_len):
    raw = q_learning(
        "DQN",
        agent__algorithm__training_start_step=100,
        agent__memory__batch_size=2 * seq_len,
    )
    return recurrent(raw, seq_len=seq_len)


PPO = ppo()
A2C = actor_critic()
DQN = q_learning("DQN")
REINFORCE = reinforce(agent__memory=BATCHES)
IMITATING = {
    "PPO": changed(ppo(agent__memory=PAST), algorithm__name="PPOSIL"),
    "ActorCritic": changed(actor_critic(agent__memory=PAST), algorithm__name="SIL"),
}
TRAINED = {
    "PPO": PPO,
    "ActorCritic": A2C,
    "SARSA": sarsa(),
    "PQN": pqn(),
    "VMPO": vmpo(),
    "Reinforce": REINFORCE,
    **{name: q_learning(name) for name in ("VanillaDQN", "DQN", "DoubleDQN")},
    "DQN by priority": q_learning("DQN", agent__memory=PRIORITIES),
    "SoftActorCritic": soft("SoftActorCritic"),
    "CrossQ": soft("CrossQ"),
    "recurrent PPO": recurrent(PPO, seq_len=7),
    "DRQN": recurrent(DQN, seq_len=8, burn_in=2),
}
WHOLE_EPISODES = [
    make(agent__memory={"name": memory})
    for make in (reinforce, actor_critic, sarsa)
    for memory in ("OnPolicyReplay", "OnPolicyCrossEntropy")
]
RNN = recurrent(PPO)
BOTH_RNN = changed(RNN, critic_net=RNN["agent"]["net"])
NORMALISED = ppo(agent__net__batch_norm=True)
SINGLE = actor_critic(agent__net__batch_norm=True, env__num_envs=1)
EVERY_STEP = changed(SINGLE, algorithm__training_frequency=1)
RETURNS = q_learning("DQN", agent__algorithm__num_step_returns=5)
LATE = q_learning("DQN", agent__algorithm__training_frequency=2000)
AT_ONCE = recurrent(
    q_learning("DQN", agent__algorithm__training_start_step=0), seq_len=4
)
CLUSTER = ppo(meta__cluster="auto")


def minibatch(size):
    return ppo(agent__algorithm__minibatch_size=size)


def too_large(size, factors):
    return (
        f"agent.algorithm.minibatch_size = {size + 1}: must be <= learn_queue × "
        f"unroll_length × num_envs = {factors} = {size}, the frames that one training "
        "event"
    )


ROWS = [
    *((acting(raw), None) for raw in TRAINED.values()),
    *(
        (
            acting(raw),
            f"agent.algorithm.name = …: imitates whole past episodes … use {twin}",
        )
        for twin, raw in IMITATING.items()
    ),
    (
        acting(
            ppo(agent={"algorithm": {"name": "Random"}}),
            correction="vtrace",
            inference="learner",
        ),
        "agent.algorithm.name = 'Random': learns nothing … set distributed to false",
    ),
    # Whole episodes do not fit unrolls of a fixed length.
    *(
        (
            acting(raw),
            f"agent.memory.name = '{raw['agent']['memory']['name']}': cannot be "
            "filled … of a fixed length; use OnPolicyBatchReplay, where "
            "training_frequency counts steps",
        )
        for raw in WHOLE_EPISODES
    ),
    # A memory that does not suit the algorithm at all is reported once.
    (acting(changed(DQN, memory={"name": "OnPolicyReplay"})), "…does not suit DQN"),
    (acting(changed(DQN, memory=None)), "agent.memory: is missing"),
    # A minibatch is part of the unrolls that are learned from, not of a rollout.
    (acting(minibatch(64)), None),
    (acting(minibatch(65)), too_large(64, "1 × 16 × 4")),
    (acting(minibatch(192), learn_queue=3), None),
    (acting(minibatch(193), learn_queue=3), too_large(192, "3 × 16 × 4")),
    (acting(minibatch(20), unroll_length=5), None),
    (acting(minibatch(21), unroll_length=5), too_large(20, "1 × 5 × 4")),
    (acting(minibatch(320), unroll_length=40, learn_queue=2), None),
    (
        acting(minibatch(321), unroll_length=40, learn_queue=2),
        too_large(320, "2 × 40 × 4"),
    ),
    # So are the batches of one sample, which batch normalisation cannot normalise.
    (acting(changed(NORMALISED, algorithm__minibatch_size=43), unroll_length=11), None),
    (
        acting(changed(NORMALISED, algorithm__minibatch_size=1)),
        "agent.algorithm.minibatch_size = 1: is one sample",
    ),
    (acting(SINGLE), None),
    (acting(SINGLE, unroll_length=1, learn_queue=2), None),
    (
        acting(SINGLE, unroll_length=1),
        f"{PATH}.unroll_length = 1: makes batches of one sample",
    ),
    (
        acting(EVERY_STEP),
        "agent.algorithm.training_frequency = 1: makes batches of one sample",
    ),
    (acting(EVERY_STEP, unroll_length=2), None),
    # Actions of a recurrent net are computed where its state is.
    *((acting(raw, inference="local"), None) for raw in (RNN, BOTH_RNN)),
    *(
        (
            acting(raw, inference="learner"),
            f"{PATH}.inference = 'learner': … the state of a RecurrentNet … use "
            '"local"',
        )
        for raw in (RNN, BOTH_RNN)
    ),
    *((acting(raw, inference="learner", serial=True), None) for raw in (RNN, BOTH_RNN)),
    (acting(PPO, inference="learner"), None),
    # A sequence that is replayed lies in one unroll, unless there is a single actor.
    (acting(replaying(8)), None),
    (
        acting(replaying(9)),
        f"{PATH}.unroll_length = null: means 8 steps here, and must be >= "
        "agent.net.seq_len (9)",
    ),
    (acting(replaying(9), actors=1), None),
    (acting(replaying(6), unroll_length=6), None),
    (
        acting(replaying(7), unroll_length=6),
        f"{PATH}.unroll_length = 6: must be >= agent.net.seq_len (7): with several "
        "actors",
    ),
    (acting(replaying(7), actors=1, unroll_length=6), None),
    # So do the steps of a return.
    (acting(RETURNS), None),
    (acting(RETURNS, unroll_length=5), None),
    (
        acting(RETURNS, unroll_length=4),
        f"{PATH}.unroll_length = 4: must be >= agent.algorithm.num_step_returns (5): "
        "with several",
    ),
    (acting(RETURNS, actors=1, unroll_length=1), None),
    # An on-policy net with a memory learns from sequences of any length.
    *(
        (acting(recurrent(minibatch(8), seq_len=16), unroll_length=length), None)
        for length in (2, 16, 17)
    ),
    # A ratio of the mode replaces when and how often the algorithm trains.
    (
        acting(LATE),
        "agent.algorithm.training_frequency = 2000: must be <= env.max_frame",
    ),
    (acting(LATE, train_ratio=0.5), None),
    (acting(LATE, train_ratio=None), None),
    (acting(AT_ONCE), None),
    (
        acting(AT_ONCE, train_ratio=0.5),
        "agent.algorithm.training_start_step = 0: must be >= seq_len × num_envs",
    ),
    (acting(AT_ONCE, train_ratio=None), None),
    # Actors on a cluster act by themselves.
    (acting(CLUSTER), None),
    (
        acting(CLUSTER, serial=True),
        f"{PATH}.serial = true: … needs no nodes of meta.cluster",
    ),
    (
        acting(CLUSTER, inference="learner"),
        f"{PATH}.inference = 'learner': … use \"local\"",
    ),
]


@pytest.mark.parametrize(("raw", "problem"), ROWS)
def test_a_spec_that_actors_and_a_learner_cannot_train_is_refused(raw, problem):
    assert_problem(raw, problem)


@pytest.mark.parametrize(
    "raw", [*TRAINED.values(), *IMITATING.values(), *WHOLE_EPISODES]
)
def test_the_same_specs_are_accepted_in_another_mode(raw):
    settings = {"unroll_length": 1, "correction": "vtrace", "inference": "learner"}
    assert_problem(changed(raw, meta__actor_learner=settings), None)


@pytest.mark.parametrize("correction", ["vtrace", {"name": "vtrace", "c_bar": 2.0}])
@pytest.mark.parametrize("name", TRAINED)
def test_a_correction_needs_a_critic_of_states(name, correction):
    raw = TRAINED[name]
    algorithm = raw["agent"]["algorithm"]["name"]
    refused = (
        f"{PATH}.correction = 'vtrace': corrects the values and the advantages of PPO, "
        f'VMPO and ActorCritic, and {algorithm} has none; use "none"'
    )
    assert_problem(acting(raw, correction="none"), None)
    fits = algorithm in ("PPO", "VMPO", "ActorCritic")
    assert_problem(acting(raw, correction=correction), None if fits else refused)


@pytest.fixture
def register(registries):
    """Registers parts of another package for the length of a test."""

    def add(registry, model, name="Mine"):
        derived = None
        if model is not None:
            derived = type(f"{name}Spec", (model,), {})
        registry.register(name, derived, f"nowhere:{name}")

    return add


@pytest.mark.parametrize(
    ("model", "raw", "problem"),
    [
        (PPOSpec, PPO, None),
        (ReinforceSpec, REINFORCE, None),
        (DQNSpec, DQN, None),
        (
            PPOSILSpec,
            IMITATING["PPO"],
            "agent.algorithm.name = 'Mine': imitates whole past",
        ),
        (
            SILSpec,
            IMITATING["ActorCritic"],
            "agent.algorithm.name = 'Mine': imitates whole past",
        ),
    ],
)
def test_an_algorithm_of_another_package_is_checked_by_its_base_class(
    register, model, raw, problem
):
    register(ALGORITHMS, model)
    assert_problem(acting(changed(raw, algorithm__name="Mine")), problem)


@pytest.mark.parametrize(
    ("model", "name"), [(AlgorithmSpec, "MineSpec"), (None, "PlugInSpec")]
)
def test_an_algorithm_without_a_known_base_class_is_refused(register, model, name):
    register(ALGORITHMS, model)
    raw = ppo(agent__algorithm={"name": "Mine"})
    assert_problem(raw, None)
    unknown = (
        f"agent.algorithm.name = 'Mine': {MODE} does not know what it learns … , "
        f"{name}, is"
    )
    assert_problem(acting(raw), f"{unknown} none of PPOSpec, ")


@pytest.mark.parametrize(
    ("raw", "base", "fitting"),
    [
        (
            A2C,
            OnPolicyBatchReplaySpec,
            "OnPolicyBatchReplay, … where training_frequency counts",
        ),
        (DQN, ReplaySpec, "Replay, PrioritizedReplay"),
    ],
)
def test_a_memory_of_another_package_is_checked_by_its_base_class(
    register, raw, base, fitting
):
    sizes = {"batch_size": 16, "max_size": 200} if base is ReplaySpec else {}
    register(MEMORIES, base)
    assert_problem(acting(changed(raw, memory={"name": "Mine", **sizes})), None)
    register(MEMORIES, MemorySpec, "Unknown")
    unknown = changed(raw, memory={"name": "Unknown"})
    assert_problem(unknown, None)
    refused = (
        f"agent.memory.name = 'Unknown': cannot be filled by the actors of {MODE} … use"
    )
    assert_problem(acting(unknown), f"{refused} {fitting}")


@pytest.mark.parametrize(("ratio", "events"), [("spec", 1), (0.5, 1), (None, 0)])
def test_a_target_network_is_checked_against_the_training_events_of_the_learner(
    ratio, events
):
    raw = q_learning(
        "DQN",
        agent__net__update_frequency=1,
        env__num_envs=64,
        agent__algorithm__training_frequency=64,
        meta__log_frequency=None,
    )
    suspicious = parse("s", acting(raw, train_ratio=ratio)).suspicious
    assert_lines(suspicious, ["…hardly differs from it"] * events)
