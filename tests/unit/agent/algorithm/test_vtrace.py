"""V-trace against numbers worked out by hand, its definition, and what it promises."""

import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from slm_lab.agent.algorithm.returns import gae, n_step_returns, vtrace

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
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed + 1))


def without_value(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in parts.items() if name != "value"}


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
        return 0.0 if terminated[t][n] else next_value[t][n]

    def target(s, n, terms):
        total, weight = value[s][n], 1.0
        for t in range(s, min(s + terms, length)):
            error = reward[t][n] + gamma * after(t, n) - value[t][n]
            total += weight * min(rho_bar, ratio[t][n]) * error
            weight *= gamma * trace_lambda * min(c_bar, ratio[t][n])
            if done[t][n]:
                break
        return total

    terms = num_steps or length
    returns, advantage = torch.zeros(length, num_envs), torch.zeros(length, num_envs)
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
    terminated, done = (
        torch.zeros(4, 2, dtype=torch.bool),
        torch.zeros(4, 2, dtype=torch.bool),
    )
    terminated[1, 1] = True
    done[1] = True
    estimates = vtrace(
        both(4.0, 0.5, 1.0, 0.25).log(),
        torch.tensor([[2.0, 2.0], [2.0, 4.0], [3.0, 3.0], [4.0, 4.0]]),
        both(2.0, 2.0, 4.0, 4.0),
        torch.tensor([[2.0, 2.0], [6.0, math.nan], [4.0, 4.0], [2.0, 2.0]]),
        terminated,
        done,
        gamma=0.5,
        trace_lambda=0.5,
        rho_bar=2.0,
        c_bar=1.0,
    )
    v = torch.tensor([[4.375, 4.25], [3.5, 3.0], [5.0625, 5.0625], [4.25, 4.25]])
    advantage = torch.tensor([[1.375, 1.25], [3.0, 2.0], [1.0625, 1.0625], [1.0, 1.0]])
    torch.testing.assert_close(estimates.returns, v)
    torch.testing.assert_close(estimates.advantage, advantage)
    torch.testing.assert_close(estimates.rho, both(2.0, 0.5, 1.0, 0.25))


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
    torch.testing.assert_close(estimates.returns, returns, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(estimates.advantage, advantage, rtol=1e-4, atol=1e-4)


@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 9),
    steps=st.sampled_from([None, 1, 3, 20]),
)
def test_without_a_difference_of_policies_vtrace_is_the_n_step_return(
    seed, length, steps
):
    parts = rollout(seed, length)
    same = torch.zeros_like(parts["reward"])
    expected = n_step_returns(
        **without_value(parts), gamma=0.9, num_steps=steps or length
    )
    for bounds in (NO_BOUNDS, {"rho_bar": 1.0, "c_bar": 1.0}):
        estimates = vtrace(
            same, **parts, gamma=0.9, trace_lambda=1.0, **bounds, num_steps=steps
        )
        torch.testing.assert_close(estimates.returns, expected, rtol=1e-4, atol=1e-4)
        advantage = expected - parts["value"]
        torch.testing.assert_close(estimates.advantage, advantage, rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 1000), trace_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_without_a_difference_of_policies_vtrace_is_the_lambda_return(
    seed, trace_lambda
):
    parts = rollout(seed, 8)
    same = torch.zeros_like(parts["reward"])
    estimates = vtrace(same, **parts, gamma=0.9, trace_lambda=trace_lambda, **NO_BOUNDS)
    advantage = gae(**parts, gamma=0.9, gae_lambda=trace_lambda)
    returns = parts["value"] + advantage
    torch.testing.assert_close(estimates.returns, returns, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(estimates.advantage, advantage, rtol=1e-4, atol=1e-4)


def test_steps_that_the_present_policy_would_not_take_teach_the_critic_nothing():
    parts = rollout(0, 6)
    never = torch.full_like(parts["reward"], -math.inf)
    estimates = vtrace(
        never, **parts, gamma=0.9, trace_lambda=1.0, rho_bar=1.0, c_bar=1.0
    )
    assert torch.equal(estimates.returns, parts["value"])
    assert (estimates.rho == 0).all()
    assert torch.isfinite(estimates.advantage).all()


def test_ratios_above_the_bounds_are_clipped():
    parts = rollout(0, 6)
    keys = {"gamma": 0.9, "trace_lambda": 0.9, "rho_bar": 1.5, "c_bar": 1.2}
    often, endlessly = (
        vtrace(torch.full_like(parts["reward"], much), **parts, **keys)
        for much in (1.0, 1000.0)
    )
    for one, other in zip(often, endlessly, strict=True):
        assert torch.equal(one, other)


TWO_STEPS = {
    "reward": ((1.0, -2.0), (3.0, 0.5)),
    "pi": ((0.9, 0.1), (0.2, 0.8)),
    "mu": ((0.3, 0.7), (0.6, 0.4)),
}
"""By step and action: an episode of two steps, its policy and an old one that acted."""


def expected_returns(
    value: tuple[float, float], rho_bar: float, c_bar: float
) -> torch.Tensor:
    """E_μ[v_0], E_μ[v_1] over every pair of actions, an environment each, at the values
    given."""
    ways = list(itertools.product((0, 1), (0, 1)))
    at = lambda name: torch.tensor(  # noqa: E731
        [[TWO_STEPS[name][t][way[t]] for way in ways] for t in (0, 1)],
        dtype=torch.float64,
    )
    terminated = torch.tensor([[False] * 4, [True] * 4])
    values = torch.tensor([[v] * 4 for v in value], dtype=torch.float64)
    next_values = torch.tensor([[value[1]] * 4, [math.nan] * 4], dtype=torch.float64)
    log_ratio = (at("pi") / at("mu")).log()
    parts = (at("reward"), values, next_values, terminated, terminated)
    estimates = vtrace(log_ratio, *parts, 0.9, 1.0, rho_bar, c_bar)
    return (estimates.returns * at("mu").prod(0)).sum(1)


def values_of(policy: list[list[float]]) -> tuple[float, float]:
    """V of both steps under a policy, by γ = 0.9."""
    now, then = (
        sum(p * r for p, r in zip(policy[t], TWO_STEPS["reward"][t], strict=True))
        for t in (0, 1)
    )
    return now + 0.9 * then, then


@pytest.mark.parametrize("critic", [(0.0, 0.0), (5.0, -3.0)])
def test_without_bounds_an_old_policys_steps_tell_the_value_of_the_present_one(critic):
    """Whatever the critic says, in expectation over the old policy's actions."""
    expected = torch.tensor(values_of(TWO_STEPS["pi"]), dtype=torch.float64)
    torch.testing.assert_close(expected_returns(critic, math.inf, math.inf), expected)


@pytest.mark.parametrize("rho_bar", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("c_bar", [0.0, 0.5, 1.0])
def test_the_bound_on_rho_alone_decides_which_policys_value_is_learned(rho_bar, c_bar):
    """π_ρ̄ ∝ min(ρ̄ μ, π), eq. 2 of the paper: at its values the targets are these same
    values."""
    policy = []
    for pi, mu in zip(TWO_STEPS["pi"], TWO_STEPS["mu"], strict=True):
        bounded = [min(rho_bar * m, p) for p, m in zip(pi, mu, strict=True)]
        policy.append([b / sum(bounded) for b in bounded])
    value = values_of(policy)
    expected = torch.tensor(value, dtype=torch.float64)
    torch.testing.assert_close(expected_returns(value, rho_bar, c_bar), expected)
