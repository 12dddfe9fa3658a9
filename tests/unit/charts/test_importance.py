import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.charts.importance import (
    FEWEST_TRIALS,
    importances,
    local_line,
    midranks,
    same_value,
    trial_ranks,
)
from slm_lab.charts.search_summary import SearchSummary
from tests.unit.charts.trials import BUDGET, drawn, searched, trial, varied

X, Z = varied("x", "uniform"), varied("z", "uniform")
KIND = varied("kind", "choice", ("a", "b", "c"))
SEARCHES = 60


def of(experiment):
    return {each.path: each for each in importances(experiment)}


def searches(trials, seed=0):
    """Over x, which matters, z, which does not, and a kind, which does not."""
    for i in range(SEARCHES):
        generator = np.random.default_rng([seed, i])
        x, z = generator.random((2, trials))
        kind = generator.choice(["a", "b", "c"], trials)
        score = np.exp(4 * x) + generator.normal(size=trials)
        yield searched((X, Z, KIND), list(zip(x, z, kind, strict=True)), list(score))


@pytest.mark.parametrize("trials", [8, 10, 20])
def test_a_variable_without_effect_has_no_importance_and_one_with_effect_is_first(
    trials,
):
    found = [importances(each) for each in searches(trials)]
    assert np.mean([each[0].path == "x" for each in found]) > 0.95
    by_path = [{each.path: each for each in one} for one in found]
    assert np.median([each["x"].share for each in by_path]) > 0.8
    for path in ("z", "kind"):
        shares = [each[path].share for each in by_path]
        assert np.median(shares) < 0.02
        assert np.mean(shares) < 1.2 / trials
        assert np.mean([each[path].sure for each in by_path]) <= 0.05


def test_in_a_large_search_chance_explains_almost_nothing():
    found = importances(drawn(200, 4))
    assert found[0].path == "agent.net.optim_spec.lr"
    assert found[0].share > 0.85
    assert all(each.chance < 0.03 for each in found)
    assert all(each.share < 0.05 for each in found[1:])


def test_p_values_without_effect_are_those_of_chance():
    p = [of(each)["z"].p_value for each in searches(15, seed=1)]
    assert np.mean(np.array(p) <= 0.5) == pytest.approx(0.5, abs=0.2)
    assert np.mean(np.array(p) <= 0.1) <= 0.25


def test_a_decisive_variable_is_significant_from_few_trials():
    assert np.mean([of(each)["x"].sure for each in searches(10)]) > 0.95


def test_a_best_value_in_the_middle_is_found():
    generator = np.random.default_rng(0)
    x = generator.random(30)
    score = -((x - 0.5) ** 2) + 0.01 * generator.normal(size=30)
    found = of(searched((X,), [[each] for each in x], list(score)))["x"]
    assert found.sure
    assert found.share > 0.6


def test_a_decisive_category_is_found():
    generator = np.random.default_rng(0)
    kind = generator.choice(["a", "b", "c"], 20)
    score = [
        {"a": 0.0, "b": 5.0, "c": 1.0}[each] + generator.normal() / 5 for each in kind
    ]
    found = of(searched((KIND,), [[each] for each in kind], score))["kind"]
    assert found.sure
    assert found.share > 0.7


def test_values_that_each_occur_once_predict_nothing():
    names = [[f"n{i}"] for i in range(12)]
    found = of(searched((KIND,), names, [float(i) for i in range(12)]))["kind"]
    assert (found.share, found.sure) == (0.0, False)


def test_two_variables_that_matter_only_together_are_not_seen():
    generator = np.random.default_rng(2)
    x, z = generator.random((2, 60))
    score = ((x > 0.5) ^ (z > 0.5)) + 0.1 * generator.normal(size=60)
    for each in importances(
        searched((X, Z), list(zip(x, z, strict=True)), list(score))
    ):
        assert each.share < 0.2
        assert not each.sure


@pytest.mark.parametrize("change", [np.exp, lambda v: -3 + 1e-9 * v, lambda v: v**3])
def test_neither_the_scale_of_the_score_nor_of_a_variable_matters(change):
    generator = np.random.default_rng(3)
    x = generator.normal(size=20)
    score = x + generator.normal(size=20)
    plain = importances(searched((X,), [[each] for each in x], list(score)))
    assert (
        importances(searched((X,), [[each] for each in x], list(change(score))))
        == plain
    )
    assert (
        importances(searched((X,), [[each] for each in change(x)], list(score)))
        == plain
    )


def test_the_same_search_has_the_same_importances():
    assert importances(drawn(40)) == importances(drawn(40))


@pytest.mark.parametrize("trials", range(FEWEST_TRIALS))
def test_with_too_few_trials_there_is_a_reason_in_place_of_a_number(trials):
    (found,) = importances(
        searched((X,), [[i / 9] for i in range(trials)], list(range(trials)))
    )
    assert found.share is found.p_value is found.chance is None
    assert f"{trials} trial" in found.reason
    assert f"it takes {FEWEST_TRIALS}" in found.reason


@pytest.mark.parametrize(
    ("points", "scores", "reason"),
    [([0.5] * 9, range(9), "same value"), (np.arange(9) / 9, [1.0] * 9, "same score")],
)
def test_where_nothing_varies_there_is_a_reason(points, scores, reason):
    (found,) = importances(
        searched((X,), [[float(each)] for each in points], list(scores))
    )
    assert found.share is None
    assert reason in found.reason


def test_a_variable_without_a_number_comes_last():
    points = [[0.5, i / 20] for i in range(20)]
    assert [each.path for each in importances(searched((X, Z), points, range(20)))] == [
        "z",
        "x",
    ]


def test_only_trials_that_finished_or_were_stopped_are_compared():
    good = [trial(i, float(i), x=i / 20) for i in range(20)]
    status = ("failed", "running", "paused", "waiting")
    bad = [trial(20 + i, 9.0 - i, each, x=i / 5) for i, each in enumerate(status)]
    alone = importances(SearchSummary("s", "S", (X,), tuple(good), BUDGET))
    assert alone[0].trials == 20
    assert importances(SearchSummary("s", "S", (X,), (*good, *bad), BUDGET)) == alone


def test_a_trial_that_was_stopped_ranks_by_how_far_it_came():
    outcomes = [
        trial(0, 1.0),
        trial(1, 99.0, "stopped", frame=10),
        trial(2, 0.0, "stopped", frame=20),
        trial(3, 5.0),
        trial(4, 98.0, "stopped", frame=10),
        trial(5, 1.0),
    ]
    np.testing.assert_allclose(
        trial_ranks(outcomes), np.array([3.5, 1, 2, 5, 0, 3.5]) / 5
    )


def halved(seed, trials=20):
    """A search over x, which has a best value, and z, whose scheduler stops the worse
    at rungs."""
    generator = np.random.default_rng([5, seed])
    seen = {1000: [], 3000: []}
    outcomes = []
    for i, (x, z) in enumerate(generator.random((trials, 2))):
        quality = np.exp(-10 * (x - 0.6) ** 2)
        status, frame = "finished", BUDGET
        for rung, others in seen.items():
            others.append(quality * rung + 100 * generator.normal())
            if len(others) > 2 and others[-1] < np.quantile(others, 2 / 3):
                status, frame = "stopped", rung
                break
        score = quality * frame + 100 * generator.normal()
        outcomes.append(trial(i, score, status, frame=frame, x=x, z=z))
    return SearchSummary("s", "S", (X, Z), tuple(outcomes), BUDGET)


def test_an_important_variable_is_found_among_mostly_stopped_trials():
    found = [of(halved(seed)) for seed in range(30)]
    assert np.mean([each["x"].share > each["z"].share for each in found]) > 0.9
    assert np.mean([each["x"].sure for each in found]) > 0.8
    assert np.mean([each["z"].sure for each in found]) < 0.15


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_ranks_go_from_0_to_1_and_equal_values_share_theirs(values):
    ranks = midranks(np.array(values))
    assert ranks.mean() == pytest.approx(0.5)
    assert ranks.min() >= 0
    assert ranks.max() <= 1
    order = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(
        np.diff(ranks[order]) > 1e-12, np.diff(np.array(values)[order]) > 0
    )


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 6), min_size=FEWEST_TRIALS, max_size=25),
    st.sampled_from([0.15, 9]),
)
def test_a_trial_is_predicted_by_the_mean_of_the_others(values, width):
    for means in (
        local_line(midranks(np.array(values)), width),
        same_value(np.array(values)),
    ):
        np.testing.assert_array_equal(np.diag(means), 0)
        np.testing.assert_allclose(means.sum(axis=1), 1, atol=1e-9)


def test_a_wide_kernel_predicts_by_the_line_through_the_others():
    generator = np.random.default_rng(4)
    x, y = midranks(generator.random(12)), generator.random(12)
    foretold = local_line(x, np.inf) @ y
    for i in range(12):
        others = np.arange(12) != i
        slope, start = np.polyfit(x[others], y[others], 1)
        assert foretold[i] == pytest.approx(start + slope * x[i], abs=0.01)


def test_a_category_is_predicted_by_its_other_trials_and_once_by_all():
    means = same_value(np.array([0, 0, 0, 1])) @ np.array([1.0, 2.0, 3.0, 7.0])
    np.testing.assert_allclose(
        means, [(5 + 4) / 3, (4 + 11 / 3) / 3, (3 + 10 / 3) / 3, 2.0]
    )


def test_lists_blocks_and_null_are_categories():
    kinds = varied("kind", "choice", ([1], {"name": "a"}, None, True))
    points = [[kinds.args[i % 4]] for i in range(24)]
    found = of(searched((kinds,), points, [float(i % 4) for i in range(24)]))["kind"]
    assert found.sure
    assert found.share > 0.9
