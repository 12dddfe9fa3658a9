"""Advantages against the definition, and what must not leak between episodes."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch.testing import assert_close

from slm_lab.agent.algorithm.returns import (
    discounted_returns,
    gae,
    n_step_returns,
    q_lambda_returns,
)
from tests.support import seeded


def episode(seed: int, length: int, ending: str | None) -> dict[str, torch.Tensor]:
    generator = seeded(seed)
    parts = {
        name: torch.randn(length, 1, generator=generator)
        for name in ("reward", "value", "next_value")
    }
    terminated = torch.zeros(length, 1, dtype=torch.bool)
    truncated = torch.zeros(length, 1, dtype=torch.bool)
    if ending is not None:
        {"terminated": terminated, "truncated": truncated}[ending][-1] = True
    return {**parts, "terminated": terminated, "done": terminated | truncated}


def test_gae_equals_numbers_worked_out_by_hand():
    """γ = 0.5, λ = 0.5; δ = (1 + 0.5·2 − 1, 2 + 0.5·4 − 2, 3 − 4) with a terminal last
    step."""
    column = lambda *xs: torch.tensor(xs).view(-1, 1)  # noqa: E731
    advantage = gae(
        reward=column(1.0, 2.0, 3.0),
        value=column(1.0, 2.0, 4.0),
        next_value=column(2.0, 4.0, 9.0),
        terminated=column(False, False, True),
        done=column(False, False, True),
        gamma=0.5,
        gae_lambda=0.5,
    )
    assert_close(advantage.flatten(), torch.tensor([1.4375, 1.75, -1.0]))


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_gae_of_an_episode_ignores_the_episode_after_it(ending):
    first = episode(0, 4, ending)
    second = episode(1, 6, ending)
    joined = {k: torch.cat([first[k], second[k]]) for k in first}
    assert_close(
        gae(**joined, gamma=0.9, gae_lambda=0.8)[:4],
        gae(**first, gamma=0.9, gae_lambda=0.8),
    )


def test_truncation_bootstraps_and_termination_does_not():
    cut = episode(0, 1, "truncated")
    ended = episode(0, 1, "terminated")
    args = {"gamma": 0.9, "gae_lambda": 0.8}
    difference = gae(**cut, **args) - gae(**ended, **args)
    assert_close(difference, 0.9 * cut["next_value"])


def test_the_value_after_a_terminal_step_may_be_anything():
    ended = episode(0, 5, "terminated")
    ended["next_value"][-1] = math.nan
    assert torch.isfinite(gae(**ended, gamma=0.9, gae_lambda=0.9)).all()


@given(seed=st.integers(0, 1000), length=st.integers(1, 12))
def test_lambda_one_is_the_discounted_return_less_the_value(seed, length):
    parts = episode(seed, length, "terminated")
    parts["next_value"][:-1] = parts["value"][1:]
    returns = 0.0
    expected = []
    for reward in reversed(parts["reward"].flatten().tolist()):
        returns = reward + 0.95 * returns
        expected.append(returns)
    target = torch.tensor(expected[::-1]).view(-1, 1) - parts["value"]
    advantage = gae(**parts, gamma=0.95, gae_lambda=1.0)
    assert_close(advantage, target, rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 1000))
def test_environments_side_by_side_do_not_see_each_other(seed):
    columns = [episode(seed + i, 7, "terminated") for i in range(3)]
    together = {k: torch.cat([c[k] for c in columns], 1) for k in columns[0]}
    args = {"gamma": 0.9, "gae_lambda": 0.7}
    apart = torch.cat([gae(**c, **args) for c in columns], 1)
    assert_close(gae(**together, **args), apart)


def column(*values):
    return torch.tensor(values).view(-1, 1)


def test_n_step_returns_equal_numbers_worked_out_by_hand():
    """γ = 0.5, n = 2, next values 10, 20, 30, 40; the episode is cut off after the
    second step.

    t=3: 4 + 20 = 24, the rollout's end.  t=2: 3 + 0.5·24 = 15.  t=1: 2 + 0.5·20 = 12,
    its episode ends.  t=0: 1 + 0.5·12 = 7.
    """
    returns = n_step_returns(
        column(1.0, 2.0, 3.0, 4.0),
        column(10.0, 20.0, 30.0, 40.0),
        column(False, False, False, False),
        column(False, True, False, False),
        gamma=0.5,
        num_steps=2,
    )
    assert_close(returns.flatten(), torch.tensor([7.0, 12.0, 15.0, 24.0]))


@given(seed=st.integers(0, 1000), n=st.integers(1, 9), length=st.integers(1, 12))
def test_n_step_returns_equal_the_definition(seed, n, length):
    rng = seeded(seed)
    reward, next_value = (torch.randn(length, 1, generator=rng) for _ in range(2))
    terminated = torch.rand(length, 1, generator=rng) < 0.2
    done = terminated | (torch.rand(length, 1, generator=rng) < 0.2)
    returns = n_step_returns(
        reward=reward,
        next_value=next_value,
        terminated=terminated,
        done=done,
        gamma=0.9,
        num_steps=n,
    )
    for t in range(length):
        total = 0.0
        discount = 1.0
        last = t
        for k in range(t, min(t + n, length)):
            total += discount * reward[k].item()
            discount *= 0.9
            last = k
            if done[k]:
                break
        if not terminated[last]:
            total += discount * next_value[last].item()
        assert returns[t].item() == pytest.approx(total, abs=1e-4)


def test_discounted_returns_stay_within_the_episode():
    returns = discounted_returns(
        column(1.0, 2.0, 4.0, 8.0), column(False, True, False, False), gamma=0.5
    )
    assert returns.flatten().tolist() == [2.0, 2.0, 8.0, 8.0]


def q_returns(episode_of_v, **keys):
    """λ-returns of an `episode()`, whose `value` they do not need."""
    parts = {name: episode_of_v[name] for name in episode_of_v if name != "value"}
    return q_lambda_returns(**parts, **keys)


def test_lambda_returns_equal_numbers_worked_out_by_hand():
    """γ = λ = 0.5. The first episode terminates after two steps, the second is
    truncated after one, the third runs on."""
    returns = q_lambda_returns(
        reward=column(1.0, 2.0, 3.0, 4.0, 5.0),
        next_value=column(8.0, math.nan, 16.0, 2.0, 6.0),
        terminated=column(False, True, False, False, False),
        done=column(False, True, True, False, False),
        gamma=0.5,
        trace_lambda=0.5,
    )
    last = 5.0 + 0.5 * 6.0
    first = 1.0 + 0.5 * (0.5 * 2.0 + 0.5 * 8.0)
    before_last = 4.0 + 0.5 * (0.5 * last + 0.5 * 2.0)
    expected = [first, 2.0, 3.0 + 0.5 * 16.0, before_last, last]
    assert returns.flatten().tolist() == expected


@pytest.mark.parametrize("ending", [None, "terminated", "truncated"])
def test_lambda_zero_is_the_target_of_one_step(ending):
    parts = episode(0, 6, ending)
    one_step = parts["reward"] + 0.9 * parts["next_value"] * ~parts["terminated"]
    assert_close(q_returns(parts, gamma=0.9, trace_lambda=0.0), one_step)


@pytest.mark.parametrize("ending", [None, "terminated", "truncated"])
def test_lambda_one_is_the_return_with_a_bootstrap_at_the_end_alone(ending):
    parts = episode(0, 6, ending)
    plain = n_step_returns(
        **{name: parts[name] for name in parts if name != "value"},
        gamma=0.9,
        num_steps=6,
    )
    assert_close(q_returns(parts, gamma=0.9, trace_lambda=1.0), plain)


@given(seed=st.integers(0, 1000), ending=st.sampled_from([None, "terminated"]))
def test_lambda_returns_are_the_values_and_the_estimates_of_gae(seed, ending):
    """With V for the greatest Q, both are the λ-return."""
    parts = episode(seed, 7, ending)
    parts["next_value"][:-1] = parts["value"][1:]
    advantage = gae(**parts, gamma=0.9, gae_lambda=0.8)
    returns = q_returns(parts, gamma=0.9, trace_lambda=0.8)
    assert_close(returns, parts["value"] + advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_lambda_returns_of_an_episode_ignore_the_episode_after_it(ending):
    first = episode(0, 4, ending)
    second = episode(1, 6, ending)
    joined = {name: torch.cat([first[name], second[name]]) for name in first}
    keys = {"gamma": 0.9, "trace_lambda": 0.8}
    assert_close(q_returns(joined, **keys)[:4], q_returns(first, **keys))
