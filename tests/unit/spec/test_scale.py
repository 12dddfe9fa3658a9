"""What each of N ranks of an all-reduce training runs of the spec, and what cannot be divided."""

import pytest

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.env.make import make_env
from slm_lab.parallel.hogwild.launch import of_workers
from slm_lab.spec.load import load_spec, parse_spec
from slm_lab.spec.override import variables
from slm_lab.spec.parse import parse
from slm_lab.spec.read import read_file, shipped_files
from slm_lab.spec.role import net_for_role
from slm_lab.spec.scale import scaled
from tests.unit.spec.spec_data import A3C, ALL, DQN, SAC, SIL, changed
from tests.unit.spec.spec_data import PPO as WIDE_PPO

RANKS = 4
RATE = 3e-4


def ranks(raw, scale="linear", count=RANKS, **changes):
    together = {"meta__distributed": "all_reduce", "meta__max_session": count,
                "meta__scale": scale, "meta__max_run": 1}  # fmt: skip
    return changed(raw, **{**together, **changes})


def rank_of(raw, scale="linear", count=RANKS, **changes):
    """The spec as it is given, and as each rank has it."""
    spec = parse_spec("s", ranks(raw, scale, count, **changes))
    return spec, scaled(spec)


def keys_of(spec):
    """{path: value} of algorithm, memory, learning rates, and how the critic's target follows."""
    agent = spec.agent
    found = {f"algorithm.{key}": value for key, value in agent.algorithm}
    found |= {f"memory.{key}": value for key, value in agent.memory or ()}
    for role in ("actor", "critic"):
        args = dict(net_for_role(agent, role).optim_spec.args)
        found |= {f"{role}.{key}": value for key, value in args.items()}
    critic = net_for_role(agent, "critic")
    return found | {key: getattr(critic, key) for key in ("update_frequency", "polyak_coef")}


def differences(before, after):
    """{path: (value in the spec, value in a rank)} of what is not the same."""
    one, other = keys_of(before), keys_of(after)
    assert one.keys() == other.keys()
    return {key: (one[key], other[key]) for key in one if one[key] != other[key]}


def both(rate, count=RANKS):
    return {"actor.lr": (rate, rate * count), "critic.lr": (rate, rate * count)}


PPO = changed(WIDE_PPO, agent__algorithm__minibatch_size=32)
A2C = changed(
    A3C,
    search=None,
    agent__net={"type": "MLPNet", "optim_spec": {"name": "Adam", "lr": RATE}},
    agent__algorithm__training_frequency=8,
)
DSAC = changed(SAC, agent__algorithm__alpha_lr=5e-4, agent__algorithm__training_start_step=1001,
               agent__memory__max_size=100_001)  # fmt: skip
HORIZON = {"algorithm.time_horizon": (32, 8)}
REPLAY_OF_DQN = {"algorithm.training_start_step": (32, 8), "memory.max_size": (10_000, 2_500)}
REPLAY_OF_SAC = {
    "algorithm.training_start_step": (1001, 251),  # rounded up
    "memory.max_size": (100_001, 25_001),
}
ALPHA = {"algorithm.alpha_lr": (5e-4, 2e-3)}
FOUR_STEPS_AT_ONCE = {"polyak_coef": (0.005, 1 - 0.995**4)}
COPIED_AS_OFTEN = {"update_frequency": (1000, 250)}
MORE_BATCHES = {"algorithm.training_batch_iter": (2, 8)}

SCALED = {
    "PPO": (PPO, {
        "linear": {**HORIZON, **both(RATE)},
        "strong": {**HORIZON, "algorithm.minibatch_size": (32, 8)},
        "weak": both(RATE),
    }),
    "ActorCritic": (A2C, {
        "linear": both(RATE),
        "strong": {"algorithm.training_frequency": (8, 2)},
        "weak": both(RATE),
    }),
    "SoftActorCritic": (DSAC, {
        "linear": {**REPLAY_OF_SAC, **ALPHA, **both(1e-3), **FOUR_STEPS_AT_ONCE},
        "strong": {**REPLAY_OF_SAC, "memory.batch_size": (256, 64),
                   "algorithm.training_batch_iter": (1, 4)},
        "weak": {**ALPHA, **both(1e-3)},
    }),
    "DoubleDQN": (DQN, {
        "linear": {**REPLAY_OF_DQN, **both(1e-3), **COPIED_AS_OFTEN},
        "strong": {**REPLAY_OF_DQN, **MORE_BATCHES, **COPIED_AS_OFTEN,
                   "memory.batch_size": (32, 8)},
        "weak": both(1e-3),
    }),
    "PPOSIL": (SIL, {
        "linear": {"algorithm.time_horizon": (256, 64), "memory.max_size": (10_000, 2_500),
                   "actor.lr": (1e-4, 4e-4), "critic.lr": (1e-3, 4e-3)},
        "strong": {"algorithm.time_horizon": (256, 64), "memory.max_size": (10_000, 2_500),
                   "algorithm.minibatch_size": (128, 32), "memory.batch_size": (128, 32)},
        "weak": {"actor.lr": (1e-4, 4e-4), "critic.lr": (1e-3, 4e-3)},
    }),
}  # fmt: skip
CASES = [
    pytest.param(raw, scale, expected, id=f"{name}-{scale}")
    for name, (raw, by_scale) in SCALED.items()
    for scale, expected in by_scale.items()
]


@pytest.mark.parametrize(("raw", "scale", "expected"), CASES)
def test_what_is_divided_and_which_rates_are_larger(raw, scale, expected):
    found = differences(*rank_of(raw, scale))
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key


@pytest.mark.parametrize(("raw", "scale", "expected"), CASES)
def test_rates_may_be_left_as_they_are(raw, scale, expected):
    """Targets then follow per step as they did: a step has the size that it has in one process."""
    of_steps = ("lr",) if scale == "strong" else ("lr", *FOUR_STEPS_AT_ONCE, *COPIED_AS_OFTEN)
    left = {key: value for key, value in expected.items() if not key.endswith(of_steps)}
    assert differences(*rank_of(raw, scale, meta__scale_lr=False)) == left


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("scale", ["linear", "strong", "weak"])
def test_nothing_else_of_the_spec_is_another(name, scale):
    """Of environments and budget least of all: the frames are counted over all ranks."""
    spec, own = rank_of(SCALED[name][0], scale)
    assert own.meta == spec.meta
    assert own.env == spec.env
    assert own.search == spec.search
    same = {"algorithm": None, "memory": None, "net": None, "critic_net": None}
    assert own.agent.model_copy(update=same) == spec.agent.model_copy(update=same)


@pytest.mark.parametrize("scale", ["linear", "strong", "weak"])
def test_what_ranks_run_is_a_valid_spec_of_one_process(scale):
    for raw, _ in SCALED.values():
        _, own = rank_of(raw, scale)
        data = own.to_json()
        data["meta"] |= {"distributed": False}
        assert parse_spec("s", data).agent == own.agent


@pytest.mark.parametrize("scale", ["linear", "strong", "weak"])
@pytest.mark.parametrize("name", ALL)
def test_one_rank_has_the_spec_itself(name, scale):
    spec, own = rank_of(ALL[name], scale, count=1)
    assert own is spec


@pytest.mark.parametrize("mode", [False, "shared", "synced"])
def test_other_modes_have_the_spec_itself(mode):
    raw = changed(
        PPO, meta__distributed=mode, meta__max_session=3, meta__scale="strong",
        agent__algorithm__time_horizon=31,
    )  # fmt: skip
    spec = parse_spec("s", raw)
    assert scaled(spec) is spec


def test_a_random_agent_has_nothing_to_divide():
    spec, own = rank_of(ALL["RANDOM"])
    assert own == spec


@pytest.mark.parametrize("scale", ["linear", "weak"])
def test_the_rates_of_one_role_are_larger_too(scale):
    """Those that are given as `actor_optim_spec` and `critic_optim_spec`, in either block."""
    nets = {
        "agent__net": {"type": "MLPNet", "actor_optim_spec": {"name": "Adam", "lr": 1e-4},
                       "critic_optim_spec": {"name": "Adam", "lr": 3e-4}},
        "agent__critic_net": {"type": "MLPNet",
                              "critic_optim_spec": {"name": "RMSprop", "lr": 2e-4}},
    }  # fmt: skip
    own_net = {"agent__net": nets["agent__net"]}
    for keys, critic in ((own_net, 3e-4), (nets, 2e-4)):
        for raw in (A2C, SAC):
            spec, own = rank_of(raw, scale, **keys)
            rates = {key: value for key, value in differences(spec, own).items() if "lr" in key}
            assert rates["actor.lr"] == pytest.approx((1e-4, 4e-4))
            assert rates["critic.lr"] == pytest.approx((critic, 4 * critic))


def test_an_optimizer_that_is_not_named_has_its_default_rate_many_times():
    _, own = rank_of(A2C, agent__net={"type": "MLPNet"})
    assert net_for_role(own.agent, "actor").optim_spec.args["lr"] == pytest.approx(4e-3)


def test_the_temperature_has_the_rate_of_the_actor_or_its_own_many_times():
    """As it is built: without `alpha_lr` it follows the actor's, which is scaled already."""
    for alpha_lr, expected in ((None, 4e-3), (5e-4, 2e-3)):
        net = {"type": "MLPNet", "hid_layers": [4], "optim_spec": {"name": "Adam", "lr": 1e-3}}
        _, own = rank_of(SAC, agent__algorithm__alpha_lr=alpha_lr, agent__net=net)
        env = make_env(own.env, 0)
        agent = build_agent(
            own.agent, env.observation_space, env.action_space, env.num_envs, AgentSeeds(0, 1, 2)
        )
        env.close()
        rates = {
            name: optimizer.learning_rate.value
            for name, optimizer in agent.learner.train_state.optimizers.items()
        }
        assert rates == pytest.approx({"actor": 4e-3, "critic": 4e-3, "alpha": expected})


SCHEDULES = [
    {"name": "LinearToMin", "frame": 100_000, "min_factor": 0.1},
    {"name": "LinearToZero", "frame": 100_000},
    {"name": "StepLR", "step_size": 1000},
    {"name": "OneCycleLR", "max_lr": 1e-3, "total_steps": 1000},
    {"name": "CyclicLR", "base_lr": 1e-4, "max_lr": 1e-3},
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: each["name"])
def test_a_schedule_of_a_larger_rate_is_larger_all_along(schedule):
    """Whether it is a part of the rate that the optimizer has, or names rates of its own."""
    net = {"type": "MLPNet", "hid_layers": [4], "lr_scheduler_spec": schedule,
           "optim_spec": {"name": "SGD", "lr": 1e-3}}  # fmt: skip
    rates = []
    for spec in rank_of(A2C, agent__net=net):
        env = make_env(spec.env, 0)
        agent = build_agent(
            spec.agent, env.observation_space, env.action_space, env.num_envs, AgentSeeds(0, 1, 2)
        )
        env.close()
        (optimizer, *_) = agent.learner.train_state.optimizers.values()
        of_spec = []
        for frame in (0, 500, 900, 5000):
            optimizer.learning_rate.set_frame(frame)
            of_spec.append(optimizer.learning_rate.value)
        rates.append(of_spec)
    assert rates[1] == pytest.approx([RANKS * rate for rate in rates[0]])


def test_the_same_updates_are_made_of_as_many_frames_with_an_exact_ratio():
    """A rank makes a quarter of the frames, so it makes four times the steps for each."""
    keys = {"agent__algorithm__update_to_data": 0.5, "agent__algorithm__training_iter": 1}
    found = differences(*rank_of(DSAC, "strong", **keys))
    assert found["algorithm.update_to_data"] == (0.5, 2.0)
    assert "algorithm.training_batch_iter" not in found
    assert "algorithm.update_to_data" not in differences(*rank_of(DSAC, "linear", **keys))


AT_ONCE = 1 - 0.99**RANKS
POLYAK = {"update_type": "polyak", "polyak_coef": 0.01}
FOLLOWERS = [
    # a net's keys; those of the critic with "linear", and with "strong"
    (POLYAK, (1, AT_ONCE), (1, 0.01)),
    ({**POLYAK, "update_frequency": 4}, (4, AT_ONCE), (4, AT_ONCE)),
    ({"update_type": "polyak", "polyak_coef": 1.0}, (1, 1.0), (1, 1.0)),
    ({"update_type": "replace", "update_frequency": 4}, (1, 0.0), (1, 0.0)),
    ({"update_type": "replace", "update_frequency": 1}, (1, 0.0), (1, 0.0)),
    ({"update_frequency": 100, "critic_update_frequency": 10}, (3, 0.0), (3, 0.0)),
    ({**POLYAK, "critic_update_frequency": 100}, (100, AT_ONCE), (100, AT_ONCE)),
    ({**POLYAK, "update_frequency": 100, "critic_update_frequency": 1}, (1, AT_ONCE), (1, 0.01)),
    ({**POLYAK, "polyak_coef": 0.5, "critic_polyak_coef": 0.01}, (1, AT_ONCE), (1, 0.01)),
    ({**POLYAK, "critic_update_type": "replace", "critic_update_frequency": 100},
     (25, 0.01), (25, 0.01)),
    ({"update_frequency": 100, "critic_update_type": "polyak", "critic_polyak_coef": 0.01},
     (100, AT_ONCE), (100, AT_ONCE)),
    ({**POLYAK, "actor_update_frequency": 100}, (1, AT_ONCE), (1, 0.01)),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "linear", "strong"), FOLLOWERS)
def test_targets_follow_over_the_frames_of_all_as_over_those_of_one_process(keys, linear, strong):
    """Those of a role that has keys of its own, too."""
    for scale, expected in (("linear", linear), ("strong", strong)):
        _, own = rank_of(SAC, scale, agent__net={"type": "MLPNet", **keys})
        critic = net_for_role(own.agent, "critic")
        assert (critic.update_frequency, critic.polyak_coef) == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["shared", "synced"])
@pytest.mark.parametrize(("keys", "linear", "_"), FOLLOWERS)
def test_targets_of_hogwild_workers_follow_the_steps_of_all(mode, keys, linear, _):
    """As of ranks whose steps are larger; and nothing else of the spec is another."""
    raw = changed(SAC, agent__net={"type": "MLPNet", **keys}, meta__distributed=mode,
                  meta__max_session=RANKS)  # fmt: skip
    spec = parse_spec("s", raw)
    own = scaled(spec)
    critic = net_for_role(own.agent, "critic")
    assert (critic.update_frequency, critic.polyak_coef) == pytest.approx(linear)
    assert own.agent.algorithm == spec.agent.algorithm
    assert own.agent.memory == spec.agent.memory
    assert of_workers(spec, "synced") == own
    alone = parse_spec("s", changed(raw, meta__max_session=1))
    assert scaled(alone) is alone


def messages(raw):
    return [str(problem) for problem in parse("s", raw).problems]


def uneven(path, value, scale, count=RANKS):
    return (
        f"{path} = {value}: must be a multiple of max_session ({count}): each rank of all_reduce "
        f'has its share of it with meta.scale "{scale}"'
    )


def test_what_ranks_cannot_share_evenly_is_refused_word_for_word():
    horizon = {"agent__algorithm__time_horizon": 34}
    told = uneven("agent.algorithm.time_horizon", 34, "linear")
    assert messages(ranks(PPO, **horizon)) == [told]
    assert messages(ranks(PPO, "strong", **horizon, agent__algorithm__minibatch_size=66)) == [
        uneven("agent.algorithm.time_horizon", 34, "strong"),
        uneven("agent.algorithm.minibatch_size", 66, "strong"),
    ]
    assert messages(ranks(PPO, "weak", **horizon)) == []
    assert messages(ranks(DQN, "strong", agent__memory__batch_size=30)) == [
        uneven("agent.memory.batch_size", 30, "strong")
    ]
    assert messages(ranks(DQN, "linear", agent__memory__batch_size=30)) == []
    frequency = {"agent__algorithm__training_frequency": 5}
    assert messages(ranks(A2C, "strong", **frequency)) == [
        uneven("agent.algorithm.training_frequency", 5, "strong")
    ]
    assert messages(ranks(A2C, "linear", **frequency)) == []


def test_one_rank_and_other_modes_need_not_share():
    horizon = {"agent__algorithm__time_horizon": 31, "agent__algorithm__minibatch_size": 31}
    assert messages(ranks(PPO, "strong", count=1, **horizon)) == []
    assert messages(ranks(PPO, "strong", **horizon, meta__distributed=False)) == []


def test_a_minibatch_that_the_rollout_of_a_rank_cannot_fill_becomes_that_rollout():
    """A step then has 4 × 32 samples where one process has 64: twice the rate, not four times."""
    given = {"agent__algorithm__minibatch_size": 64, "env__num_envs": 4}
    assert differences(*rank_of(PPO, **given)) == {
        **HORIZON,
        "algorithm.minibatch_size": (64, 32),
        **{key: (RATE, pytest.approx(2 * RATE)) for key in ("actor.lr", "critic.lr")},
    }
    left = differences(*rank_of(PPO, **given, meta__scale_lr=False))
    assert left == {**HORIZON, "algorithm.minibatch_size": (64, 32)}
    assert "algorithm.minibatch_size" not in differences(*rank_of(PPO, "weak", **given))


def test_where_the_minibatch_is_the_whole_rollout_ranks_take_the_steps_of_one_process():
    whole = {"agent__algorithm__minibatch_size": 128, "env__num_envs": 4}
    assert rank_of(PPO, "linear", **whole)[1].agent == rank_of(PPO, "strong", **whole)[1].agent


def test_a_rank_whose_minibatch_becomes_one_sample_cannot_normalise_it():
    net = {"type": "MLPNet", "batch_norm": True}
    small = {"agent__algorithm__time_horizon": 4, "agent__algorithm__minibatch_size": 4}
    raw = ranks(PPO, **small, env__num_envs=1, agent__net=net)
    assert messages(raw) == [
        "agent.algorithm.minibatch_size = 4: each of 4 ranks of all_reduce has 1 of it with "
        'meta.scale "linear", which is one sample, which batch_norm cannot normalise'
    ]
    assert messages(changed(raw, meta__max_session=2)) == []


DIVISIBLE = [
    (path, name)
    for path in shipped_files()
    for name, spec in read_file(path).items()
    if spec["agent"]["algorithm"]["name"] == "PPO"
    and spec["agent"]["algorithm"]["time_horizon"] % 2 == 0
]


@pytest.mark.parametrize(("path", "name"), DIVISIBLE, ids=lambda part: getattr(part, "stem", part))
def test_one_word_makes_ranks_of_a_shipped_ppo(path, name):
    sets = [f"{key}=x" for key in variables(read_file(path)[name])]
    word = {"meta.distributed": "all_reduce", "meta.max_session": 2, "meta.max_run": 1}
    spec = load_spec(path, name, sets, word)
    own = scaled(spec)
    assert own.agent.algorithm.minibatch_size <= own.agent.algorithm.time_horizon * own.env.num_envs


def test_what_is_wrong_for_one_process_is_told_once():
    """A minibatch that no rollout holds is not told of again for the part of a rank."""
    raw = ranks(PPO, agent__algorithm__minibatch_size=1000)
    assert messages(raw) == [
        "agent.algorithm.minibatch_size = 1000: must be <= time_horizon × num_envs = 32 × 4 = 128, "
        "the frames of one rollout"
    ]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (
            changed(DQN, agent__memory__max_size=100),
            "must be >= 4 × batch_size (32): each rank of all_reduce has its share of it",
        ),
        (
            changed(SIL, agent__memory__max_size=400),
            'each of 4 ranks of all_reduce has 100 of it with meta.scale "linear", which must be '
            ">= batch_size (128)",
        ),
    ],
    ids=["replay", "imitation"],
)
def test_a_replay_memory_of_a_rank_that_holds_no_batch_is_refused(raw, told):
    size = raw["agent"]["memory"]["max_size"]
    (message,) = messages(ranks(raw))
    assert message == f"agent.memory.max_size = {size}: {told}"
    assert messages(ranks(raw, "strong")) == []
    assert messages(ranks(raw, "weak")) == []


def test_a_replay_memory_of_a_rank_that_holds_no_step_is_refused():
    """Of every environment: 16 of them have no row in a share of 12 transitions."""
    raw = changed(DQN, agent__memory__max_size=48, agent__memory__batch_size=8)
    assert messages(raw) == []
    assert messages(ranks(raw)) == [
        "agent.memory.max_size = 48: each of 4 ranks of all_reduce has 12 of it with meta.scale "
        '"linear", which must be >= num_envs × num_step_returns = 16 × 1 = 16, or no n-step return '
        "is ever whole"
    ]


def test_a_batch_of_a_rank_that_the_newest_steps_fill_is_refused():
    raw = changed(DQN, agent__memory__use_cer=True)
    assert messages(ranks(raw)) == []
    assert messages(ranks(raw, "strong")) == [
        "agent.memory.batch_size = 32: each of 4 ranks of all_reduce has 8 of it with meta.scale "
        '"strong", which must be > env.num_envs = 16 with use_cer: the newest step of every '
        "environment is part of each batch, and would fill it"
    ]


def test_a_batch_of_a_rank_that_is_no_whole_sequence_is_refused():
    net = {"type": "RecurrentNet", "cell_type": "GRU", "fc_hid_layers": [], "rnn_hidden_size": 4,
           "seq_len": 16}  # fmt: skip
    raw = changed(
        DQN,
        agent__net=net,
        agent__memory={"name": "Replay", "batch_size": 32, "max_size": 10_000},
        agent__algorithm__training_start_step=2048,
        env={"name": "CartPole-v1", "num_envs": 4, "max_frame": 1e5},
    )
    assert messages(raw) == []
    assert messages(ranks(raw, "strong")) == [
        "agent.memory.batch_size = 32: each of 4 ranks of all_reduce has 8 of it with meta.scale "
        '"strong", which must be a multiple of agent.net.seq_len (16): it counts steps'
    ]


def test_no_rank_is_refused_that_can_train():
    for raw, _ in SCALED.values():
        for scale in ("linear", "strong", "weak"):
            assert messages(ranks(raw, scale)) == []
