"""What each of N ranks of an all-reduce training runs of the spec, and what cannot be
divided."""

from dataclasses import replace

import pytest

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.build import build_agent
from slm_lab.env.make import make_env
from slm_lab.parallel.hogwild.launch import worker_spec
from slm_lab.spec.load import parse_spec
from slm_lab.spec.modes import ALL_REDUCE
from slm_lab.spec.scale import scaled
from slm_lab.spec.schema.agent import net_for_role
from slm_lab.spec.schema.meta import MetaSpec
from tests.unit.spec.problems import assert_lines, assert_problem, messages
from tests.unit.spec.spec_data import A3C, ALL, DQN, SAC, SIL, changed
from tests.unit.spec.spec_data import PPO as WIDE_PPO

RANKS = 4
SCALES = ["linear", "strong", "weak"]
RATE = 3e-4


def ranks(raw, scale="linear", count=RANKS, **changes):
    together = {
        "meta__distributed": "all_reduce",
        "meta__max_session": count,
        "meta__scale": scale,
        "meta__max_run": 1,
    }
    return changed(raw, **{**together, **changes})


def rank_of(raw, scale="linear", count=RANKS, **changes):
    """The spec as it is given, and as each rank has it."""
    spec = parse_spec("s", ranks(raw, scale, count, **changes))
    return spec, scaled(spec)


def keys_of(spec):
    """{path: value} of algorithm, memory, learning rates, and the critic's target
    updates."""
    agent = spec.agent
    found = {f"algorithm.{key}": value for key, value in agent.algorithm}
    found |= {f"memory.{key}": value for key, value in agent.memory or ()}
    for role in ("actor", "critic"):
        args = dict(net_for_role(agent, role).optim_spec.args)
        found |= {f"{role}.{key}": value for key, value in args.items()}
    critic = net_for_role(agent, "critic")
    return found | {
        key: getattr(critic, key) for key in ("update_frequency", "polyak_coef")
    }


def differences(before, after):
    """{path: (value in the spec, value in a rank)} of what is not the same."""
    one = keys_of(before)
    other = keys_of(after)
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
DSAC = changed(
    SAC,
    agent__algorithm__alpha_lr=5e-4,
    agent__algorithm__training_start_step=1001,
    agent__memory__max_size=100_001,
)
HORIZON = {"algorithm.time_horizon": (32, 8)}
REPLAY_OF_DQN = {
    "algorithm.training_start_step": (32, 8),
    "memory.max_size": (10_000, 2_500),
}
REPLAY_OF_SAC = {
    "algorithm.training_start_step": (1001, 251),  # rounded up
    "memory.max_size": (100_001, 25_001),
}
ALPHA = {"algorithm.alpha_lr": (5e-4, 2e-3)}
FOUR_STEPS_AT_ONCE = {"polyak_coef": (0.005, 1 - 0.995**4)}
COPIED_AS_OFTEN = {"update_frequency": (1000, 250)}
MORE_BATCHES = {"algorithm.training_batch_iter": (2, 8)}

SCALED = {
    "PPO": (
        PPO,
        {
            "linear": {**HORIZON, **both(RATE)},
            "strong": {**HORIZON, "algorithm.minibatch_size": (32, 8)},
            "weak": both(RATE),
        },
    ),
    "ActorCritic": (
        A2C,
        {
            "linear": both(RATE),
            "strong": {"algorithm.training_frequency": (8, 2)},
            "weak": both(RATE),
        },
    ),
    "SoftActorCritic": (
        DSAC,
        {
            "linear": {**REPLAY_OF_SAC, **ALPHA, **both(1e-3), **FOUR_STEPS_AT_ONCE},
            "strong": {
                **REPLAY_OF_SAC,
                "memory.batch_size": (256, 64),
                "algorithm.training_batch_iter": (1, 4),
            },
            "weak": {**ALPHA, **both(1e-3)},
        },
    ),
    "DoubleDQN": (
        DQN,
        {
            "linear": {**REPLAY_OF_DQN, **both(1e-3), **COPIED_AS_OFTEN},
            "strong": {
                **REPLAY_OF_DQN,
                **MORE_BATCHES,
                **COPIED_AS_OFTEN,
                "memory.batch_size": (32, 8),
            },
            "weak": both(1e-3),
        },
    ),
    "PPOSIL": (
        SIL,
        {
            "linear": {
                "algorithm.time_horizon": (256, 64),
                "memory.max_size": (10_000, 2_500),
                "actor.lr": (1e-4, 4e-4),
                "critic.lr": (1e-3, 4e-3),
            },
            "strong": {
                "algorithm.time_horizon": (256, 64),
                "memory.max_size": (10_000, 2_500),
                "algorithm.minibatch_size": (128, 32),
                "memory.batch_size": (128, 32),
            },
            "weak": {"actor.lr": (1e-4, 4e-4), "critic.lr": (1e-3, 4e-3)},
        },
    ),
}
CASES = [
    pytest.param(raw, scale, expected, id=f"{name}-{scale}")
    for name, (raw, by_scale) in SCALED.items()
    for scale, expected in by_scale.items()
]


@pytest.mark.parametrize("scale", SCALES)
def test_ranks_that_step_alone_keep_their_learning_rates(monkeypatch, scale):
    alone = replace(ALL_REDUCE, in_step=False)
    monkeypatch.setattr(MetaSpec, "mode", property(lambda _: alone))
    assert not {"actor.lr", "critic.lr"} & differences(*rank_of(PPO, scale)).keys()


@pytest.mark.parametrize(("raw", "scale", "expected"), CASES)
def test_ranks_divide_the_batch_and_scale_learning_rates(raw, scale, expected):
    found = differences(*rank_of(raw, scale))
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key] == pytest.approx(values), key


@pytest.mark.parametrize(("raw", "scale", "expected"), CASES)
def test_learning_rates_can_be_kept(raw, scale, expected):
    """Target networks then update per step as in one process, since a step has the same
    size."""
    of_steps = (
        ("lr",) if scale == "strong" else ("lr", *FOUR_STEPS_AT_ONCE, *COPIED_AS_OFTEN)
    )
    left = {key: value for key, value in expected.items() if not key.endswith(of_steps)}
    assert differences(*rank_of(raw, scale, meta__scale_lr=False)) == left


@pytest.mark.parametrize(("raw", "scale", "expected"), CASES)
def test_square_root_scaling_changes_the_rates_alone(raw, scale, expected):
    """Four ranks double every rate, also α's. All else is as with rates four times as
    large: target networks too, because a step stands for four steps in both cases."""
    is_rate = {key: key.endswith("lr") and scale != "strong" for key in expected}
    roots = {
        key: (before, before * 2.0) if is_rate[key] else (before, after)
        for key, (before, after) in expected.items()
    }
    scaled_rates = differences(*rank_of(raw, scale, meta__scale_lr="sqrt"))
    assert scaled_rates.keys() == roots.keys()
    for key, values in roots.items():
        assert scaled_rates[key] == pytest.approx(values), key


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("scale", SCALES)
def test_no_other_key_of_the_spec_changes(name, scale):
    """Not even of environments and budget: frames are counted over all ranks."""
    spec, own = rank_of(SCALED[name][0], scale)
    assert own.meta == spec.meta
    assert own.env == spec.env
    assert own.search == spec.search
    same = {"algorithm": None, "memory": None, "net": None, "critic_net": None}
    assert own.agent.model_copy(update=same) == spec.agent.model_copy(update=same)


@pytest.mark.parametrize("scale", SCALES)
def test_ranks_run_a_valid_spec_of_one_process(scale):
    for raw, _ in SCALED.values():
        _, own = rank_of(raw, scale)
        data = own.to_json()
        data["meta"] |= {"distributed": False}
        assert parse_spec("s", data).agent == own.agent


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", ALL)
def test_one_rank_has_the_spec_itself(name, scale):
    spec, own = rank_of(ALL[name], scale, count=1)
    assert own is spec


@pytest.mark.parametrize("mode", [False, "shared", "synced"])
def test_other_modes_have_the_spec_itself(mode):
    raw = changed(
        PPO,
        meta__distributed=mode,
        meta__max_session=3,
        meta__scale="strong",
        agent__algorithm__time_horizon=31,
    )
    spec = parse_spec("s", raw)
    assert scaled(spec) is spec


def test_a_random_agent_has_nothing_to_divide():
    spec, own = rank_of(ALL["RANDOM"])
    assert own == spec


def test_an_optimizer_without_a_rate_gets_its_default_rate_scaled():
    _, own = rank_of(A2C, agent__net={"type": "MLPNet"})
    assert net_for_role(own.agent, "actor").optim_spec.args["lr"] == pytest.approx(4e-3)


def test_the_temperature_rate_is_scaled_whether_its_own_or_the_actors():
    """As it is built: without `alpha_lr` it follows the actor's, which is scaled
    already."""
    for alpha_lr, expected in ((None, 4e-3), (5e-4, 2e-3)):
        net = {
            "type": "MLPNet",
            "hid_layers": [4],
            "optim_spec": {"name": "Adam", "lr": 1e-3},
        }
        _, own = rank_of(SAC, agent__algorithm__alpha_lr=alpha_lr, agent__net=net)
        rates = {
            name: each.learning_rate.value for name, each in optimizers_of(own).items()
        }
        assert rates == pytest.approx(
            {"actor": 4e-3, "critic": 4e-3, "alpha": expected}
        )


def optimizers_of(spec):
    """The optimizers of an agent that is built from the spec, by name."""
    env = make_env(spec.env, 0)
    spaces = env.layout, env.action_space
    agent = build_agent(spec.agent, *spaces, env.num_envs, AgentSeeds(0, 1, 2))
    env.close()
    return agent.learner.train_state.optimizers


SCHEDULES = [
    {"name": "LinearToMin", "frame": 100_000, "min_factor": 0.1},
    {"name": "LinearToZero", "frame": 100_000},
    {"name": "StepLR", "step_size": 1000},
    {"name": "OneCycleLR", "max_lr": 1e-3, "total_steps": 1000},
    {"name": "CyclicLR", "base_lr": 1e-4, "max_lr": 1e-3},
]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda each: each["name"])
def test_a_schedule_is_scaled_at_every_frame(schedule):
    """Whether it scales the rate of the optimizer, or names absolute rates."""
    net = {
        "type": "MLPNet",
        "hid_layers": [4],
        "lr_scheduler_spec": schedule,
        "optim_spec": {"name": "SGD", "lr": 1e-3},
    }
    rates = []
    for spec in rank_of(A2C, agent__net=net):
        (optimizer, *_) = optimizers_of(spec).values()
        of_spec = []
        for frame in (0, 500, 900, 5000):
            optimizer.learning_rate.set_frame(frame)
            of_spec.append(optimizer.learning_rate.value)
        rates.append(of_spec)
    assert rates[1] == pytest.approx([RANKS * rate for rate in rates[0]])


def test_an_exact_ratio_keeps_the_number_of_updates_per_frame():
    """A rank makes a quarter of the frames, so it makes four times the steps for
    each."""
    keys = {
        "agent__algorithm__update_to_data": 0.5,
        "agent__algorithm__training_iter": 1,
    }
    found = differences(*rank_of(DSAC, "strong", **keys))
    assert found["algorithm.update_to_data"] == (0.5, 2.0)
    assert "algorithm.training_batch_iter" not in found
    assert "algorithm.update_to_data" not in differences(
        *rank_of(DSAC, "linear", **keys)
    )


AT_ONCE = 1 - 0.99**RANKS
POLYAK = {"update_type": "polyak", "polyak_coef": 0.01}
TARGET_UPDATES = [
    # a net's keys; those of the critic with "linear", and with "strong"
    (POLYAK, (1, AT_ONCE), (1, 0.01)),
    ({**POLYAK, "update_frequency": 4}, (4, AT_ONCE), (4, AT_ONCE)),
    ({"update_type": "polyak", "polyak_coef": 1.0}, (1, 1.0), (1, 1.0)),
    ({"update_type": "replace", "update_frequency": 4}, (1, 0.0), (1, 0.0)),
    ({"update_type": "replace", "update_frequency": 1}, (1, 0.0), (1, 0.0)),
    ({"update_frequency": 100, "critic_update_frequency": 10}, (3, 0.0), (3, 0.0)),
    ({**POLYAK, "critic_update_frequency": 100}, (100, AT_ONCE), (100, AT_ONCE)),
    (
        {**POLYAK, "update_frequency": 100, "critic_update_frequency": 1},
        (1, AT_ONCE),
        (1, 0.01),
    ),
    (
        {**POLYAK, "polyak_coef": 0.5, "critic_polyak_coef": 0.01},
        (1, AT_ONCE),
        (1, 0.01),
    ),
    (
        {**POLYAK, "critic_update_type": "replace", "critic_update_frequency": 100},
        (25, 0.01),
        (25, 0.01),
    ),
    (
        {
            "update_frequency": 100,
            "critic_update_type": "polyak",
            "critic_polyak_coef": 0.01,
        },
        (100, AT_ONCE),
        (100, AT_ONCE),
    ),
    ({**POLYAK, "actor_update_frequency": 100}, (1, AT_ONCE), (1, 0.01)),
]


@pytest.mark.parametrize(("keys", "linear", "strong"), TARGET_UPDATES)
def test_target_networks_of_ranks_update_over_the_frames_of_all_ranks(
    keys, linear, strong
):
    """Also those of a role with separate keys."""
    for scale, expected in (("linear", linear), ("strong", strong)):
        _, own = rank_of(SAC, scale, agent__net={"type": "MLPNet", **keys})
        critic = net_for_role(own.agent, "critic")
        assert (critic.update_frequency, critic.polyak_coef) == pytest.approx(expected)


@pytest.mark.parametrize("mode", ["shared", "synced"])
@pytest.mark.parametrize(("keys", "linear", "_"), TARGET_UPDATES)
def test_target_networks_of_hogwild_workers_count_the_steps_of_all(
    mode, keys, linear, _
):
    """As of ranks whose steps are larger; and nothing else of the spec is another."""
    raw = changed(
        SAC,
        agent__net={"type": "MLPNet", **keys},
        meta__distributed=mode,
        meta__max_session=RANKS,
    )
    spec = parse_spec("s", raw)
    own = scaled(spec)
    critic = net_for_role(own.agent, "critic")
    assert (critic.update_frequency, critic.polyak_coef) == pytest.approx(linear)
    assert own.agent.algorithm == spec.agent.algorithm
    assert own.agent.memory == spec.agent.memory
    assert worker_spec(spec, "synced") == own
    alone = parse_spec("s", changed(raw, meta__max_session=1))
    assert scaled(alone) is alone


def sizes(horizon, minibatch=32):
    return {"algorithm.time_horizon": horizon, "algorithm.minibatch_size": minibatch}


HORIZON_34 = "agent.algorithm.time_horizon = 34: must be a multiple of max_session (4)"
SMALL_BATCH = {"memory.batch_size": 30}
ONE_SAMPLE = {
    **sizes(4, 4),
    "env.num_envs": 1,
    "net": {"type": "MLPNet", "batch_norm": True},
}
RECURRENT = {
    "net": {
        "type": "RecurrentNet",
        "cell_type": "GRU",
        "fc_hid_layers": [],
        "rnn_hidden_size": 4,
        "seq_len": 16,
    },
    "memory": {"name": "Replay", "batch_size": 32, "max_size": 10_000},
    "algorithm.training_start_step": 2048,
    "env": {"name": "CartPole-v1", "num_envs": 4, "max_frame": 1e5},
}
# (spec, changes, problems with "linear", problems with "strong"); "weak", and one
# process, have none.
REFUSED = [
    # What ranks cannot share evenly.
    (PPO, sizes(34), [HORIZON_34], [HORIZON_34]),
    (
        PPO,
        sizes(34, 66),
        [HORIZON_34],
        [HORIZON_34, "agent.algorithm.minibatch_size = 66: must be a multiple"],
    ),
    (DQN, SMALL_BATCH, [], ["agent.memory.batch_size = 30: must be a multiple"]),
    (
        A2C,
        {"algorithm.training_frequency": 5},
        [],
        ["agent.algorithm.training_frequency = 5: must be a multiple"],
    ),
    # A minibatch that becomes one sample cannot be normalised.
    (PPO, ONE_SAMPLE, *[["agent.algorithm.minibatch_size = 4: … 1 … one sample"]] * 2),
    # The replay memory of a rank holds a batch, and a step of every environment.
    (
        DQN,
        {"memory.max_size": 100},
        ["agent.memory.max_size = 100: … 25 … must be >= batch_size (32)"],
        [],
    ),
    (
        SIL,
        {"memory.max_size": 400},
        ["agent.memory.max_size = 400: … 100 … must be >= batch_size (128)"],
        [],
    ),
    (
        DQN,
        {"memory.max_size": 48, "memory.batch_size": 8},
        *[["agent.memory.max_size = 48: … 12 … must be >= … 16 × 1 = 16"]] * 2,
    ),
    # The newest steps do not fill a batch, and a batch has whole sequences.
    (
        DQN,
        {"memory.use_cer": True},
        [],
        ["agent.memory.batch_size = 32: … 8 … must be > env.num_envs (16)"],
    ),
    (
        DQN,
        RECURRENT,
        [],
        ["agent.memory.batch_size = 32: … 8 … a multiple of agent.net.seq_len (16)"],
    ),
    *((raw, {}, [], []) for raw, _ in SCALED.values()),
]


@pytest.mark.parametrize(("base", "changes", "linear", "strong"), REFUSED)
def test_a_spec_that_ranks_cannot_divide_is_refused(base, changes, linear, strong):
    raw = changed(base, changes)
    assert_problem(changed(raw, meta__distributed=False, meta__max_run=1), None)
    for scale, problems in (("linear", linear), ("strong", strong), ("weak", [])):
        assert_problem(ranks(raw, scale, count=1), None)
        assert_lines(messages(ranks(raw, scale)), problems)


def test_a_problem_of_one_process_is_reported_once():
    """A minibatch that no rollout holds is not reported again for the part of a
    rank."""
    raw = ranks(PPO, agent__algorithm__minibatch_size=1000)
    rollout = "time_horizon × num_envs = 32 × 4 = 128, the frames of one rollout"
    assert_problem(raw, f"agent.algorithm.minibatch_size = 1000: must be <= {rollout}")


def test_a_minibatch_that_the_rollout_of_a_rank_cannot_fill_becomes_that_rollout():
    """A step then has 4 × 32 samples where one process has 64: twice the rate, not four
    times."""
    given = {"agent__algorithm__minibatch_size": 64, "env__num_envs": 4}
    assert differences(*rank_of(PPO, **given)) == {
        **HORIZON,
        "algorithm.minibatch_size": (64, 32),
        **{key: (RATE, pytest.approx(2 * RATE)) for key in ("actor.lr", "critic.lr")},
    }
    roots = differences(*rank_of(PPO, **given, meta__scale_lr="sqrt"))
    assert roots["actor.lr"] == (RATE, pytest.approx(2**0.5 * RATE))
    left = differences(*rank_of(PPO, **given, meta__scale_lr=False))
    assert left == {**HORIZON, "algorithm.minibatch_size": (64, 32)}
    assert "algorithm.minibatch_size" not in differences(*rank_of(PPO, "weak", **given))


def test_where_the_minibatch_is_the_whole_rollout_ranks_take_the_steps_of_one_process():
    whole = {"agent__algorithm__minibatch_size": 128, "env__num_envs": 4}
    assert (
        rank_of(PPO, "linear", **whole)[1].agent
        == rank_of(PPO, "strong", **whole)[1].agent
    )
