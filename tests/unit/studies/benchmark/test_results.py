"""The statistics of a row, and the report that is made from them."""

import numpy as np
import pytest

from slm_lab.records.training_record import GreedyEpisodes, write_record
from slm_lab.records.training_record import read_records as read
from slm_lab.studies.benchmark.report import BenchmarkReport, markdown
from slm_lab.studies.benchmark.results import row_results
from tests.unit.studies.benchmark.records import record


def row(*finals, **facts):
    """A row with these final returns, one for each seed."""
    (result,) = row_results(
        [record(seed=seed, final=final, **facts) for seed, final in enumerate(finals)]
    )
    return result


def test_statistics_rest_on_finished_trainings_alone():
    (result,) = row_results(
        [
            record(seed=1, final=300.0),
            record(seed=2, final=100.0),
            record(seed=3, final=None, ending="failed", error="a fault"),
            record(seed=4, final=50.0, ending="stopped", frames=40_000),
        ]
    )
    assert result.final_returns.tolist() == [300, 100]
    assert result.unfinished == "1 failed; stopped at 40,000 frames"


def test_a_bound_is_kept_if_every_training_reaches_it():
    assert row(300.0, 200.0, bound=200.0).is_kept is True
    assert row(300.0, 199.0, bound=200.0).is_kept is False
    assert row(300.0, None, bound=200.0).is_kept is False
    assert row(300.0).is_kept is None
    stopped = row_results([record(final=300.0, bound=200.0, ending="stopped")])
    assert stopped[0].is_kept is False


def test_the_seeds_that_are_missing_follow_from_the_spread():
    """Learned: 400 − 20; wanted: ± 19. s = 100, so (1.96 · 100 / 19)² = 106.4."""
    assert row(300.0, 400.0, 500.0).seeds_needed == 107
    assert row(400.0).seeds_needed is None


def test_a_published_score_of_fewer_frames_is_compared_at_these_frames():
    """The row of 500k frames passes 200k with returns of 191 to 200."""
    frames = [1000.0 * n for n in range(1, 501)]
    curve = {
        "frame": frames,
        "wall_t": frames,
        "episode_return": [n / 1000 for n in frames],
    }
    result = row(500.0, 500.0, max_frame=500_000, frames=500_000, curve=curve)
    judged = {
        score.frames: str(judgement)
        for score, judgement in result.published
        if score.score == "training"
    }
    assert judged[200_000] == "below (196 at 200k)"
    assert judged[500_000] == "above"


def test_greedy_scores_are_compared_with_greedy_episodes():
    best = GreedyEpisodes(episodes=10, mean=500.0, std=0.0, min=500.0, max=500.0)
    result = row(100.0, 100.0, evaluation=best)
    judged = [
        str(judgement)
        for score, judgement in result.published
        if score.score == "evaluation"
    ]
    assert judged == ["equal within intervals (500 greedy)"]


def methods():
    """Two methods in two environments, three seeds each."""
    return [
        record(method=method, env=env, seed=seed, final=best - worse + seed)
        for method, worse in (("PPO", 0), ("DQN", 200))
        for env, best in (("CartPole-v1", 400), ("Acrobot-v1", 300))
        for seed in range(3)
    ]


@pytest.mark.medium
def test_the_same_data_make_the_same_tables(tmp_path):
    first = tmp_path / "first"
    second = tmp_path / "second"
    for folder, records in ((first, methods()), (second, methods()[::-1])):
        BenchmarkReport(records).write(folder)
    tables = [file.name for file in first.iterdir() if file.suffix in (".csv", ".md")]
    assert sorted(tables) == [
        "published.csv",
        "results.csv",
        "small.md",
        "trainings.csv",
    ]
    for name in tables:
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert (first / "small_curves.png").is_file()
    assert (first / "small_profile.png").is_file()


def test_a_deleted_record_changes_the_table(tmp_path):
    for made in methods():
        write_record(tmp_path, made)
    before = markdown(BenchmarkReport(read(tmp_path)).table("small"))
    (tmp_path / "PPO_CartPole-v1_2.json").unlink()
    after = markdown(BenchmarkReport(read(tmp_path)).table("small"))
    assert "400, 401, 402" in before
    assert "400, 401 |" in after


def test_a_record_is_read_as_it_was_written(tmp_path):
    made = record(error="a\nfault", machine={"cores": 2}, sets=["a=1"])
    write_record(tmp_path, made)
    assert read(tmp_path) == [made]


def test_the_better_of_two_methods_is_named_with_its_probability():
    (ranking,) = BenchmarkReport(methods()).improvements("small")
    assert (ranking.better, ranking.probability) == ("PPO", 1.0)


def test_scores_over_environments_lie_between_random_and_the_best_mean():
    by_method = {
        seeds.label: seeds for seeds in BenchmarkReport(methods())._methods("small")
    }
    assert by_method["PPO"].final_return.mean() == pytest.approx(1.0)
    expected = np.mean([(201 - 20) / (401 - 20), (101 - 20) / (301 - 20)])
    assert by_method["DQN"].final_return.mean() == pytest.approx(expected)


def test_only_trainings_that_ran_alone_count_as_speeds():
    result = row(1.0, 2.0)
    assert result.speeds == []
    assert not BenchmarkReport(result.records).speeds("small").rows
    alone = row(1.0, 2.0, is_alone=True)
    (line,) = BenchmarkReport(alone.records).speeds("small").rows
    assert line[4:] == ("10,000", "–", "10.0", "a CPU")


def test_seconds_of_virtual_time_are_a_speed_beside_other_trainings_too():
    report = BenchmarkReport(ranks())
    one, four = report.speeds("small").rows
    assert one == (
        "1 rank", "1", "100k", "1", "10,000", "1.00", "10.0", "virtual time"
    )  # fmt: skip
    assert four[1:6] == ("4", "100k", "1", "30,000", "3.00")
    assert BenchmarkReport(methods()).times("small") is None
    times = report.times("small")
    (panel,) = [panel for line in times.rows for panel in line]
    assert panel.x.label == "virtual training time (s)"


def ranks():
    """One and four ranks in virtual time."""
    return [
        record(
            row=name,
            workers=workers,
            is_virtual=True,
            frames_per_second=speed,
            mode="all_reduce",
        )
        for name, workers, speed in (("1 rank", 1, 1e4), ("4 ranks", 4, 3e4))
    ]


def test_rows_are_in_the_order_of_the_numbers_in_their_names():
    names = ["1 rank", "4 ranks", "16 ranks"]
    records = [record(row=name, method=name) for name in sorted(names)]
    assert [row.first.row for row in row_results(records)] == names


def test_rows_of_one_method_in_one_environment_are_told_apart():
    records = [record(row="small batches"), record(row="large batches")]
    report = BenchmarkReport(records)
    (panel,) = report._panels(report.results).values()
    assert {seeds.label for seeds in panel} == {"small batches", "large batches"}


def test_a_graph_does_not_say_that_all_environments_have_as_many_seeds_as_one():
    records = [
        record(env="CartPole-v1", seed=1),
        record(env="CartPole-v1", seed=2),
        record(env="Acrobot-v1", seed=1),
    ]
    chart = BenchmarkReport(records).curves("small")
    assert chart.subtitle.startswith("interquartile mean of the seeds")
