import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from slm_lab.charts.diff import diff
from slm_lab.charts.final_returns import text_table
from slm_lab.charts.plot import MOST_CURVES, plot
from slm_lab.charts.request import PlotRequest
from slm_lab.core.errors import SpecError, UsageError
from slm_lab.metrics.reader import read_rows
from slm_lab.metrics.tracker import TrainingTracker
from slm_lab.metrics.writer import RowWriter
from slm_lab.records.lookup import find_trials
from slm_lab.storage.run_dir import RUN_BLOCK
from tests.support import ppo
from tests.unit.records.runs import change_spec, write_ended, write_run

LR = "agent__net__optim_spec"


def lr(value, **changes):
    return ppo(**{LR: {"name": "GlobalAdam", "lr": value}}, **changes)


def plotted(data, *folders, out=None, **options):
    out = data / "plots" if out is None else out
    return plot(
        PlotRequest(tuple(map(str, folders)), out=out, data_dir=data, **options)
    )


def labels_of(result):
    return [each.label for each in result.results.endings]


def seeds_of(result):
    return [each.seeds for each in result.results.endings]


def final_returns(run_dir, trial=0, sessions=(0,)):
    files = [run_dir.session(trial, session).rows for session in sessions]
    return [float(read_rows(file)["final_return"][-1]) for file in files]


def test_two_runs_are_drawn_into_one_graph_outside_of_their_folders(tmp_path):
    ppo_run = write_run(tmp_path, ppo(meta__max_session=2), name="ppo_small")
    a2c_run = write_run(tmp_path, ppo(meta__max_session=3), name="a2c_small")
    before = {
        path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()
    }
    result = plotted(tmp_path, ppo_run.root, a2c_run.root)
    stem = tmp_path / "plots" / "plot_mean_returns_ma_vs_frames"
    assert result.paths == (Path(f"{stem}.png"), Path(f"{stem}.html"))
    assert labels_of(result) == ["ppo_small", "a2c_small"]
    assert seeds_of(result) == [2, 3]
    ends = final_returns(a2c_run, sessions=range(3))
    assert result.results.endings[1].mean == pytest.approx(np.mean(ends))
    assert result.results.endings[1].std == pytest.approx(np.std(ends))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert "ppo_small, a2c_small on CartPole-v1" in result.paths[1].read_text()


def test_a_run_is_found_by_its_path_and_by_its_name_in_the_data_folder(tmp_path):
    run = write_run(tmp_path)
    assert (
        len(plotted(tmp_path, run.root, run.root.name, f"{run.root}/").results.endings)
        == 1
    )


def test_runs_that_differ_in_their_seed_alone_are_seeds_of_one_curve(tmp_path):
    write_run(tmp_path, ppo(meta__random_seed=1), stamp="2026_11_22_030000")
    write_run(
        tmp_path,
        ppo(meta__random_seed=2, meta__max_session=3),
        stamp="2026_11_22_030001",
    )
    write_run(tmp_path, lr(0.5, meta__random_seed=3), stamp="2026_11_22_030002")
    result = plotted(tmp_path, *sorted(tmp_path.iterdir()))
    assert labels_of(result) == ["small  lr 0.001", "small  lr 0.5"]
    assert seeds_of(result) == [4, 1]
    assert any("3 runs, 2 curves" in note for note in result.notes)


def test_a_curve_has_the_name_that_the_user_gave_its_run(tmp_path):
    for second, (rate, name) in enumerate([(0.001, "base"), (0.5, "fast")]):
        run = write_run(tmp_path, lr(rate), stamp=f"2026_11_22_03000{second}")
        content = json.loads(run.spec_file.read_text())
        run.spec_file.write_text(json.dumps({**content, RUN_BLOCK: {"name": name}}))
    assert labels_of(plotted(tmp_path, *sorted(tmp_path.iterdir()))) == ["base", "fast"]


def test_two_runs_under_one_seed_are_no_two_seeds(tmp_path):
    for second in range(2):
        write_run(tmp_path, ppo(meta__random_seed=1), stamp=f"2026_11_22_03000{second}")
    result = plotted(tmp_path, *sorted(tmp_path.iterdir()))
    assert labels_of(result) == ["small  2026_11_22_030000", "small  2026_11_22_030001"]


def test_workers_of_one_training_are_one_seed(tmp_path):
    spec = ppo(meta__distributed="synced", meta__max_session=2, meta__max_run=3)
    run = write_run(tmp_path, spec)
    (one,) = plotted(tmp_path, run.root).results.endings
    assert (one.seeds, one.planned) == (3, 3)
    ends = np.reshape(final_returns(run, sessions=range(6)), (3, 2)).mean(axis=1)
    assert (one.mean, one.std) == (
        pytest.approx(ends.mean()),
        pytest.approx(ends.std()),
    )


def test_the_table_does_not_depend_on_the_x_axis(tmp_path):
    """Where workers have come to different moments, their mean ends before the last of
    them."""
    spec = ppo(meta__distributed="synced", meta__max_session=2, meta__max_run=2)
    run = write_run(tmp_path, spec)
    rows = run.session(0, 1).rows
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:8]))
    first, *others = (
        plotted(tmp_path, run.root, x=x).results.endings[0]
        for x in ("frames", "total_frames", "wall_t")
    )
    for other in others:
        assert (other.mean, other.std, other.interval) == (
            first.mean,
            first.std,
            first.interval,
        )


def test_workers_that_have_no_moment_in_common_have_no_mean_yet(tmp_path):
    run = write_run(
        tmp_path, ppo(meta__distributed="synced", meta__max_session=2), rows=4
    )
    rows = run.session(0, 0).rows
    header, first, *_, last = rows.read_text().splitlines(keepends=True)
    rows.write_text(header + first)
    other = run.session(0, 1).rows
    other.write_text(header + last)
    with pytest.raises(UsageError, match="there is nothing to draw"):
        plotted(tmp_path, run.root)


def test_with_a_learner_and_actors_only_the_learner_has_rows(tmp_path):
    spec = ppo(meta__distributed="actor_learner", meta__max_session=2, meta__max_run=2)
    result = plotted(tmp_path, write_run(tmp_path, spec).root)
    assert seeds_of(result) == [2]


@pytest.mark.medium
def test_a_note_separates_frames_of_workers_from_those_of_one_process(tmp_path):
    one = write_run(tmp_path, name="one")
    two = write_run(
        tmp_path, ppo(meta__distributed="synced", meta__max_session=2), name="two"
    )
    notes = plotted(tmp_path, one.root, two.root).notes
    assert any("--x total_frames" in note for note in notes)
    assert not plotted(tmp_path, one.root, two.root, x="total_frames").notes
    assert not plotted(tmp_path, two.root).notes


def test_trials_of_a_search_are_curves_and_can_be_named_one_by_one(tmp_path):
    run = write_run(tmp_path, *(lr(10.0**-n) for n in range(1, 4)))
    assert labels_of(plotted(tmp_path, run.root)) == [
        "small t0  lr 0.1",
        "small t1  lr 0.01",
        "small t2  lr 0.001",
    ]
    assert labels_of(plotted(tmp_path, f"{run.root.name}:t1")) == ["small t1"]
    with pytest.raises(UsageError, match="has the trials t0, t1, t2"):
        plotted(tmp_path, f"{run.root}:t3")


def test_a_trial_of_a_search_shares_no_curve_with_the_fresh_seeds_of_its_spec(tmp_path):
    run = write_run(tmp_path, lr(0.1), lr(0.2))
    fresh = write_run(
        run.root, lr(0.1, meta__random_seed=9, meta__max_session=3), stamp="confirm"
    )
    result = plotted(tmp_path, f"{run.root}:t0", fresh.root)
    assert labels_of(result) == ["small t0", "small"]
    assert seeds_of(result) == [1, 3]


def test_of_many_trials_the_best_are_drawn(tmp_path):
    run = write_run(tmp_path, *(lr(0.1 + n / 100) for n in range(MOST_CURVES + 2)))
    ends = {f"t{n}": final_returns(run, n)[0] for n in range(MOST_CURVES + 2)}
    result = plotted(tmp_path, run.root)
    drawn = [label.split()[1] for label in labels_of(result)]
    worst = sorted(ends, key=ends.__getitem__)[:2]
    assert drawn == [trial for trial in ends if trial not in worst]
    assert any(
        f"the {MOST_CURVES} of {MOST_CURVES + 2} curves" in note
        for note in result.notes
    )


def test_all_runs_in_the_folder_of_a_comparison_are_drawn_by_variant(tmp_path):
    folder = tmp_path / "small_compare_2026_11_22_030000"
    for seed in range(3):
        for name, changes in (
            ("false", {}),
            ("synced_2", {"meta__distributed": "synced"}),
        ):
            spec = ppo(meta__random_seed=seed, **changes)
            write_run(
                folder, spec, name=f"small_{name}", stamp=f"2026_11_22_03000{seed}"
            )
    (folder / "small_compare_specs.json").write_text("{}")
    result = plotted(tmp_path, folder.name)
    assert labels_of(result) == ["small_false", "small_synced_2"]
    assert seeds_of(result) == [3, 3]
    assert result.results.improvement is not None


def test_trials_without_values_are_left_out_of_a_search_with_a_note(tmp_path):
    run = write_run(tmp_path, lr(0.1), lr(0.2))
    run.session(1, 0).rows.unlink()
    result = plotted(tmp_path, run.root)
    assert labels_of(result) == ["small t0"]
    assert any("1 of 2 trials" in note for note in result.notes)


def test_a_run_with_a_session_that_has_not_started_is_drawn(tmp_path):
    run = write_run(tmp_path, ppo(meta__max_session=2))
    run.session(0, 1).rows.unlink()
    (one,) = plotted(tmp_path, run.root).results.endings
    assert (one.seeds, one.planned) == (1, 2)


@pytest.mark.parametrize("y", ["mean_returns", "eval_mean_returns"])
@pytest.mark.parametrize("x", ["frames", "total_frames", "wall_t"])
@pytest.mark.parametrize("statistic", ["mean", "iqm"])
def test_every_axis_and_statistic_can_be_drawn(tmp_path, y, x, statistic):
    run = write_run(tmp_path, ppo(meta__max_session=4), evaluations=5)
    result = plotted(tmp_path, run.root, y=y, x=x, statistic=statistic)
    assert result.paths[0].name == f"plot_{y}_vs_{x}.png"
    assert seeds_of(result) == [4]


def test_the_same_runs_give_the_same_graph(tmp_path):
    run = write_run(tmp_path, ppo(meta__max_session=5))
    first, second = (
        plotted(tmp_path, run.root, statistic="iqm", out=tmp_path / out)
        for out in ("a", "b")
    )
    assert first.results == second.results
    assert [path.read_bytes() for path in first.paths] == [
        p.read_bytes() for p in second.paths
    ]


def test_returns_of_different_environments_come_with_a_warning(tmp_path):
    one = write_run(tmp_path, name="one")
    other = write_run(tmp_path, ppo(env__name="Acrobot-v1"), name="two")
    notes = plotted(tmp_path, one.root, other.root).notes
    assert any("cannot be compared: CartPole-v1, Acrobot-v1" in note for note in notes)


def test_a_spec_of_an_earlier_version_and_of_a_plug_in_can_be_drawn(tmp_path):
    run = write_run(tmp_path)

    def age(content):
        content["small"]["meta"]["gone_since"] = 1
        content["small"]["agent"]["algorithm"]["name"] = "NobodyKnowsIt"

    change_spec(run, age)
    assert labels_of(plotted(tmp_path, run.root)) == ["small"]


def test_a_spec_name_that_looks_like_that_of_a_trial_is_understood(tmp_path):
    run = write_run(tmp_path, name="small_t0")
    (found,) = find_trials(str(run.root), tmp_path)
    assert (found.name, found.trial, found.folder_time) == (
        "small_t0",
        0,
        "2026_11_22_030000",
    )


WORDS = {
    "y": ("mean_retrun", 'has no values of mean_retrun: .*did you mean "mean_return'),
    "x": ("frame", '--x frame: must be one of .*did you mean "frames"'),
    "statistic": ("iqr", '--statistic iqr: must be one of .*did you mean "iqm"'),
}


@pytest.mark.parametrize("option", WORDS)
def test_an_unknown_word_is_refused_with_the_nearest(tmp_path, option):
    word, message = WORDS[option]
    with pytest.raises(UsageError, match=message):
        plotted(tmp_path, write_run(tmp_path).root, **{option: word})
    assert not (tmp_path / "plots").exists()


def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path):
    run = write_run(tmp_path)
    with pytest.raises(UsageError, match=f"did you mean {run.root.name}"):
        plotted(tmp_path, run.root.name.replace("22", "23"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty is no run folder, and contains none"):
        plotted(tmp_path, "empty")
    with pytest.raises(UsageError, match="there is no run folder nowhere"):
        plotted(tmp_path / "none", "nowhere")


def test_one_of_several_runs_without_values_is_left_out_with_a_note(tmp_path):
    empty, run = (
        write_run(tmp_path, rows=0),
        write_run(tmp_path, stamp="2026_11_22_040000"),
    )
    drawn = plotted(tmp_path, empty.root, run.root)
    assert len(drawn.results.endings) == 1
    assert f"left out: {empty.root} has no rows with a return yet" in drawn.notes[0]


def test_a_run_without_values_is_refused_by_name(tmp_path):
    run = write_run(tmp_path, rows=0)
    with pytest.raises(
        UsageError, match=f"{run.root.name} has no rows with a return yet"
    ):
        plotted(tmp_path, run.root)
    with pytest.raises(UsageError, match=r"has no evaluations.*--y mean_returns_ma"):
        plotted(tmp_path, run.root, y="eval_mean_returns")


def test_damaged_files_are_reported(tmp_path):
    run = write_run(tmp_path, ppo(meta__max_session=2))
    rows = run.session(0, 1).rows
    rows.write_text(rows.read_text() + "x\n")
    with pytest.raises(UsageError, match=r"t0_s1_session_df_train\.csv, line 22"):
        plotted(tmp_path, run.root)
    change_spec(run, lambda content: content["small"]["meta"].update(max_session="two"))
    with pytest.raises(SpecError, match=r"meta\.max_session"):
        plotted(tmp_path, run.root)
    run.trial_spec_file(0).write_text(json.dumps({}))
    with pytest.raises(SpecError, match="must hold one spec"):
        plotted(tmp_path, run.root)


def test_nothing_is_written_into_a_run_folder(tmp_path):
    run = write_run(tmp_path)
    for out in (run.root, run.root / "plots"):
        with pytest.raises(UsageError, match="is in the run folder"):
            plotted(tmp_path, run.root, out=out)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be made"):
        plotted(tmp_path, run.root, out=tmp_path / "file")


def write_returns(path, returns):
    """The rows of a Session, a row for each episode."""
    tracker = TrainingTracker(1, 100, 100 * len(returns))
    with closing(RowWriter(path, tracker.columns)) as writer:
        for i, value in enumerate(returns, 1):
            frame = 100 * i
            one = (
                np.array([0]),
                np.array([float(value)]),
                np.array([10]),
                np.empty((1, 0)),
            )
            tracker.track_episodes(*one, frame)
            clocks = {"frame": frame, "total_frame": frame, "opt_step": i}
            writer.append(tracker.row(wall_t=float(i), cpu_t=float(i), **clocks))


def test_faster_learning_with_an_equal_end_does_not_rank_above(tmp_path):
    """The moving average over rows is 1 for the one, and a half for the other."""
    fast, slow = np.ones(60), np.repeat([0, 1], 30)
    for name, returns in (("fast", fast), ("slow", slow)):
        run = write_run(tmp_path, ppo(meta__max_session=3), name=name, rows=0)
        for session in range(3):
            write_returns(run.session(0, session).rows, returns)
    result = plotted(tmp_path, *sorted(tmp_path.glob("*_2026*")))
    assert [each.mean for each in result.results.endings] == [1.0, 1.0]
    assert result.results.improvement.probability == 0.5


def write_losses(path):
    """The rows of a Session that has learned, but of which no episode has ended."""
    tracker = TrainingTracker(1, 100, 1000)
    with closing(RowWriter(path, tracker.columns)) as writer:
        for i in range(1, 11):
            tracker.track_update({"loss": 1 / i})
            clocks = {"frame": 100 * i, "total_frame": 100 * i, "opt_step": i}
            writer.append(tracker.row(wall_t=float(i), cpu_t=float(i), **clocks))


@pytest.mark.parametrize("count", [1, 3])
def test_seeds_of_which_no_episode_has_ended_have_a_dash_for_the_final_return(
    count, tmp_path
):
    run = write_run(tmp_path, ppo(meta__max_session=count), rows=0)
    for session in range(count):
        write_losses(run.session(0, session).rows)
    result = plotted(tmp_path, run.root, y="loss")
    (one,) = result.results.endings
    assert (one.seeds, one.interval, result.results.improvement) == (count, None, None)
    assert np.isnan([one.mean, one.std, one.iqm]).all()
    (row,) = text_table(result.results.endings).rows
    assert row[3:] == ("–", "–", "–")


def test_a_seed_of_which_no_episode_has_ended_counts_in_no_final_return(tmp_path):
    run = write_run(tmp_path, ppo(meta__max_session=4))
    run.session(0, 3).rows.unlink()
    write_losses(run.session(0, 3).rows)
    (one,) = plotted(tmp_path, run.root, y="loss").results.endings
    ends = final_returns(run, sessions=range(3))
    assert (one.seeds, one.mean) == (4, pytest.approx(np.mean(ends)))


def test_the_title_counts_the_curves_that_are_drawn(tmp_path):
    for i in range(5):
        name = f"small_{min(i, 3)}"
        write_run(tmp_path, lr(0.01 + i), name=name, stamp=f"2026_11_22_03000{i}")
    result = plotted(tmp_path, tmp_path)
    assert len(result.results.endings) == 5
    assert "5 curves on CartPole-v1" in result.paths[1].read_text()


def test_a_run_that_began_with_trained_weights_is_no_seed_of_one_that_did_not(tmp_path):
    parent = {"run": "parent_1", "session": 0, "frame": 400, "taken": ["net"]}
    origins = (
        {},
        {},
        {"init_from": parent},
        {"init_from": {**parent, "run": "parent_2"}},
    )
    for seed, origin in enumerate(origins):
        spec = ppo(meta__random_seed=seed)
        run = write_ended(tmp_path, f"run{seed}", spec, **origin)
        change_spec(run, lambda content: content.update(small=content.popitem()[1]))
    result = plotted(tmp_path, tmp_path)
    assert seeds_of(result) == [2, 1, 1]
    (of_spec, _) = diff("run0", "run2", tmp_path).tables.values()
    assert (
        "--init-from",
        "–",
        '"parent_1, Session 0 at frame 400: net"',
    ) in of_spec.rows
