"""V-trace against numbers worked out by hand, its definition, and what it promises."""

import itertools
import math

import hypothesis.strategies as st
import torch
from hypothesis import given
from torch.testing import assert_close

from slm_lab.agent.algorithm.returns import gae, vtrace
from tests.support import randn

NO_BOUNDS = {"rho_bar": math.inf, "c_bar": math.inf}


def rollout(seed: int, length: int, num_envs: int = 3) -> dict[str, torch.Tensor]:
    """Steps with episodes that end in both ways; V after a terminal step is NaN."""
    generator = torch.Generator().manual_seed(seed)
    reward, value, kept = (
        torch.randn(length, num_envs, generator=generator) for _ in range(3)
    )
    terminated, truncated = (
        torch.rand(length, num_envs, generator=generator) < chance
        for chance in (0.2, 0.15)
    )
    done = terminated | truncated
    next_value = torch.where(done, kept, torch.cat([value[1:], kept[-1:]]))
    next_value[terminated] = math.nan
    parts = {"reward": reward, "value": value, "next_value": next_value}
    return {**parts, "terminated": terminated, "done": done}


def log_ratios(seed: int, like: torch.Tensor) -> torch.Tensor:
    return randn(like.shape, seed=seed + 1)


def by_definition(
    log_ratio, parts, gamma, trace_lambda, rho_bar, c_bar, num_steps=None
):
    """v of eq. 1 of the paper and the advantage of section 4.2, as sums over the steps
    ahead.

    With λ, what the advantage sees beyond the next state counts λ times.
    """
    table = {name: tensor.tolist() for name, tensor in parts.items()}
    reward, value, next_value, terminated, done = table.values()
    ratio = log_ratio.exp().tolist()
    length, num_envs = log_ratio.shape

    def after(t, n):
        if terminated[t][n]:
            return 0.0
        return next_value[t][n]

    def target(s, n, terms):
        total = value[s][n]
        weight = 1.0
        for t in range(s, min(s + terms, length)):
            error = reward[t][n] + gamma * after(t, n) - value[t][n]
            total += weight * min(rho_bar, ratio[t][n]) * error
            weight *= gamma * trace_lambda * min(c_bar, ratio[t][n])
            if done[t][n]:
                break
        return total

    terms = num_steps or length
    returns = torch.zeros(length, num_envs)
    advantage = torch.zeros(length, num_envs)
    for s, n in itertools.product(range(length), range(num_envs)):
        last = done[s][n] or s + 1 == length
        following = after(s, n)
        if not last:
            following += trace_lambda * (target(s + 1, n, terms - 1) - following)
        returns[s, n] = target(s, n, terms)
        advantage[s, n] = reward[s][n] + gamma * following - value[s][n]
    return returns, advantage


def test_vtrace_equals_numbers_worked_out_by_hand():
    """γ = λ = 0.5, ρ̄ = 2, c̄ = 1; the second step is truncated in one environment,
    whose last state is worth 6, and terminal in the other.

    π/μ = 4, ½, 1, ¼, so ρ = 2, ½, 1, ¼ and c = ½, ¼, ½, ⅛.
    Errors 1, 3 or 2, 1, 1, so δ = 2, 1.5 or 1, 1, ¼.
    e_3 = ¼, e_2 = 1 + ½·½·¼ = 1.0625, e_1 = δ_1, e_0 = 2 + ½·½·e_1 = 2.375 or 2.25.
    """
    both = lambda *xs: torch.tensor([[x, x] for x in xs])  # noqa: E731
    terminated = torch.zeros(4, 2, dtype=torch.bool)
    done = torch.zeros(4, 2, dtype=torch.bool)
    terminated[1, 1] = True
    done[1] = True
    estimates = vtrace(
        log_ratio=both(4.0, 0.5, 1.0, 0.25).log(),
        reward=torch.tensor([[2.0, 2.0], [2.0, 4.0], [3.0, 3.0], [4.0, 4.0]]),
        value=both(2.0, 2.0, 4.0, 4.0),
        next_value=torch.tensor([[2.0, 2.0], [6.0, math.nan], [4.0, 4.0], [2.0, 2.0]]),
        terminated=terminated,
        done=done,
        gamma=0.5,
        trace_lambda=0.5,
        rho_bar=2.0,
        c_bar=1.0,
    )
    v = torch.tensor([[4.375, 4.25], [3.5, 3.0], [5.0625, 5.0625], [4.25, 4.25]])
    advantage = torch.tensor([[1.375, 1.25], [3.0, 2.0], [1.0625, 1.0625], [1.0, 1.0]])
    assert_close(estimates.returns, v)
    assert_close(estimates.advantage, advantage)
    assert_close(estimates.rho, both(2.0, 0.5, 1.0, 0.25))


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 9),
    trace_lambda=st.sampled_from([0.0, 0.7, 1.0]),
    bounds=st.sampled_from([(1.0, 1.0), (2.0, 0.5), (0.3, 1.5), (math.inf, math.inf)]),
    num_steps=st.sampled_from([None, 1, 2, 3, 20]),
)
def test_vtrace_is_the_sum_that_defines_it(
    seed, length, trace_lambda, bounds, num_steps
):
    parts = rollout(seed, length)
    log_ratio = log_ratios(seed, parts["reward"])
    keys = dict(zip(("rho_bar", "c_bar"), bounds, strict=True)) | {
        "num_steps": num_steps
    }
    estimates = vtrace(log_ratio, **parts, gamma=0.9, trace_lambda=trace_lambda, **keys)
    returns, advantage = by_definition(
        log_ratio, parts, 0.9, trace_lambda, *bounds, num_steps
    )
    assert_close(estimates.returns, returns, rtol=1e-4, atol=1e-4)
    assert_close(estimates.advantage, advantage, rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 1000), trace_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_without_a_difference_of_policies_vtrace_is_the_lambda_return(
    seed, trace_lambda
):
    parts = rollout(seed, 8)
    same = torch.zeros_like(parts["reward"])
    estimates = vtrace(same, **parts, gamma=0.9, trace_lambda=trace_lambda, **NO_BOUNDS)
    advantage = gae(**parts, gamma=0.9, gae_lambda=trace_lambda)
    returns = parts["value"] + advantage
    assert_close(estimates.returns, returns, rtol=1e-4, atol=1e-4)
    assert_close(estimates.advantage, advantage, rtol=1e-4, atol=1e-4)


def test_steps_that_the_present_policy_would_not_take_teach_the_critic_nothing():
    parts = rollout(0, 6)
    never = torch.full_like(parts["reward"], -math.inf)
    estimates = vtrace(
        never, **parts, gamma=0.9, trace_lambda=1.0, rho_bar=1.0, c_bar=1.0
    )
    assert torch.equal(estimates.returns, parts["value"])
    assert (estimates.rho == 0).all()
    assert torch.isfinite(estimates.advantage).all()
