"""Pairs: a run and its fork, and how far they differ."""

import json

import numpy as np
import pytest

from slm_lab.charts.axis import RETURNS
from slm_lab.charts.final_returns import (
    Results,
    paired_difference,
)
from slm_lab.charts.overlay import Seeds
from slm_lab.charts.plot import plot
from slm_lab.charts.request import PlotRequest
from slm_lab.charts.statistics import difference_interval
from slm_lab.charts.trainings import read_trial
from slm_lab.core.files import write_json
from slm_lab.records.overview import Overview, below_parents
from slm_lab.records.run_record import RunRecord
from slm_lab.storage.run_dir import RUN_BLOCK
from tests.support import ppo
from tests.unit.records.runs import write_run


def seeds(label, finals, keys, are_forks=False):
    return Seeds(
        label=label,
        lines=(),
        final_return=np.array(finals),
        frames=np.full(len(finals), 100.0),
        planned=len(finals),
        pair_keys=tuple(keys),
        are_forks=are_forks,
    )


BASE = [10.0, 200.0, 90.0, 400.0]
KEYS = [("run", n) for n in range(4)]
RNG = np.random.default_rng


def test_a_constant_effect_is_known_exactly_in_pairs():
    groups = [
        seeds("base", BASE, KEYS),
        seeds("fork", [x + 5.0 for x in BASE], KEYS, are_forks=True),
    ]
    result = paired_difference(groups, RNG(0))
    assert (result.of, result.than, result.pairs) == ("fork", "base", 4)
    assert result.mean == pytest.approx(5.0)
    assert result.interval == pytest.approx((5.0, 5.0))
    low, high = result.unpaired
    assert low < -100 < 100 < high


def test_pairs_are_found_by_their_run_and_number_in_any_order():
    groups = [
        seeds("fork", [406.0, 11.0, 93.0], [KEYS[3], KEYS[0], KEYS[2]], are_forks=True),
        seeds("base", BASE, KEYS),
    ]
    result = paired_difference(groups, RNG(0))
    assert (result.of, result.pairs) == ("fork", 3)
    assert result.mean == pytest.approx((6 + 1 + 3) / 3)


@pytest.mark.parametrize(
    "other",
    [
        seeds("fork", BASE, [("another", n) for n in range(4)], are_forks=True),
        seeds("fork", BASE[:2], KEYS[:2], are_forks=True),
        seeds("fork", [*BASE[:2], np.nan, np.nan], KEYS, are_forks=True),
        seeds("no fork", BASE, KEYS),
        seeds("fork", BASE, KEYS, are_forks=True)._replace(frames=np.full(4, 90.0)),
    ],
    ids=["other runs", "two pairs", "two without episodes", "no fork", "still trains"],
)
def test_less_than_three_pairs_have_no_difference(other):
    assert paired_difference([seeds("base", BASE, KEYS), other], RNG(0)) is None


def test_the_sentence_names_both_intervals():
    fork = seeds("fork", [x + 5.0 for x in BASE], KEYS, are_forks=True)
    result = paired_difference([seeds("base", BASE, KEYS), fork], RNG(0))
    (text,) = Results((), paired=result).sentences
    assert text.startswith(
        "fork less base, in 4 pairs: 5.00 (95 % interval 5.00 to 5.00; not"
    )


def test_intervals_cover_the_true_difference_and_pairs_are_narrower():
    """Differences have mean 3 and deviation 1; the values have deviation 20."""
    rng = RNG(1)
    covered = 0
    for _ in range(100):
        base = rng.normal(0, 20, 20)
        other = base + rng.normal(3, 1, 20)
        low, high = difference_interval(other, base, rng, is_paired=True, resamples=500)
        covered += bool(low <= 3 <= high)
        wide = difference_interval(other, base, rng, is_paired=False, resamples=500)
        assert wide.high - wide.low > 5 * (high - low)
    assert 86 <= covered <= 99


def overview(name, parent=""):
    return Overview(run=name, forked_from=parent)


def test_forks_stand_below_their_parents_with_their_depth():
    runs = [
        overview("a"),
        overview("c", "b"),
        overview("x"),
        overview("b", "a"),
        overview("orphan", "deleted"),
        overview("d", "a"),
    ]
    placed = [(depth, run.run) for depth, run in below_parents(runs)]
    assert placed == [(0, "a"), (1, "b"), (2, "c"), (1, "d"), (0, "x"), (0, "orphan")]


def as_fork(run, parent, frame):
    content = json.loads(run.spec_file.read_text())
    content.setdefault(RUN_BLOCK, {})["forked_from"] = {"run": parent, "frame": frame}
    write_json(run.spec_file, content)
    return run


def test_a_fork_is_drawn_from_the_frame_at_which_it_leaves_its_parent(tmp_path):
    spec = ppo(meta__max_session=3)
    parent = write_run(tmp_path, spec, name="parent", rows=20)
    fork = as_fork(
        write_run(tmp_path, spec, name="fork", rows=20), parent.root.name, 12_000
    )
    trials = [
        read_trial(RunRecord(run, 0), "frames", RETURNS[0]) for run in (parent, fork)
    ]
    whole, branch = (trial.trainings[0].line for trial in trials)
    assert branch.x[0] == 3000
    assert whole.x[0] < 3000
    later = whole.x >= 3000
    assert np.array_equal(branch.y, whole.y[later])
    assert [trial.pair_keys for trial in trials] == [
        [(parent.root.name, number) for number in range(3)]
    ] * 2


def test_forks_at_one_frame_are_seeds_and_those_at_another_are_not(tmp_path):
    runs = []
    for folder, seed, frame in (("a", 1, 500), ("b", 2, 500), ("c", 3, 800)):
        spec = ppo(meta__random_seed=seed, meta__max_session=3)
        run = write_run(tmp_path / folder, spec, name="small", rows=10)
        runs.append(str(as_fork(run, "parent", frame).root))
    request = PlotRequest(tuple(runs), data_dir=tmp_path, out=tmp_path / "plots")
    plotted = plot(request, draws=False)
    assert {row.label: row.seeds for row in plotted.results.endings} == {
        "small  fork at frame 500": 6,
        "small  fork at frame 800": 3,
    }
