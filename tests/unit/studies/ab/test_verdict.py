"""The endings of a test of A against B, each in one sentence."""

import numpy as np
import pytest

from slm_lab.studies.ab.verdict import Answer, StoppingRule, Verdict, verdict_of

RULE = StoppingRule(confidence=0.95, smallest=None)


def returns(effect, count=20, deviation=20.0, seed=0):
    """Pairs of final returns, B better by `effect`."""
    generator = np.random.default_rng(seed)
    a, b = generator.normal(100, deviation, (2, count))
    return [(float(x), float(y)) for x, y in zip(a, b + effect, strict=True)]


def test_b_is_better():
    verdict = verdict_of(returns(80), RULE, allowed=20)
    assert verdict.answer is Answer.B
    low, high = verdict.interval
    assert 0 < low < high
    assert verdict.pairs < 10
    assert verdict.sentence(20) == (
        f"B is better by {low:.1f} to {high:,.0f} (95 %, {verdict.pairs} seeds each; "
        "20 were allowed)"
    )


def test_a_is_better_by_the_same_if_they_change_names():
    swapped = [(b, a) for a, b in returns(80)]
    verdict = verdict_of(swapped, RULE, allowed=20)
    assert verdict.answer is Answer.A
    mirrored = verdict_of(returns(80), RULE, allowed=20).sentence(20)
    assert verdict.sentence(20) == mirrored.replace("B is", "A is")


def test_a_difference_that_cannot_matter_ends_a_test_too():
    rule = StoppingRule(confidence=0.95, smallest=30.0)
    verdict = verdict_of(returns(0, count=60), rule, allowed=60)
    assert verdict.answer is Answer.SAME
    low, high = verdict.interval
    assert -30 <= low < 0 < high <= 30
    assert verdict.sentence(60).startswith("the difference is within ±30.0: B − A lies")
    assert verdict.pairs < 60


def test_a_test_ends_undecided_once_no_seed_that_is_left_could_decide():
    verdict = verdict_of(returns(0), RULE, allowed=20)
    assert verdict.answer is Answer.UNKNOWN
    assert verdict.pairs < 20
    assert verdict.further > 20 - verdict.pairs
    text = verdict.sentence(20)
    assert text.startswith("not decided: B − A lies between ")
    assert text.endswith(f"(95 %, {verdict.pairs} seeds each; 20 were allowed)")


def test_before_any_pair_nothing_is_known():
    verdict = verdict_of([], RULE, allowed=20)
    assert (verdict.answer, verdict.further) == (None, 6)
    assert "B − A lies anywhere (95 %, 0 seeds each" in verdict.sentence(20)


@pytest.mark.parametrize("effect", [0, 10, 20, 40, 80])
@pytest.mark.parametrize("smallest", [None, 25.0])
def test_a_test_never_ends_sooner_than_it_says(effect, smallest):
    rule = StoppingRule(confidence=0.95, smallest=smallest)
    for seed in range(10):
        pairs = returns(effect, count=40, seed=seed)
        verdict = verdict_of(pairs, rule, allowed=40)
        if verdict.answer is Answer.UNKNOWN:
            continue
        for count in range(verdict.pairs):
            before = Verdict(pairs[:count], rule, pairs_left=40 - count)
            assert before.answer is None
            assert count + before.further <= verdict.pairs


def test_a_pair_without_returns_is_left_out_and_uses_up_a_seed():
    pairs = returns(80)
    with_gap = [*pairs[:2], None, *pairs[2:]]
    verdict = verdict_of(pairs, RULE, allowed=20)
    other = verdict_of(with_gap, RULE, allowed=20)
    assert other.interval == verdict.interval
    assert (other.pairs, other.pairs_left) == (verdict.pairs, verdict.pairs_left - 1)


def test_later_pairs_do_not_change_an_answer():
    pairs = returns(80)
    first = verdict_of(pairs, RULE, allowed=20)
    alone = verdict_of(pairs[: first.pairs], RULE, allowed=20)
    assert alone.sentence(20) == first.sentence(20)


def test_seeds_that_all_solve_it_differ_by_nothing():
    verdict = verdict_of([(500.0, 500.0)] * 8, RULE, allowed=8)
    assert verdict.interval != (0.0, 0.0)
    rule = StoppingRule(confidence=0.95, smallest=1.0)
    same = verdict_of([(500.0, 500.0)] * 8, rule, allowed=8)
    assert same.sentence(8) == (
        "the difference is within ±1.00: B − A lies between 0 and 0 "
        "(95 %, 7 seeds each; 8 were allowed)"
    )
