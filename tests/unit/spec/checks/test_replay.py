"""What has to fit between an algorithm that replays, its memory and its
environments."""

import pytest

from slm_lab.spec.budget import dev_profile
from slm_lab.spec.load import parse_spec
from tests.support import actor_critic, ppo, q_learning, soft
from tests.unit.spec.problems import assert_problem
from tests.unit.spec.spec_data import changed

DQN = changed(
    q_learning("DQN"),
    {"algorithm.training_iter": 1, "algorithm.training_batch_iter": 1},
)
SAC = soft("SoftActorCritic")
SIL = changed(
    actor_critic(), {"algorithm.name": "SIL", "memory.sil_replay_name": "Replay"}
)
PPOSIL = changed(
    ppo(), {"algorithm.name": "PPOSIL", "memory.sil_replay_name": "Replay"}
)
EXACT = {"algorithm.update_to_data": 0.5}
BOUNDS = {"algorithm.log_alpha_min": -1.0}


def sizes(max_size, num_envs, num_steps):
    return {
        "memory.max_size": max_size,
        "memory.batch_size": 1,
        "env.num_envs": num_envs,
        "algorithm.num_step_returns": num_steps,
    }


def newest(batch_size, num_envs):
    return {
        "memory.use_cer": True,
        "memory.batch_size": batch_size,
        "env.num_envs": num_envs,
    }


def batch(batch_size, max_size):
    return {"memory.batch_size": batch_size, "memory.max_size": max_size}


def beta(start, *end):
    keys = ("start_val", "end_val", "end_step")
    schedule = dict(zip(keys, (start, *end), strict=False))
    block = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}
    name = {"name": "linear_decay"} if end else {}
    return {"memory": {**block, "beta": {**name, **schedule}}}


FULL = "agent.memory.max_size = 63: must be >= batch_size (64)"
LATE = "env.max_frame (1000), or the run ends before anything is learned"
ROWS = [
    # A memory holds all steps of a return of every environment.
    (DQN, sizes(1, 1, 1), None),
    (DQN, sizes(4, 4, 1), None),
    (DQN, sizes(3, 4, 1), "agent.memory.max_size = 3: must be >= num_envs … 4 × 1 = 4"),
    (DQN, sizes(5, 1, 5), None),
    (DQN, sizes(4, 1, 5), "agent.memory.max_size = 4: must be >= num_envs … 1 × 5 = 5"),
    (DQN, sizes(24, 8, 3), None),
    (
        DQN,
        sizes(23, 8, 3),
        "agent.memory.max_size = 23: must be >= num_envs … 8 × 3 = 24",
    ),
    # The newest steps leave room for older ones in a batch.
    (DQN, newest(2, 1), None),
    (DQN, newest(1, 1), "agent.memory.batch_size = 1: must be > env.num_envs"),
    (DQN, newest(5, 4), None),
    (DQN, newest(4, 4), "agent.memory.batch_size = 4: must be > env.num_envs"),
    # An exact ratio leaves no other number of gradient steps.
    (DQN, EXACT, None),
    (DQN, {"algorithm.training_iter": 3}, None),
    (
        DQN,
        {**EXACT, "algorithm.training_iter": 3},
        "agent.algorithm.training_iter = 3: must be 1 with update_to_data",
    ),
    (
        DQN,
        {**EXACT, "algorithm.training_batch_iter": 3},
        "agent.algorithm.training_batch_iter = 3: must be 1 with update_to_data",
    ),
    (DQN, {"algorithm.update_to_data": 1000}, None),
    (DQN, {"algorithm.update_to_data": 1001}, "…: must be <= 1000"),
    # NumPy prepares observations on the CPU, if at all.
    (DQN, {"memory.storage": "device", "env.normalize_reward": True}, None),
    (
        DQN,
        {"memory.storage": "device", "env.normalize_obs": True},
        "agent.memory.storage = 'device': env.normalize_obs prepares … use \"memory\"",
    ),
    # Learning begins before the run ends.
    (DQN, {"algorithm.training_start_step": 999}, None),
    (
        DQN,
        {"algorithm.training_start_step": 1000},
        f"agent.algorithm.training_start_step = 1000: must be < {LATE}",
    ),
    (DQN, {"algorithm.training_frequency": 1000}, None),
    (
        DQN,
        {"algorithm.training_frequency": 1001},
        f"agent.algorithm.training_frequency = 1001: must be <= {LATE}",
    ),
    # The correction of priorities is between none and whole.
    (DQN, beta(1.0), None),
    (DQN, beta(1.1), "agent.memory.beta.start_val = … must be in [0, 1]"),
    (DQN, beta(-0.1), "agent.memory.beta.start_val = … must be in [0, 1]"),
    (DQN, beta(0.4, 1.0, 9), None),
    (DQN, beta(0.4, 1.5, 9), "agent.memory.beta.end_val = … must be in [0, 1]"),
    # A memory holds a batch, that of self-imitation too.
    *((raw, batch(64, 64), None) for raw in (DQN, SIL, PPOSIL)),
    *((raw, batch(64, 63), FULL) for raw in (DQN, SIL, PPOSIL)),
    # The bounds of the temperature are logarithms in order.
    (SAC, {"algorithm.log_alpha_min": -5.0, "algorithm.log_alpha_max": 0.5}, None),
    (SAC, {"algorithm.log_alpha_min": 0.0}, None),
    (SAC, {**BOUNDS, "algorithm.log_alpha_max": -0.5}, None),
    (
        SAC,
        {"algorithm.log_alpha_min": 0.01},
        "agent.algorithm.log_alpha_min = 0.01: must be <= 0: it is ln α",
    ),
    (
        SAC,
        {**BOUNDS, "algorithm.log_alpha_max": -1.0},
        "agent.algorithm.log_alpha_max = -1.0: must be > log",
    ),
    (
        SAC,
        {**BOUNDS, "algorithm.log_alpha_max": -2.0},
        "agent.algorithm.log_alpha_max = -2.0: must be > log",
    ),
]


@pytest.mark.parametrize(("base", "changes", "problem"), ROWS)
def test_replay_fits_its_memory_and_the_budget(base, changes, problem):
    assert_problem(changed(base, changes), problem)


@pytest.mark.parametrize(
    ("start", "max_frame"), [(0, 10), (900, 1000), (99_999, 100_000), (5000, 1e6)]
)
@pytest.mark.parametrize("num_envs", [1, 16])
def test_a_spec_made_short_still_learns_and_loads_again(start, max_frame, num_envs):
    raw = q_learning(
        "DQN",
        agent__algorithm__training_start_step=start,
        agent__algorithm__training_frequency=4,
        env__num_envs=num_envs,
        env__max_frame=max_frame,
    )
    short = dev_profile(parse_spec("s", raw))
    assert start < short.env.max_frame <= start + 2000
    assert parse_spec("s", short.to_json()) == short
