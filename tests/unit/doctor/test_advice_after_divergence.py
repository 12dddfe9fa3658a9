import math
import re
from types import SimpleNamespace

import pytest
import torch

from slm_lab.agent.batch import _broken_before
from slm_lab.doctor.diagnosis import advice_after_divergence
from slm_lab.storage.result import Ending, SessionResult
from tests.support import parse, ppo, soft


def test_the_keys_that_may_help_are_named():
    advice = advice_after_divergence(parse(ppo()), ())
    assert len(advice.splitlines()) == 1
    assert advice.startswith("resuming would repeat it")
    for words in (
        "lower agent.net.optim_spec.lr",
        "lower agent.net.clip_grad_val",
        "env.normalize_reward",
    ):
        assert words in advice


def test_gradients_that_nothing_limits_are_to_be_limited():
    advice = advice_after_divergence(
        parse(ppo(agent__net__clip_grad_val=None, env__normalize_reward=True)), ()
    )
    assert "set agent.net.clip_grad_val to 0.5" in advice
    assert "normalize_reward" not in advice


@pytest.mark.parametrize("make", [ppo, lambda **c: soft("SoftActorCritic", **c)])
def test_advice_is_no_command(make):
    assert not re.search(r"slm-lab|train@", advice_after_divergence(parse(make()), ()))


def test_an_environment_that_gives_such_numbers_is_to_be_mended():
    end = SessionResult(
        0, Ending.FAILED, 8, "the loss is nan: the environment gave rewards that …"
    )
    advice = advice_after_divergence(parse(ppo()), [end])
    assert advice.endswith(
        "Start a new run: the environment must give finite numbers only"
    )


@pytest.mark.parametrize("size", [1e30, math.inf])
def test_finite_numbers_that_are_too_large_are_to_be_scaled(size):
    told = _broken_before(SimpleNamespace(reward=torch.tensor([size])))
    end = SessionResult(
        0, Ending.FAILED, 8, f"the loss is inf{told}\nthe batch (Rollout):"
    )
    advice = advice_after_divergence(parse(ppo()), [end])
    assert advice.endswith(
        "Start a new run: set env.reward_scale or env.normalize_reward"
    )
