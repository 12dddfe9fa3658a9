"""What every algorithm does, on every kind of action that it can take."""

import functools
import math
from itertools import islice

import numpy as np
import pytest
import torch

from slm_lab.agent.batch import ImitationBatch, Rollout, Transitions, TransitionSource
from slm_lab.core.types import Column
from tests.contract.playing import Play, load_whole, same, saved, whole
from tests.contract.runs import global_generators
from tests.contract.table import ALGORITHM_ROWS, cases
from tests.support import parse

EVERY = pytest.mark.parametrize("case", cases(ALGORITHM_ROWS))
THAT_LEARNS = pytest.mark.parametrize("case", cases(ALGORITHM_ROWS, learning=True))
STEPS = 100
"""Vector steps in which every row learns more than once: 400 frames."""


@pytest.fixture
def row(case):
    name, variant = case
    return ALGORITHM_ROWS[name][variant]


@pytest.fixture
def play(row):
    play = Play(row.spec)
    yield play
    play.env.close()


@EVERY
def test_actions_have_the_shape_of_the_action_space_and_are_accepted(row, play):
    env, space = play.env, play.env.action_space
    for _ in range(20):
        act = play.agent.act(play.obs, play.frame)
        assert act.action.shape == (env.num_envs, *space.shape)
        assert act.action.dtype == space.dtype
        assert act.log_prob.shape == act.value.shape == (env.num_envs,)
        assert act.log_prob.dtype == act.value.dtype == np.float32
        assert np.isfinite(act.action).all()
        assert np.isfinite(act.log_prob).all() == row.learns
        assert np.isfinite(act.value).all() or np.isnan(act.value).all()
        assert act.version == 0
        if row.bounded:
            assert all(action in space for action in act.action)
        play.obs = env.step(act.action).obs


@THAT_LEARNS
def test_acting_greedily_is_repeatable_and_draws_nothing(row, play):
    actor, obs = play.agent.actor, play.obs
    drawn = actor.act(obs, 0).action
    own, global_before = saved(actor.state_dict()), global_generators()
    greedy = actor.act_greedily(obs)
    without_recurrent_state = {
        **actor.state_dict(),
        "recurrent_state": own["recurrent_state"],
    }
    assert same(without_recurrent_state, own)
    actor.load_state_dict(own)
    np.testing.assert_array_equal(actor.act_greedily(obs), greedy)
    assert global_generators() == global_before
    assert greedy.shape == drawn.shape
    assert greedy.dtype == drawn.dtype
    if row.bounded:
        assert all(action in play.env.action_space for action in greedy)
    if own["recurrent_state"] is None:
        assert actor.act_greedily(obs[:1]).shape == greedy[:1].shape


@functools.singledispatch
def check_batch(batch, play):
    """Whether a batch has the shapes that it promises."""
    raise NotImplementedError(type(batch))


@check_batch.register
def _(batch: Rollout, play):
    lead = batch.reward.shape
    assert len(lead) == 2
    assert batch.obs.shape == (*lead, *play.agent.actor.memory_obs(play.obs).shape[1:])
    assert batch.action.shape == (*lead, *play.env.action_space.shape)
    for of_step in (batch.log_prob, batch.value, batch.terminated, batch.truncated):
        assert of_step.shape == lead
    assert batch.terminated.dtype == batch.truncated.dtype == torch.bool
    assert batch.version.shape == lead
    assert (
        batch.bootstrap_t.shape
        == batch.bootstrap_n.shape
        == batch.bootstrap_obs.shape[:1]
    )
    assert batch.bootstrap_obs.shape[1:] == batch.obs.shape[2:]
    # partly of the present policy
    assert (batch.version == play.agent.learner.version).any()


@check_batch.register
def _(batch: TransitionSource, play):
    assert batch.num_batches > 0
    state = saved(whole(play.agent.memory))
    sample: Transitions = batch.sample(play.frame)
    load_whole(play.agent.memory, state)
    size = (play.spec.agent.memory.batch_size,)
    assert sample.obs.shape == sample.next_obs.shape
    assert sample.obs.shape == (*size, *play.agent.actor.memory_obs(play.obs).shape[1:])
    assert sample.action.shape == (*size, *play.env.action_space.shape)
    weights = [] if sample.weight is None else [sample.weight]
    for of_sample in (sample.reward, sample.discount, sample.index, *weights):
        assert of_sample.shape == size
    for number in (sample.reward, sample.discount, *weights):
        assert number.dtype == torch.float32
    for weight in weights:
        assert weight.min().item() >= 0
        assert 0 < weight.mean().item() <= 1


@check_batch.register
def _(batch: ImitationBatch, play):
    check_batch(batch.rollout, play)


@pytest.mark.parametrize("name", [name for name in ALGORITHM_ROWS if name != "Random"])
def test_an_algorithm_learns_without_looking_ahead(name):
    """A γ of 0, as for bandits."""
    data = next(iter(ALGORITHM_ROWS[name].values())).data
    algorithm = {**data["agent"]["algorithm"], "gamma": 0}
    play = Play(parse({**data, "agent": {**data["agent"], "algorithm": algorithm}}))
    reports = [*islice(play.reports(STEPS), 3)]
    play.env.close()
    assert len(reports) == 3
    assert all(math.isfinite(report["loss"]) for report in reports)


@THAT_LEARNS
def test_learning_changes_every_parameter_and_reports_what_it_promises(
    row, play, monkeypatch
):
    learner, num_batches = play.agent.learner, 0
    learn = learner.learn

    def checked(batch, frame):
        nonlocal num_batches
        num_batches += 1
        check_batch(batch, play)
        return learn(batch, frame)

    monkeypatch.setattr(learner, "learn", checked)
    before = {
        name: [p.detach().clone() for p in flat.views]
        for name, flat in learner.flats.items()
    }
    promised = {m.name if isinstance(m, Column) else m for m in learner.metric_names}
    versions, steps = [learner.version], [learner.opt_step]
    for report in play.reports(STEPS):
        assert promised | {"loss", "grad_norm", "lr"} <= report.keys()
        assert all(math.isfinite(number) for number in report.values()), report
        assert play.agent.actor.version == learner.version
        versions.append(learner.version)
        steps.append(learner.opt_step)
    assert num_batches == len(versions) - 1 > 2
    assert versions == sorted(set(versions))
    assert steps == sorted(set(steps))
    for name, flat in learner.flats.items():
        flat.check()
        for parameter, old in zip(flat.views, before[name], strict=True):
            assert not torch.equal(parameter, old), (
                f"{name}: one of {tuple(old.shape)} never moved"
            )


@EVERY
def test_an_agent_that_was_saved_and_loaded_acts_and_learns_as_before(row, play):
    """Saved in the middle of a run, loaded into an agent with other weights and
    generators."""
    list(play.reports(STEPS // 2 + 3))
    twin = play.fresh_agent(seed=7)
    if row.learns:
        assert not same(whole(twin), whole(play.agent))
    load_whole(twin, saved(whole(play.agent)))
    assert same(whole(twin), whole(play.agent))
    events = 0
    for _ in range(STEPS // 2):
        expected_obs, frame = play.obs, play.frame
        act = twin.act(expected_obs, frame)
        play.step(twin)
        assert same(play.agent.actor.state_dict(), twin.actor.state_dict())
        again = play.agent.act(play.obs, play.frame)
        assert same(again, twin.act(play.obs, play.frame))
        assert act.action.shape == again.action.shape
        report = play.agent.learn(play.frame)
        assert same(report, twin.learn(play.frame))
        events += report is not None
    assert events > 0 or not row.learns
    assert same(whole(twin), whole(play.agent))


@EVERY
def test_episodes_that_are_broken_off_leave_something_to_learn_from(row, play):
    """As after a resume whose environments could not be restored."""
    list(play.reports(7))
    play.agent.break_off(play.obs)
    play.obs = play.env.reset()
    events = sum(1 for _ in play.reports(STEPS))
    assert (events > 0) == row.learns


@EVERY
def test_agents_are_alike_under_one_seed_and_differ_under_another(row, play):
    state = play.agent.state_dict()
    assert same(play.fresh_agent(0).state_dict(), state)
    other = play.fresh_agent(1)
    assert not same(other.state_dict(), state)
    for name, flat in other.learner.flats.items():
        # a temperature, which begins at a value, not by chance
        if flat.vector.numel() == 1:
            continue
        assert not torch.equal(flat.vector, play.agent.learner.flats[name].vector)
