"""Published scores, and verdicts about results beside them."""

import pytest

from slm_lab.spec.load import load_spec
from slm_lab.studies.benchmark.published import (
    Measured,
    PublishedScore,
    ScoreVerdict,
    judge,
    published_scores,
    scores_for,
)


def published(**facts):
    """A score of 100 ± 10 over four seeds after 1M frames: 90.2 to 109.8."""
    known = {
        "algorithm": "PPO",
        "env": "Hopper-v5",
        "published_env": "Hopper-v4",
        "mean": 100.0,
        "std": 10.0,
        "frames": 1_000_000,
        "seeds": 4,
        "score": "training",
        "source": "someone",
        "place": "a page",
        "protocol": "last episodes",
        "variant": "ppo",
        "differs": "",
    }
    return PublishedScore(**{**known, **facts})


def measured(low, high, frames=1_000_000, seeds=3, std=5.0, measure=""):
    return Measured((low, high), std, seeds, frames, measure)


def test_the_interval_of_a_published_mean_is_that_of_its_seeds():
    assert published().interval(5) == pytest.approx((90.2, 109.8))


def test_our_deviation_stands_in_for_one_over_seeds_that_was_not_published():
    """A single run's deviation is that of its episodes."""
    assert published(seeds=1).interval(5) == pytest.approx((90.2, 109.8))
    assert published(std=None).interval(20) == pytest.approx((80.4, 119.6))
    assert judge(published(seeds=1), measured(102, 109)).verdict is ScoreVerdict.EQUAL
    assert judge(published(seeds=1), measured(102, 109, std=0.5)).verdict is (
        ScoreVerdict.ABOVE
    )


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((110, 120), ScoreVerdict.ABOVE),
        ((109, 120), ScoreVerdict.EQUAL),
        ((80, 91), ScoreVerdict.EQUAL),
        ((70, 90), ScoreVerdict.BELOW),
    ],
)
def test_intervals_that_do_not_meet_are_above_or_below(ends, verdict):
    judgement = judge(published(), measured(*ends))
    assert judgement == (verdict, "")


def test_a_verdict_says_what_was_compared():
    judgement = judge(published(), measured(70, 80, measure="75 greedy"))
    assert str(judgement) == "below (75 greedy)"
    larger = judge(published(), measured(70, 80, 2_000_000, measure="75 greedy"))
    assert str(larger) == "below (75 greedy, with more frames)"


def test_a_smaller_budget_can_only_be_above_or_equal():
    fewer = 500_000
    assert judge(published(), measured(120, 130, fewer)) == (
        ScoreVerdict.ABOVE,
        "with fewer frames",
    )
    assert (
        judge(published(), measured(70, 80, fewer)).verdict
        is ScoreVerdict.NOT_COMPARABLE
    )


def test_a_larger_budget_can_only_be_below():
    more = 2_000_000
    assert judge(published(), measured(70, 80, more)) == (
        ScoreVerdict.BELOW,
        "with more frames",
    )
    assert judge(published(), measured(120, 130, more)).verdict is (
        ScoreVerdict.NOT_COMPARABLE
    )


def test_another_environment_and_a_single_seed_are_not_compared():
    other = judge(published(differs="no sticky actions"), measured(70, 80))
    assert str(other) == "not comparable (no sticky actions)"
    single = judge(published(), measured(70, 80, seeds=1))
    assert single.verdict is ScoreVerdict.NOT_COMPARABLE
    assert str(judge(published(), None)) == "not comparable (has no returns)"
    greedy = judge(published(score="evaluation"), None)
    assert str(greedy) == "not comparable (has no greedy episodes)"


def test_the_score_of_the_nearest_budget_comes_first():
    scores = scores_for("PPO", "CartPole-v1", 200_000)
    assert scores[0].source == "SLM Lab 5"
    assert scores[0].mean == pytest.approx(498.94)
    assert scores_for("PPO", "CartPole-v1", 500_000)[0].source == "CleanRL"
    pong = scores_for("PPO", "ALE/Pong-v5", 10_000_000)
    assert not pong[0].differs
    assert pong[-1].differs


def test_all_published_figures_are_there_with_their_source():
    scores = published_scores()
    assert len(scores) == 425
    assert all(score.place and score.protocol for score in scores)
    assert {score.score for score in scores} == {"training", "evaluation"}


@pytest.mark.parametrize(
    ("file", "env"),
    [
        ("ppo_cartpole", None),
        ("dqn_cartpole", None),
        ("a2c_gae_pendulum", None),
        ("sac_mujoco", "Hopper-v5"),
        ("td3_mujoco", "HalfCheetah-v5"),
        ("ppo_atari", "ALE/Pong-v5"),
    ],
)
def test_algorithms_and_environments_have_the_names_of_the_specs(file, env):
    """A name that no spec has would never be compared."""
    sets = () if env is None else (f"env={env}",)
    spec = load_spec(file, file, sets, warn=False)
    assert scores_for(spec.agent.algorithm.name, spec.env.name, 10**6)
