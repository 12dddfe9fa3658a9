"""ActorCritic and PPO with V-trace: plain steps on fresh rollouts, corrected ones on
stale."""

import pytest
import torch
from torch.testing import assert_close

from slm_lab.agent.agent import LearningAgent
from slm_lab.agent.algorithm.algorithm import AgentSeeds
from slm_lab.agent.algorithm.correction import Estimates, VTrace
from slm_lab.agent.algorithm.returns import vtrace
from slm_lab.agent.batch import Rollout
from slm_lab.agent.build import build_agent
from slm_lab.agent.recurrent_state import flatten_obs, flatten_steps
from slm_lab.testing.play import Play, same
from tests.contract.table import GENTLE, NORM_LAYERS, RECURRENT, TWO_ACTIONS, net
from tests.support import actor_critic, parse, ppo

LAM_ONE = {"agent__algorithm__lam": 1.0}
RECALLING = net("RecurrentNet", RECURRENT, optim_spec=GENTLE["agent__net__optim_spec"])
UNEVEN = {"agent__algorithm__minibatch_size": 24}

ALIKE = {
    "a2c": actor_critic(**LAM_ONE, **GENTLE),
    "a2c_plain_returns": actor_critic(agent__algorithm__lam=None, **GENTLE),
    "a2c_n_steps": actor_critic(
        agent__algorithm__lam=None, agent__algorithm__num_step_returns=3, **GENTLE
    ),
    "a2c_recurrent": actor_critic(
        **LAM_ONE, **RECALLING, agent__algorithm__training_frequency=11
    ),
    "a2c_norm_layers": actor_critic(
        **LAM_ONE, **NORM_LAYERS, agent__algorithm__normalize_v_targets=True
    ),
    "a2c_shared": actor_critic(
        **LAM_ONE,
        **NORM_LAYERS,
        agent__net__shared=True,
        agent__algorithm__normalize_v_targets=True,
    ),
    "ppo": ppo(**LAM_ONE, **GENTLE, **UNEVEN),
    "ppo_continuous": ppo(**LAM_ONE, **GENTLE, **TWO_ACTIONS),
    "ppo_recurrent": ppo(**LAM_ONE, **RECALLING, **UNEVEN),
    "ppo_norm_layers": ppo(**LAM_ONE, **NORM_LAYERS, agent__net__shared=True),
    "ppo_percentile_symlog": ppo(
        **LAM_ONE,
        **GENTLE,
        agent__algorithm__normalize_advantages="percentile",
        agent__algorithm__symlog=True,
    ),
    "ppo_normalized_targets": ppo(
        **LAM_ONE,
        **GENTLE,
        agent__algorithm__normalize_v_targets=True,
        agent__algorithm__clip_vloss=True,
    ),
}
"""Specs whose advantages V-trace estimates as they do themselves."""


def corrected(play: Play, bounds: VTrace) -> LearningAgent:
    """An agent with the weights of the acting one, which applies the correction."""
    spec = play.spec.agent
    env = play.env
    seeds = AgentSeeds(init=0, action=100, sampling=200)
    spaces = env.layout, env.action_space
    agent = build_agent(spec, *spaces, env.num_envs, seeds, correction=bounds)
    agent.learner.load_state_dict(play.agent.learner.state_dict())
    return agent


def rollouts(play: Play, at_least: int, steps: int = 200) -> list[Rollout]:
    """What was done until some rollout has an episode's end, copied from the memory."""
    memory = play.agent.memory
    taken = []
    for _ in range(steps):
        play.step()
        if memory.ready():
            rollout = memory.take()
            copied = Rollout(**{name: t.clone() for name, t in vars(rollout).items()})
            taken.append(play.agent.learner.network.valued(copied))
            if len(taken) >= at_least and taken[-1].done.any():
                return taken
    raise AssertionError("no episode ended")


@torch.no_grad()
def estimates(agent: LearningAgent, rollout: Rollout) -> Estimates:
    recurrent = agent.learner.network.recurrent
    rows = flatten_obs(rollout.obs, recurrent), flatten_steps(rollout.action, recurrent)
    return agent.learner._estimates(rollout, *rows)


def parameters(agent: LearningAgent) -> torch.Tensor:
    return torch.cat([flat.vector for flat in agent.learner.flats.values()])


@pytest.mark.parametrize("name", ALIKE)
def test_of_a_fresh_rollout_a_correction_makes_the_same_step(name):
    play = Play(parse(ALIKE[name]))
    list(play.reports(60))  # statistics and momentum have begun
    agent = corrected(play, VTrace())
    rollout = rollouts(play, 1)[-1]
    before = parameters(agent).clone()
    report = agent.learner.learn(rollout, play.frame)
    expected = play.agent.learner.learn(rollout, play.frame)
    assert report == pytest.approx(expected, rel=2e-3, abs=2e-5, nan_ok=True)
    moved = parameters(play.agent) - before
    assert moved.abs().max() > 1e-4
    assert_close(parameters(agent) - before, moved, rtol=1e-2, atol=1e-5)
    play.env.close()


def stale(play: Play, agent: LearningAgent) -> Rollout:
    """A rollout of a policy far from the one that `agent` has now."""
    rollout = rollouts(play, 2)[-1]
    generator = torch.Generator().manual_seed(0)
    for flat in agent.learner.flats.values():
        flat.vector += 0.3 * torch.randn(flat.vector.shape, generator=generator)
    return rollout


def traced_by_hand(
    agent: LearningAgent, rollout: Rollout, trace_lambda: float, bounds: VTrace
):
    """V-trace with each state's value from a separate forward pass, as an actor
    computes it."""
    network = agent.learner.network
    family = agent.learner.family
    steps, num_envs = rollout.reward.shape
    log_prob = torch.zeros(steps, num_envs)
    value = torch.zeros(steps, num_envs)
    next_value = torch.full((steps, num_envs), float("nan"))
    with torch.no_grad():
        for t in range(steps):
            params, raw_value = network.forward(rollout.obs[t])
            log_prob[t] = family(params).log_prob(rollout.action[t])
            value[t] = network.transform.decode(raw_value)
        after = network.value(rollout.bootstrap_obs)
    next_value[:-1] = value[1:]
    next_value[rollout.terminated] = float("nan")
    places = zip(
        rollout.bootstrap_t.tolist(), rollout.bootstrap_n.tolist(), strict=True
    )
    for (t, n), v in zip(places, after.tolist(), strict=True):
        next_value[t, n] = v
    log_ratio = log_prob - rollout.log_prob
    assert (log_ratio > 0.2).any()
    assert (log_ratio < -0.2).any()
    ends = rollout.terminated, rollout.done
    given = log_ratio, rollout.reward, value, next_value, *ends
    traced = vtrace(*given, 0.99, trace_lambda, bounds.rho_bar, bounds.c_bar)
    return log_prob, value, traced


BOUNDS = [VTrace(), VTrace(rho_bar=2.0, c_bar=0.7)]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("lam", [0.8, None])
def test_actor_critic_follows_the_gradient_of_v_trace_where_its_policy_has_moved(
    bounds, lam
):
    play = Play(parse(actor_critic(agent__algorithm__lam=lam, env__max_t=15)))
    agent = corrected(play, bounds)
    rollout = stale(play, agent)
    trace_lambda = lam
    if trace_lambda is None:
        trace_lambda = 1.0
    log_prob, value, traced = traced_by_hand(agent, rollout, trace_lambda, bounds)
    policy_loss = -(log_prob * traced.rho * traced.advantage).mean()
    value_loss = (traced.returns - value).square().mean()
    variance = 1 - (traced.returns - value).var() / traced.returns.var()

    play.agent.learner.load_state_dict(agent.learner.state_dict())
    report = agent.learner.learn(rollout, 0)
    uncorrected = play.agent.learner.learn(rollout, 0)

    assert report["policy_loss"] == pytest.approx(policy_loss.item(), rel=1e-3)
    assert report["value_loss"] == pytest.approx(value_loss.item(), rel=1e-3)
    assert report["explained_variance"] == pytest.approx(
        variance.item(), rel=1e-3, abs=1e-4
    )
    means = {
        "advantage": traced.advantage,
        "value": value,
        "batch_reward": rollout.reward,
    }
    for column, steps in means.items():
        assert report[column] == pytest.approx(steps.mean().item(), rel=1e-3)
    assert uncorrected["policy_loss"] != pytest.approx(policy_loss.item(), rel=1e-2)
    assert uncorrected["value_loss"] != pytest.approx(value_loss.item(), rel=1e-2)
    play.env.close()


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("clip_vloss", [False, True])
def test_ppo_clips_against_its_present_policy_and_weighs_what_an_older_one_did(
    bounds, clip_vloss
):
    play = Play(
        parse(ppo(agent__algorithm__clip_vloss=clip_vloss, env__max_t=20, **UNEVEN))
    )
    agent = corrected(play, bounds)
    rollout = stale(play, agent)
    log_prob, value, traced = traced_by_hand(agent, rollout, 0.95, bounds)
    samples, _ = agent.learner._prepare(rollout)
    assert_close(samples.advantage, traced.advantage.flatten(), rtol=1e-4, atol=1e-4)
    assert_close(samples.raw_target, traced.returns.flatten(), rtol=1e-4, atol=1e-4)
    assert_close(samples.log_prob, log_prob.flatten(), rtol=1e-4, atol=1e-4)
    if clip_vloss:
        assert_close(samples.old_raw_value, value.flatten(), rtol=1e-4, atol=1e-4)
    assert_close(samples.weight, traced.rho.flatten(), rtol=1e-4, atol=1e-4)
    uncorrected, _ = play.agent.learner._prepare(rollout)
    assert torch.equal(uncorrected.log_prob, rollout.log_prob.flatten())
    if clip_vloss:
        assert torch.equal(uncorrected.old_raw_value, rollout.value.flatten())
    assert uncorrected.weight is None
    assert not torch.allclose(uncorrected.raw_target, samples.raw_target, rtol=0.1)
    play.env.close()


@pytest.mark.parametrize("make", [actor_critic, ppo])
def test_asking_the_present_policy_leaves_running_statistics_as_they_are(make):
    play = Play(parse(make(**NORM_LAYERS)))
    list(play.reports(40))
    agent = corrected(play, VTrace())
    rollout = rollouts(play, 1)[-1]
    before = agent.learner.state_dict()
    estimates(agent, rollout)
    assert same(agent.learner.state_dict(), before)
    play.env.close()
