"""Periodic resets: when they come, what begins anew, and what stays."""

import copy

import numpy as np
import pytest
import torch

from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.resets import Resets
from slm_lab.agent.build import build_agent
from slm_lab.agent.optim.optimizer import TrainState
from slm_lab.spec.parse import parse as parsed
from slm_lab.testing.play import Play, same, whole
from slm_lab.testing.sessions import run_session, stop_at, vectors
from tests.support import parse, ppo, q_learning, soft
from tests.unit.agent.algorithm.batches import OneBatch
from tests.unit.spec.problems import assert_problem

FREQUENCY = 100
PENDULUM = {"env__name": "Pendulum-v1", "env__max_t": 40}
RESETS = {"agent__algorithm__reset_frequency": FREQUENCY}
SIMBA = {
    "type": "SimBaNet",
    "width": 8,
    "update_type": "polyak",
    "polyak_coef": 0.05,
}
PER = {"name": "PrioritizedReplay", "batch_size": 16, "max_size": 200}
SLOW = {
    "agent__net__optim_spec": {
        "name": "Lookahead",
        "optimizer": "RAdam",
        "lr": 1e-3,
        "k": 3,
    }
}


def resetting(make, name, **keys):
    return parse(make(name, **RESETS, **keys))


LEARNERS = {
    "DQN": resetting(q_learning, "DQN", agent__memory=PER),
    "IQN with noise": resetting(
        q_learning,
        "IQN",
        agent__net__noisy=True,
        agent__algorithm__action_policy="default",
        agent__algorithm__explore_var_spec=None,
    ),
    "SAC": resetting(soft, "SoftActorCritic", **PENDULUM),
    "SAC with spectral norm": resetting(
        soft, "SoftActorCritic", agent__algorithm__spectral_norm=True, **PENDULUM
    ),
    "SAC of SimBa": resetting(soft, "SoftActorCritic", agent__net=SIMBA, **PENDULUM),
    "CrossQ": resetting(soft, "CrossQ", **PENDULUM),
    "REDQ with Lookahead": resetting(soft, "REDQ", **SLOW, **PENDULUM),
    "TD3": resetting(soft, "TD3", **PENDULUM),
}


@pytest.fixture
def trained(request):
    """An agent that has learned until just before its first reset."""
    play = Play(LEARNERS[request.param])
    while play.frame < FREQUENCY:
        play.step()
        play.agent.learn(play.frame)
    assert play.agent.learner.opt_step > 2
    yield play
    play.env.close()


ALL = pytest.mark.parametrize("trained", LEARNERS, indirect=True)


def but_for_rows(raw):
    """The warnings of a spec; small specs of tests write few rows."""
    found = parsed("s", raw).suspicious
    return [line for line in found if not line.startswith("meta.log_frequency")]


def seed_of(init, number):
    """The seed of the weights of reset `number`."""
    return int(np.random.SeedSequence((init, number)).generate_state(1)[0])


def fresh_agent(play, number=1, init=0):
    """An agent with the weights of reset `number`."""
    return build_agent(
        play.spec.agent,
        play.env.layout,
        play.env.action_space,
        play.env.num_envs,
        AgentSeeds(init=seed_of(init, number), action=1, sampling=2),
    )


def of_networks(learner):
    """Weights, statistics and optimizer states of all networks, and their targets."""
    targets = {n: t.target.state_dict() for n, t in learner.target_networks.items()}
    return {"train_state": learner.train_state.state_dict(), "targets": targets}


@ALL
def test_networks_optimizers_and_targets_become_those_of_a_fresh_agent(trained):
    learner = trained.agent.learner
    fresh = fresh_agent(trained).learner
    assert not same(of_networks(learner), of_networks(fresh))
    assert learner.resets.reset(learner.train_state, FREQUENCY + 1)
    learner.weights_replaced()
    assert same(of_networks(learner), of_networks(fresh))
    for flat in learner.flats.values():
        flat.check()


@ALL
def test_a_training_event_after_a_reset_is_that_of_a_fresh_agent(trained):
    """On the same batch, with the same draws: so nothing of before is left."""
    agent = trained.agent
    fresh = fresh_agent(trained).learner
    fresh.load_own_state(agent.learner.own_state())
    fresh.opt_step = agent.learner.opt_step
    batch = copy.deepcopy(agent.memory.sample(trained.frame))
    events = [OneBatch(batch), OneBatch(batch)]
    for event in events:
        event.update_priorities = lambda index, error: None
    agent.learner.learn(events[0], FREQUENCY + 1)
    fresh.resets = None
    fresh.learn(events[1], FREQUENCY + 1)
    assert same(of_networks(agent.learner), of_networks(fresh))


@ALL
def test_the_memory_and_the_generators_stay(trained):
    agent = trained.agent
    memory = whole(agent.memory)
    drawn = agent.learner.own_state()
    counts = agent.learner.opt_step, agent.learner.version
    agent.learner.resets.reset(agent.learner.train_state, FREQUENCY + 1)
    assert same(whole(agent.memory), memory)
    assert same(agent.learner.own_state(), drawn)
    assert (agent.learner.opt_step, agent.learner.version) == counts


def test_moments_are_zero_and_alpha_is_one_after_a_reset():
    play = Play(LEARNERS["SAC"])
    list(play.reports(FREQUENCY // 4))
    learner = play.agent.learner
    moments = [
        tensor
        for optimizer in learner.train_state.optimizers.values()
        for tensor in optimizer.shareable_state().values()
    ]
    log_alpha = learner.flats["alpha"].vector
    assert log_alpha.item() != 0.0
    assert all(tensor.any() for tensor in moments)
    learner.resets.reset(learner.train_state, FREQUENCY + 1)
    assert log_alpha.item() == 0.0
    assert not any(tensor.any() for tensor in moments)
    play.env.close()


class Recorded(TrainState):
    """Keeps what it is asked to load."""

    def __init__(self):
        super().__init__({})
        self.loaded = []

    def load_state_dict(self, state):
        self.loaded.append(state)


class Seeded(TrainState):
    """Networks whose state is the seed of their weights."""

    def __init__(self, seed):
        super().__init__({})
        self.seed = seed

    def state_dict(self):
        return {"seed": self.seed}


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([4, 96, 100], []),
        ([100, 101, 102, 200], [1]),
        ([104, 204, 304, 400], [1, 2, 3]),
        ([99, 350, 351], [3]),
        ([100_000], [999]),
    ],
)
def test_a_reset_comes_with_the_first_event_after_a_multiple_of_the_frequency(
    frames, expected
):
    """Once, whatever the number of multiples since the last event."""
    resets = Resets(100, 7, Seeded)
    train_state = Recorded()
    came = [resets.reset(train_state, frame) for frame in frames]
    seeds = [state["seed"] for state in train_state.loaded]
    assert seeds == [seed_of(7, number) for number in expected]
    assert sum(came) == len(expected)


def test_resets_differ_from_each_other_and_between_sessions():
    play = Play(LEARNERS["DQN"])
    one, two = (fresh_agent(play, number) for number in (1, 2))
    other = fresh_agent(play, number=1, init=1)
    weights = [agent.learner.flats["q"].vector for agent in (one, two, other)]
    weights.append(play.agent.learner.flats["q"].vector)
    for index, vector in enumerate(weights):
        assert not any(torch.equal(vector, later) for later in weights[index + 1 :])
    play.env.close()


def test_a_run_is_that_without_resets_until_the_first_one(tmp_path):
    keys = {"env__max_frame": 240, "meta__log_frequency": 20, **PENDULUM}
    plain = run_session(parse(soft("TD3", **keys)), tmp_path / "plain")
    spec = parse(soft("TD3", **RESETS, **keys))
    reset = run_session(spec, tmp_path / "reset")
    assert reset.agent.learner.resets.done == 2
    before = run_session(spec, tmp_path / "before", on_row=stop_at(FREQUENCY))
    twin = parse(soft("TD3", **keys))
    same_time = run_session(twin, tmp_path / "twin", on_row=stop_at(FREQUENCY))
    assert before.agent.learner.opt_step == same_time.agent.learner.opt_step > 0
    for name, vector in vectors(before).items():
        assert torch.equal(vector, vectors(same_time)[name])
        assert not torch.equal(vectors(plain)[name], vectors(reset)[name])


def test_no_reset_comes_at_the_end_of_a_budget_of_whole_periods(tmp_path):
    spec = parse(q_learning("DQN", **RESETS, env__max_frame=3 * FREQUENCY))
    session = run_session(spec, tmp_path)
    assert session.clock.frame == 3 * FREQUENCY
    assert session.agent.learner.resets.done == 2


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (q_learning("DQN", agent__algorithm__reset_frequency=None), None),
        (q_learning("DQN", agent__algorithm__reset_frequency="20%"), None),
        (
            q_learning("DQN", agent__algorithm__reset_frequency=1000),
            "agent.algorithm.reset_frequency = 1000: must be < env.max_frame (1000), "
            "or no reset comes",
        ),
        (
            q_learning("DQN", agent__algorithm__reset_frequency=32),
            "agent.algorithm.reset_frequency = 32: must be > training_start_step …",
        ),
        (
            q_learning("DQN", agent__algorithm__reset_frequency=0),
            "agent.algorithm.reset_frequency = 0: must be >= 1",
        ),
        (
            ppo(agent__algorithm__reset_frequency=100),
            "agent.algorithm.reset_frequency…: unknown key…",
        ),
    ],
)
def test_a_frequency_without_a_useful_reset_is_refused(raw, problem):
    assert_problem(raw, problem)


def test_a_share_of_the_budget_is_frames():
    spec = parse(q_learning("DQN", agent__algorithm__reset_frequency="20%"))
    assert spec.agent.algorithm.reset_frequency == 200


def test_a_best_agent_by_recent_returns_is_suspicious():
    keys = {"agent__algorithm__reset_frequency": FREQUENCY}
    (line,) = but_for_rows(q_learning("DQN", **keys))
    assert line.startswith("agent.algorithm.reset_frequency = 100: soon after a reset")
    assert but_for_rows(q_learning("DQN", **keys, meta__rigorous_eval=2)) == []
