"""`plot --group-by`: a curve for each value of a key."""

import numpy as np
import pytest

from slm_lab.charts.axis import RETURNS
from slm_lab.charts.plot import grouped, resolve_key
from slm_lab.charts.trainings import read_trial
from slm_lab.core.errors import UsageError
from slm_lab.records.annotations import annotate
from slm_lab.records.run_record import RunRecord
from tests.support import ppo
from tests.unit.charts.plot.test_plot import labels_of, lr, plotted, seeds_of
from tests.unit.records.runs import write_run

VALUES = [(0.01, 0.9, 1), (0.01, 0.99, 1), (0.001, 0.9, 1), (0.001, 0.9, 2)]


@pytest.fixture
def runs(tmp_path):
    return [
        write_run(
            tmp_path,
            lr(value, agent__algorithm__gamma=gamma, meta__random_seed=seed),
            stamp=f"2026_11_22_03000{i}",
        )
        for i, (value, gamma, seed) in enumerate(VALUES)
    ]


def trials_of(runs):
    return [read_trial(RunRecord(run, 0), "frames", RETURNS[0]) for run in runs]


def test_a_curve_is_of_all_runs_with_one_value(tmp_path, runs):
    result = plotted(tmp_path, *(run.root for run in runs), group_by="lr")
    assert labels_of(result) == ["lr 0.001", "lr 0.01"]
    assert seeds_of(result) == [2, 2]
    assert any("one for each value of lr" in note for note in result.notes)


@pytest.mark.parametrize("key", ["lr", "gamma", "agent.algorithm.gamma", "num_envs"])
def test_grouping_only_joins_the_trainings_of_single_runs(runs, key):
    trials = trials_of(runs)
    groups, _ = grouped(trials, "frames", group_by=key)
    joined = sorted(x for group in groups for x in group.final_return)
    alone = sorted(t.final_return for trial in trials for t in trial.trainings)
    np.testing.assert_array_equal(joined, alone)
    path = resolve_key(trials, key)
    specs = {trial.pair_keys[0][0]: trial.record.spec for trial in trials}
    for group in groups:
        values = set()
        for run, _ in group.pair_keys:
            value = specs[run]
            for part in path.split("."):
                value = value[part]
            values.add(value)
        assert len(values) == 1


def test_environments_are_never_averaged(tmp_path, runs):
    other = write_run(
        tmp_path, lr(0.01, env__name="Acrobot-v1"), stamp="2026_11_22_040000"
    )
    result = plotted(tmp_path, *(r.root for r in [*runs, other]), group_by="lr")
    assert sorted(labels_of(result)) == [
        "lr 0.001  CartPole-v1",
        "lr 0.01  Acrobot-v1",
        "lr 0.01  CartPole-v1",
    ]


def test_a_run_without_the_key_is_a_curve_of_its_own(tmp_path, runs):
    other = write_run(
        tmp_path,
        ppo(agent={"name": "Random", "algorithm": {"name": "Random"}}),
        stamp="2026_11_22_040000",
    )
    result = plotted(tmp_path, *(r.root for r in [*runs, other]), group_by="lr")
    assert any(label.endswith("–") for label in labels_of(result))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("agent.net.optim_spec.lrr", "did you mean agent.net.optim_spec.lr"),
        ("name", "keys end so: agent.name"),
        ("nonsense_of_all", "unknown key"),
    ],
)
def test_a_key_that_is_unknown_or_unclear_is_refused(key, words, tmp_path, runs):
    with pytest.raises(UsageError, match=words):
        plotted(tmp_path, runs[0].root, group_by=key)


def test_runs_are_chosen_by_all_their_tags(tmp_path, runs):
    annotate(runs[0], add=["good", "old"])
    annotate(runs[2], add=["good"])
    everything = plotted(tmp_path, tmp_path, tags=("good",), out=tmp_path / "plots")
    assert len(everything.results.endings) == 2
    both = plotted(tmp_path, tmp_path, tags=("good", "old"), out=tmp_path / "plots")
    assert len(both.results.endings) == 1
    with pytest.raises(UsageError, match="no run tagged bad; its tags: good, old"):
        plotted(tmp_path, tmp_path, tags=("bad",), out=tmp_path / "plots")
